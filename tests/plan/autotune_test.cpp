// Tests the autotuning run. A callback reports how long each call took.
#include "plan/autotune.hpp"

#include <catch2/catch.hpp>

using namespace convolume;

namespace {

/// Candidates that always take the same time, except for the first call. They count their calls.
struct Runners {
  std::vector<double> seconds;
  double first_call = 1;
  std::vector<int> calls = std::vector<int>(seconds.size(), 0);

  std::vector<double> autotune(const plan::AutotuneRules& rules) {
    return plan::autotune(seconds.size(), rules,
                          [this](std::size_t i) { return (calls[i]++ == 0 ? first_call : 1) * seconds[i]; });
  }
};

}  // namespace

TEST_CASE("medians of interleaved rounds decide, and first calls do not count") {
  Runners runners{.seconds = {0.4, 0.3, 0.35}, .first_call = 3};
  CHECK(runners.autotune({.rounds = 5, .max_seconds = 1e9}) == runners.seconds);
  CHECK(runners.calls == std::vector{7, 7, 7});
  CHECK(plan::winner(runners.seconds) == 1);
  // One delayed call must not change the median.
  int calls = 0;
  const auto seconds =
      plan::autotune(1, {.rounds = 5, .max_seconds = 1e9}, [&](std::size_t) { return ++calls == 4 ? 100.0 : 1.0; });
  CHECK(seconds == std::vector{1.0});
}

TEST_CASE("what is hopeless is called once or twice, what stays behind for three rounds") {
  Runners runners{.seconds = {1, 6, 1.6, 1.4, 0.9, 26}};
  CHECK(runners.autotune({.rounds = 9, .max_seconds = 1e9}) == runners.seconds);
  CHECK(runners.calls == std::vector{11, 2, 5, 5, 11, 1});
  // One slow first call must not exclude a candidate.
  int calls = 0;
  const auto held_up = [&](std::size_t i) { return i == 1 && ++calls == 1 ? 20.0 : i == 1 ? 0.5 : 1.0; };
  CHECK(plan::autotune(2, {.max_seconds = 1e9}, held_up) == std::vector{1.0, 0.5});
}

TEST_CASE("rounds go on for the least time and end after the most") {
  Runners quick{.seconds = {0.01}};
  quick.autotune({.rounds = 5, .min_seconds = 0.095});
  CHECK(quick.calls == std::vector{2 + 10});
  Runners slow{.seconds = {2.0}};
  slow.autotune({.rounds = 50, .max_seconds = 1});
  CHECK(slow.calls == std::vector{2 + 3});
  Runners slower{.seconds = {2.0, 1.9}};
  slower.autotune({.rounds = 50, .least_rounds = 1, .max_seconds = 1});
  CHECK(slower.calls == std::vector{2 + 1, 2 + 1});
  Runners measured{.seconds = {0.1}};
  measured.autotune({.rounds = 50, .least_rounds = 1, .max_seconds = 1.05});
  CHECK(measured.calls == std::vector{10});  // another round would end too late
  int asked = 0;
  plan::autotune(
      1, {.rounds = 50}, [](std::size_t) { return 0.001; }, [&] { return ++asked < 3; });
  CHECK(asked == 3);
}

TEST_CASE("the first stays the winner where others are as fast but for noise") {
  CHECK(plan::winner({1, 0.98, 1.1}) == 0);
  CHECK(plan::winner({1, 0.98, 0.9}) == 2);
  CHECK(plan::winner({1}) == 0);
}
