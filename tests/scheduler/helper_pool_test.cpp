// Tests schedulers whose helpers come from a HelperPool: runs end however few come, and use those that come.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "convolume/scheduler.hpp"
#include "core/random.hpp"

using namespace convolume;

namespace {

/// Starts threads for each call, but not more than `most` besides the caller.
class ThreadsPerCall final : public HelperPool {
 public:
  explicit ThreadsPerCall(int most) : most_(most) {}
  void together(int threads, const std::function<void(int)>& job) noexcept override {
    ++calls;
    std::vector<std::thread> helpers;
    for (int place = 1; place < threads && place <= most_; ++place) {
      helpers.emplace_back([&job, place] { job(place); });
    }
    job(0);
    for (std::thread& helper : helpers) helper.join();
  }

  std::atomic<int> calls{0};

 private:
  int most_;
};

/// A random graph whose tasks add one to the sum of the largest values of those before them.
class Counting {
 public:
  Counting(std::uint64_t seed, int tasks, double density) : values_(static_cast<std::size_t>(tasks)) {
    const RandomKey key{.seed = seed};
    std::uint64_t draw = 0;
    for (int i = 0; i < tasks; ++i) {
      std::vector<TaskId> after;
      for (int p = std::max(0, i - 12); p < i; ++p) {
        if (uniform(key, draw++) < density) after.push_back(p);
      }
      const auto turns = uniform_below(key, draw++, i % 17 == 0 ? 100'000 : 500);
      graph.add(
          {.name = "count", .cost = uniform(key, draw++)},
          [this, i, after, turns] {
            for (std::atomic<std::uint64_t> turn{0}; turn < turns;) ++turn;
            int largest = 0;
            for (const TaskId p : after) largest = std::max(largest, values_[static_cast<std::size_t>(p)]);
            values_[static_cast<std::size_t>(i)] = largest + 1;
          },
          after);
    }
  }
  std::vector<int> run(Scheduler& scheduler) {
    std::fill(values_.begin(), values_.end(), 0);
    REQUIRE(graph.run(scheduler) == RunResult::completed);
    return values_;
  }

  TaskGraph graph;

 private:
  std::vector<int> values_;
};

}  // namespace

TEST_CASE("a run with a pool gives the same results however many of its helpers come") {
  Scheduler serial = Scheduler::serial();
  for (const int come : {0, 1, 3, 7}) {
    ThreadsPerCall pool(come);
    for (const int threads : {2, 4, 8}) {
      Scheduler scheduler(threads, {.helpers = &pool});
      for (std::uint64_t seed = 0; seed < 12; ++seed) {
        Counting counting(seed, 150, seed % 2 == 0 ? 0.05 : 0.3);
        const std::vector<int> expected = counting.run(serial);
        for (int repeat = 0; repeat < 3; ++repeat) REQUIRE(counting.run(scheduler) == expected);
      }
      CHECK(scheduler.distinct_workers() <= std::min(threads, come + 1));
    }
    CHECK(pool.calls > 0);
  }
}

TEST_CASE("the helpers of a pool take part in a run") {
  ThreadsPerCall pool(2);
  Scheduler scheduler(3, {.helpers = &pool});
  TaskGraph graph;
  std::atomic<int> here{0};
  for (int i = 0; i < 3; ++i) {
    graph.add({.name = "meet"}, [&] {
      ++here;
      while (here < 3) std::this_thread::yield();  // ends only if three threads have come
    });
  }
  graph.run(scheduler);
  CHECK(pool.calls == 1);
  CHECK(scheduler.distinct_workers() == 3);
}

TEST_CASE("a run asks its pool once, and not at all without tasks for several threads") {
  ThreadsPerCall pool(1);
  Scheduler scheduler(2, {.helpers = &pool});
  TaskGraph chain;
  std::vector<TaskId> before;
  int count = 0;
  for (int i = 0; i < 20; ++i)
    before = {chain.add(
        {.name = "link"}, [&] { ++count; }, before)};
  chain.run(scheduler);
  CHECK(count == 20);
  CHECK(pool.calls == 0);
  // From a chain to two wide stages with a narrow one between them.
  std::atomic<int> wide{0};
  for (int stage = 0; stage < 2; ++stage) {
    std::vector<TaskId> all;
    for (int i = 0; i < 40; ++i)
      all.push_back(chain.add(
          {.name = "wide"}, [&] { ++wide; }, before));
    before = {chain.add(
        {.name = "narrow"}, [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }, all)};
  }
  for (int run = 1; run <= 10; ++run) {
    chain.run(scheduler);
    CHECK(wide == 80 * run);
    CHECK(pool.calls == run);
  }
}

TEST_CASE("helpers of a pool that sleep in a run are woken for new tasks and for its end") {
  ThreadsPerCall pool(3);
  Scheduler scheduler(4, {.helpers = &pool});
  TaskGraph graph;
  std::atomic<int> here{0};
  graph.add({.name = "first"}, [] {});
  // Longer than idle workers look for tasks.
  const TaskId slow =
      graph.add({.name = "slow", .cost = 100}, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  for (int i = 0; i < 4; ++i) {
    graph.add(
        {.name = "meet"},
        [&] {
          ++here;
          while (here % 4 != 0) std::this_thread::yield();
        },
        std::vector<TaskId>{slow});
  }
  for (int run = 0; run < 5; ++run) {
    here = 0;
    REQUIRE(graph.run(scheduler) == RunResult::completed);
    CHECK(here == 4);
  }
}

TEST_CASE("an exception in a helper of a pool reaches the caller, and the graph runs again") {
  ThreadsPerCall pool(1);
  Scheduler scheduler(2, {.helpers = &pool});
  TaskGraph graph;
  std::atomic<bool> armed{true};
  std::atomic<int> ran{0}, met{0};
  const std::thread::id caller = std::this_thread::get_id();
  for (int i = 0; i < 50; ++i) {
    graph.add({.name = "work"}, [&] {
      ++met;
      while (met < 2) std::this_thread::yield();  // so that the helper has a task
      if (armed && std::this_thread::get_id() != caller) throw std::runtime_error("in a helper");
      ++ran;
    });
  }
  CHECK_THROWS_WITH(graph.run(scheduler), "in a helper");
  armed = false;
  ran = 0;
  CHECK(graph.run(scheduler) == RunResult::completed);
  CHECK(ran == 50);
}

TEST_CASE("with a pool, graphs run from several threads and from inside a task, within a budget of scratch") {
  ThreadsPerCall pool(1);
  Scheduler scheduler(2, {.scratch_budget = 100, .helpers = &pool});
  std::atomic<int> count{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      TaskGraph outer;
      for (int k = 0; k < 6; ++k) {
        outer.add({.name = "outer", .scratch_bytes = 60}, [&] {
          TaskGraph inner;
          for (int j = 0; j < 4; ++j) inner.add({.name = "inner", .scratch_bytes = 60}, [&] { ++count; });
          inner.run(scheduler);
        });
      }
      outer.run(scheduler);
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(count == 3 * 6 * 4);
}
