// Tests that plans give the same bits with many threads, pass by pass, from the plan cache and with wisdom.
#include <cstdlib>
#include <filesystem>

#include "testing/allocation_count.hpp"
#include "testing/sanitizers.hpp"
#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>

#include "convolume/wisdom.hpp"
#include "tests/fft/fft_harness.hpp"

using namespace convolume;
using namespace convolume::test;

namespace {

constexpr fft::Backend backends[] = {fft::Backend::native, fft::Backend::fftw};

/// Returns problems that take different code paths: both orders, batches, supports, strides, primes, in place.
std::vector<fft::Problem> problems() {
  using fft::Kind;
  std::vector<fft::Problem> all{
      {.kind = Kind::r2c, .extent = {12, 10, 14}},
      {.kind = Kind::c2r, .extent = {12, 10, 14}, .order = fft::Order::rotated},
      {.kind = Kind::r2c, .extent = {17, 6, 31}, .order = fft::Order::rotated, .batch = 3, .support = {9, 5, 20}},
      {.kind = Kind::c2r, .extent = {5, 23, 9}, .batch = 2, .support = {3, 10, 7}},
      {.kind = Kind::c2c_forward, .extent = {8, 9, 20}, .batch = 2},
      {.kind = Kind::c2c_backward, .extent = {8, 9, 20}, .order = fft::Order::rotated, .batch = 5},
      {.kind = Kind::r2c, .extent = {1, 1, 97}, .batch = 37},
      {.kind = Kind::c2c_forward, .extent = {1, 1, 60}, .batch = 1},
      {.kind = Kind::r2c, .extent = {6, 7, 9}, .batch = 2, .in_place = true},
      {.kind = Kind::c2r, .extent = {6, 7, 9}, .batch = 2, .in_place = true},
      {.kind = Kind::c2c_backward, .extent = {11, 3, 8}, .in_place = true},
  };
  auto interleaved = all[4];
  interleaved.space_distance = interleaved.spectrum_distance = 1;
  interleaved.space_stride = interleaved.spectrum_stride = {360, 40, 2};
  all.push_back(interleaved);
  const std::size_t floats = all.size();
  for (std::size_t i = 0; i < floats; ++i) {
    all.push_back(all[i]);
    all.back().type = DataType::f64;
  }
  return all;
}

/// Calls check(plan, in, bits of a serial execution) for each problem on each backend.
template <class T, class Check>
void for_problems_of(const Check& check) {
  for (const auto& problem : problems()) {
    if (problem.type != data_type_of<T>()) continue;
    const auto sample = make_sample<T>(problem, Data::normal, 21);
    for (const auto backend : backends) {
      INFO((backend == fft::Backend::native ? "native " : "fftw ") << to_text(problem));
      const auto plan = fft::Plan::make(problem, {.backend = backend});
      check(plan, sample.in, run(plan, sample.in).out);
    }
  }
}

template <class Check>
void for_problems(const Check& check) {
  for_problems_of<float>(check);
  for_problems_of<double>(check);
}

/// Sets an environment variable until the end of the scope.
class EnvironmentScope {
 public:
  EnvironmentScope(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before, had_ = true;
    ::setenv(name, value.c_str(), 1);
  }
  ~EnvironmentScope() {
    if (had_) {
      ::setenv(name_, before_.c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  EnvironmentScope(const EnvironmentScope&) = delete;
  EnvironmentScope& operator=(const EnvironmentScope&) = delete;

 private:
  const char* name_;
  std::string before_;
  bool had_ = false;
};

/// Switches the plan cache off until the end of the scope.
class NoCache {
 public:
  NoCache() { fft::set_plan_cache_capacity(0); }
  ~NoCache() { fft::set_plan_cache_capacity(256); }
  NoCache(const NoCache&) = delete;
  NoCache& operator=(const NoCache&) = delete;
};

}  // namespace

TEST_CASE("a plan gives the same bits to one thread and to eight at once") {
  for_problems([](const fft::Plan& plan, const auto& in, const auto& expected) {
    std::vector<std::string> complaints(8);
    std::vector<std::thread> threads;
    for (auto& complaint : complaints) {
      threads.emplace_back([&] {
        for (int repeat = 0; repeat < 3; ++repeat) {
          const auto outcome = run(plan, in);
          complaint += outcome.complaint;
          if (!same_bits(outcome.out, expected)) complaint += "other bits";
        }
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(complaints == std::vector<std::string>(8));
  });
}

TEST_CASE("any number of workers gives the bits of one") {
  for_problems([](const fft::Plan& plan, const auto& in, const auto& expected) {
    for (const int workers : {1, 2, 5}) {
      CAPTURE(workers);
      const auto outcome = run(plan, in, with_workers(workers));
      CHECK(outcome.complaint == "");
      CHECK(same_bits(outcome.out, expected));
    }
  });
}

TEST_CASE("the items of a pass may come in any sequence") {
  for_problems([](const fft::Plan& plan, const auto& in, const auto& expected) {
    for (const auto& execute :
         {item_by_item(Items::reversed), item_by_item(Items::shuffled, 1), item_by_item(Items::shuffled, 2)}) {
      const auto outcome = run(plan, in, execute);
      CHECK(outcome.complaint == "");
      CHECK(same_bits(outcome.out, expected));
    }
  });
}

TEST_CASE("scratch is what is shared and the temporaries of each worker") {
  for_problems([](const fft::Plan& plan, const auto&, const auto&) {
    CHECK(plan.passes() >= 1);
    for (int pass = 0; pass < plan.passes(); ++pass) CHECK(plan.pass_items(pass) >= 1);
    CHECK(plan.shared_bytes() % 64 == 0);
    CHECK(plan.worker_bytes() % 64 == 0);
    CHECK(plan.scratch_bytes() == plan.shared_bytes() + plan.worker_bytes());
    CHECK(plan.scratch_bytes(7) == plan.shared_bytes() + 7 * plan.worker_bytes());
  });
}

TEST_CASE("executing a native plan takes nothing from the heap") {
  if (!counts_allocations()) return;
  const std::size_t before = allocations();
  CHECK(std::make_unique<int>(1) != nullptr);
  REQUIRE(allocations() > before);
  const Execute counted = [](const fft::Plan& plan, const void* in, void* out) {
    const Buffer<float> scratch(plan.scratch_bytes());
    const std::size_t first = allocations();
    plan.execute(in, out, scratch.data());
    const std::size_t last = allocations();
    CHECK(last - first == 0);
  };
  for_problems([&](const fft::Plan& plan, const auto& in, const auto&) {
    if (plan.backend() == fft::Backend::native) CHECK(run(plan, in, counted).complaint == "");
  });
}

TEST_CASE("plans are made and executed by many threads at once, with the same bits") {
  for (const auto backend : backends) {
    const fft::Problem problem{.kind = fft::Kind::r2c, .extent = {6, 9, 34}, .order = fft::Order::rotated};
    const auto sample = make_sample<float>(problem, Data::normal, 3);
    fft::set_plan_cache_capacity(1);
    std::vector<std::vector<std::complex<float>>> results(8);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < results.size(); ++t) {
      threads.emplace_back([&, t] {
        for (int repeat = 0; repeat < 3; ++repeat) {
          const auto length = static_cast<index_t>(30 + t);
          static_cast<void>(fft::Plan::make({.extent = {1, 1, length}}, {.backend = backend}));
          results[t] = run(fft::Plan::make(problem, {.backend = backend}), sample.in).out;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& result : results) CHECK(same_bits(result, results[0]));
    fft::set_plan_cache_capacity(256);
  }
}

TEST_CASE("a plan and its bits are the same when made again") {
  const NoCache no_cache;
  for_problems([](const fft::Plan& plan, const auto& in, const auto& expected) {
    const auto again = fft::Plan::make(plan.problem(), {.backend = plan.backend()});
    CHECK(again.describe() == plan.describe());
    CHECK(again.problem() == plan.problem());
    CHECK(same_bits(run(again, in).out, expected));
  });
}

TEST_CASE("a plan's text depends neither on plans that were measured nor on a wisdom store") {
  const NoCache no_cache;
  const TemporaryFolder folder;
  const fft::Problem problem{.kind = fft::Kind::r2c, .extent = {12, 14, 34}, .order = fft::Order::rotated};
  for (const auto backend : backends) {
    const EnvironmentScope none("CONVOLUME_WISDOM", (folder / "none").string());
    const auto before = fft::Plan::make(problem, {.backend = backend}).describe();
    CHECK(before != "");
    static_cast<void>(fft::Plan::make(problem, {.backend = fft::Backend::fftw, .rigor = fft::Rigor::measure}));
    CHECK(fft::Plan::make(problem, {.backend = backend}).describe() == before);
    const EnvironmentScope full("CONVOLUME_WISDOM", (folder / "full").string());
    WisdomStore(folder / "full").store("fft", "anything");
    CHECK(fft::Plan::make(problem, {.backend = backend}).describe() == before);
  }
}

TEST_CASE("a measured choice is remembered in the wisdom store") {
  const NoCache no_cache;
  const TemporaryFolder folder;
  const auto file = folder / "wisdom";
  const EnvironmentScope wisdom("CONVOLUME_WISDOM", file.string());
  const fft::Problem problem{.kind = fft::Kind::r2c, .extent = {12, 12, 12}};
  const auto first = fft::Plan::make(problem, {.backend = fft::Backend::measured}).backend();
  CHECK((first == fft::Backend::native || first == fft::Backend::fftw));
  REQUIRE(std::filesystem::exists(file));
  const auto bytes = std::filesystem::file_size(file);
  CHECK(bytes > std::string("convolume wisdom 1\n").size());
  CHECK(fft::Plan::make(problem, {.backend = fft::Backend::measured}).backend() == first);
  CHECK(std::filesystem::file_size(file) == bytes);
}

TEST_CASE("a plan says who computes") {
  const NoCache no_cache;
  for (const auto backend : backends)
    CHECK(fft::Plan::make({.extent = {3, 4, 5}}, {.backend = backend}).backend() == backend);
  CHECK(fft::Plan::make({.extent = {3, 4, 5}}).backend() == fft::Backend::native);
  CHECK_THAT(fft::backend_versions(), Catch::Contains("fftw"));
}

TEST_CASE("the plan cache is bounded, forgets the oldest and can be switched off") {
  fft::set_plan_cache_capacity(0);
  CHECK(fft::plan_cache_size() == 0);
  static_cast<void>(fft::Plan::make({.extent = {1, 1, 20}}));
  CHECK(fft::plan_cache_size() == 0);
  fft::set_plan_cache_capacity(2);
  for (index_t n = 20; n < 25; ++n) static_cast<void>(fft::Plan::make({.extent = {1, 1, n}}));
  CHECK(fft::plan_cache_size() == 2);
  static_cast<void>(fft::Plan::make({.extent = {1, 1, 24}}));
  CHECK(fft::plan_cache_size() == 2);
  fft::set_plan_cache_capacity(10);
  // Every field makes a different cache key.
  static_cast<void>(fft::Plan::make({.extent = {1, 1, 24}, .unaligned = true}));
  static_cast<void>(fft::Plan::make({.extent = {1, 1, 24}}, {.backend = fft::Backend::fftw}));
  static_cast<void>(fft::Plan::make({.extent = {1, 1, 24}, .support = {0, 0, 3}}));
  CHECK(fft::plan_cache_size() == 5);
  fft::set_plan_cache_capacity(1);
  CHECK(fft::plan_cache_size() == 1);
  fft::set_plan_cache_capacity(256);
}

TEST_CASE("a cached plan is not handed out for another instruction set") {
  const fft::Problem problem{.kind = fft::Kind::r2c, .extent = {5, 6, 34}, .batch = 3};
  const auto sample = make_sample<float>(problem, Data::normal, 9);
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    CAPTURE(target);
    set_simd_target(target);
    fft::set_plan_cache_capacity(0);
    const auto fresh = run(fft::Plan::make(problem), sample.in).out;
    const auto text = fft::Plan::make(problem).describe();
    fft::set_plan_cache_capacity(256);
    for (const auto& other : available_simd_targets()) {
      set_simd_target(other);
      static_cast<void>(fft::Plan::make(problem));
    }
    set_simd_target(target);
    CHECK(fft::Plan::make(problem).describe() == text);
    CHECK(same_bits(run(fft::Plan::make(problem), sample.in).out, fresh));
  }
  set_simd_target(before);
}
