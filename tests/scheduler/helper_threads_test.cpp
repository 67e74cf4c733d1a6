// White-box test of the affinity masks of helper threads: which processors a helper may use while it sleeps.
#include "scheduler/helper_threads.hpp"

#include <chrono>
#include <filesystem>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <sched.h>
#include <unistd.h>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"
#include "convolume/scheduler.hpp"

using convolume::available_cpus;
using convolume::InvalidArgument;
using convolume::Scheduler;
using convolume::TaskGraph;
using convolume::scheduler::HelperThreads;

namespace {

cpu_set_t processors_of(pid_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  REQUIRE(sched_getaffinity(thread, sizeof set, &set) == 0);
  return set;
}

bool same(const cpu_set_t& a, const cpu_set_t& b) { return CPU_EQUAL(&a, &b); }

/// Pins the calling thread to the first processor that it may use.
class OnOneProcessor {
 public:
  OnOneProcessor() : before_(processors_of(0)) {
    while (!CPU_ISSET(static_cast<unsigned>(processor), &before_)) ++processor;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(processor), &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  }
  ~OnOneProcessor() { sched_setaffinity(0, sizeof before_, &before_); }
  OnOneProcessor(const OnOneProcessor&) = delete;
  OnOneProcessor& operator=(const OnOneProcessor&) = delete;

  int processor = 0;

 private:
  cpu_set_t before_;
};

/// A thread that comes and leaves as a helper on command.
class Helper {
 public:
  explicit Helper(HelperThreads& threads) : threads_(threads) {
    thread_ = std::thread([this] {
      number = gettid();
      threads_.came();
      for (;;) {
        told_.release();
        go_.acquire();
        if (end_) return;
        leaves_ ? threads_.left() : threads_.came();
      }
    });
    told_.acquire();
  }
  ~Helper() {
    end_ = true;
    go_.release();
    thread_.join();
  }
  void comes() { tell(false); }
  void leaves() { tell(true); }

  pid_t number = 0;

 private:
  void tell(bool leaves) {
    leaves_ = leaves;
    go_.release();
    told_.acquire();
  }

  HelperThreads& threads_;
  std::thread thread_;
  std::binary_semaphore go_{0}, told_{0};
  bool leaves_ = false, end_ = false;
};

HelperThreads& with_room(HelperThreads& threads) {
  threads.expect(1);
  return threads;
}

/// A helper, the processors that it may use, and a caller pinned to one processor.
struct CallerAndHelper {
  HelperThreads threads;
  Helper helper{with_room(threads)};
  cpu_set_t all = processors_of(helper.number);
  OnOneProcessor here;
};

}  // namespace

TEST_CASE("a helper that is away is kept off its caller's processor until it comes or is let go") {
  if (available_cpus() < 2) return;
  CallerAndHelper both;
  auto& [threads, helper, all, here] = both;
  cpu_set_t others = all;
  CPU_CLR(static_cast<unsigned>(here.processor), &others);
  const int owner = 0, stranger = 0;

  threads.keep_off_caller(&owner);
  CHECK(same(processors_of(helper.number), all));  // the helper is not away
  helper.leaves();
  threads.keep_off_caller(&owner);
  CHECK(same(processors_of(helper.number), others));
  // A second run, whose caller may be elsewhere, finds the processor removed already, and has nothing to restore.
  threads.keep_off_caller(&stranger);
  threads.let_go(&stranger);
  CHECK(same(processors_of(helper.number), others));

  SECTION("until it comes") {
    helper.comes();
    CHECK(same(processors_of(helper.number), all));
    threads.let_go(&owner);
  }
  SECTION("until it is let go") { threads.let_go(&owner); }
  CHECK(same(processors_of(helper.number), all));
}

TEST_CASE("a helper's processors that somebody else has chosen stay chosen") {
  if (available_cpus() < 2) return;
  CallerAndHelper both;
  auto& [threads, helper, all, here] = both;
  const cpu_set_t chosen = processors_of(0);  // only the caller's processor: the mask would become empty
  REQUIRE(sched_setaffinity(helper.number, sizeof chosen, &chosen) == 0);
  helper.leaves();
  threads.keep_off_caller(&here);
  CHECK(same(processors_of(helper.number), chosen));
  helper.comes();
  CHECK(same(processors_of(helper.number), chosen));
}

TEST_CASE("a helper restores its processors when somebody has set them back to processors that were removed") {
  if (available_cpus() < 2) return;
  CallerAndHelper both;
  auto& [threads, helper, all, here] = both;
  helper.leaves();
  threads.keep_off_caller(&here);
  const cpu_set_t saved = processors_of(helper.number);
  REQUIRE(!same(saved, all));
  threads.let_go(&here);
  REQUIRE(same(processors_of(helper.number), all));
  REQUIRE(sched_setaffinity(helper.number, sizeof saved, &saved) == 0);

  SECTION("when it comes") { helper.comes(); }
  SECTION("when it is let go the next time") {
    threads.keep_off_caller(&here);
    threads.let_go(&here);
  }
  CHECK(same(processors_of(helper.number), all));
}

TEST_CASE("processors that somebody chooses for a helper while it is kept off stay chosen") {
  if (available_cpus() < 2) return;
  CallerAndHelper both;
  auto& [threads, helper, all, here] = both;
  const cpu_set_t chosen = processors_of(0);
  helper.leaves();
  threads.keep_off_caller(&here);
  REQUIRE(sched_setaffinity(helper.number, sizeof chosen, &chosen) == 0);
  threads.let_go(&here);
  CHECK(same(processors_of(helper.number), chosen));
}

TEST_CASE("threads without room, and the caller itself, wake up anywhere") {
  if (available_cpus() < 2) return;
  HelperThreads threads;
  threads.expect(1);
  threads.came();
  threads.left();
  Helper helper(threads);
  helper.leaves();
  const cpu_set_t all = processors_of(0);
  threads.keep_off_caller(&threads);
  CHECK(same(processors_of(0), all));
  CHECK(same(processors_of(helper.number), all));
}

TEST_CASE("options of a scheduler are checked, and masks of helpers can be left alone") {
  CHECK_THROWS_WITH(Scheduler(2, {.linger_us = -1}), Catch::Contains("linger_us: -1"));
  CHECK_THROWS_AS(Scheduler(2, {.linger_us = 2'000'000}), InvalidArgument);
  if (available_cpus() < 2) return;
  const auto threads = [] {
    std::vector<pid_t> all;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      all.push_back(std::stoi(thread.path().filename()));
    }
    return all;
  };
  const auto width = [](const std::vector<pid_t>& all) {
    int sum = 0;
    for (const pid_t thread : all) {
      cpu_set_t set;
      CPU_ZERO(&set);
      if (sched_getaffinity(thread, sizeof set, &set) == 0) sum += CPU_COUNT(&set);
    }
    return sum;
  };
  // Returns how many of at most 200 runs changed masks. Each comes after a rest, so its helper sleeps. The caller looks
  // at the masks at once, before the helper is awake.
  const auto changes = [&](bool change_affinity, int enough) {
    Scheduler scheduler(2, {.change_affinity = change_affinity, .linger_us = 0});
    std::vector<pid_t> all;
    int inside = 0, count = 0;
    TaskGraph graph;
    graph.add({.name = "look", .cost = 10}, [&] { inside = width(all); });
    graph.add({.name = "sleep"}, [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    for (int i = 0; i < 200 && count < enough; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      all = threads();
      const int before = width(all);
      graph.run(scheduler);
      if (inside != before) ++count;
    }
    return count;
  };
  CHECK(changes(true, 1) == 1);
  CHECK(changes(false, 200) == 0);
}
