// Tests admission by memory: the bytes that tasks hold together stay within the budget, and every run ends.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "testing/random_graph.hpp"
#include "testing/sanitizers.hpp"
#include <catch2/catch.hpp>

#include "core/random.hpp"
#include "scheduler/ready_tasks.hpp"

using namespace convolume;
using test::Watchdog;

namespace {

/// Sums the bytes that running tasks hold.
class Holdings {
 public:
  explicit Holdings(std::size_t budget) : budget_(budget) {}

  /// Holds `bytes` while `body` runs.
  template <class Body>
  void during(std::size_t bytes, const Body& body) {
    if (bytes > 0) take(bytes);
    body();
    if (bytes == 0) return;
    const std::lock_guard lock(mutex_);
    held_ -= bytes;
    --holders_;
  }
  /// Returns how often several tasks together held more than the budget.
  int violations() const { return violations_; }

 private:
  void take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    held_ += bytes;
    ++holders_;
    if (held_ > budget_ && holders_ > 1) ++violations_;
  }

  std::mutex mutex_;
  std::size_t budget_, held_ = 0;
  int holders_ = 0, violations_ = 0;
};

/// A random graph. Two thirds of its tasks hold memory, up to a little more than the budget; the others hold none.
class HoldingGraph {
 public:
  HoldingGraph(std::uint64_t seed, int tasks, std::size_t budget) : holdings_(budget) {
    const RandomKey key{.seed = seed};
    std::uint64_t draw = 0;
    for (int i = 0; i < tasks; ++i) {
      std::vector<TaskId> after;
      for (int p = std::max(0, i - 20); p < i; ++p) {
        if (uniform(key, draw++) < 0.08) after.push_back(p);
      }
      const bool holds = uniform(key, draw++) < 0.67;
      const auto bytes = holds ? static_cast<std::size_t>(1.2 * uniform(key, draw++) * static_cast<double>(budget)) : 0;
      const auto turns = uniform_below(key, draw++, 2000);
      graph_.add(
          {.name = "holder", .cost = uniform(key, draw++), .scratch_bytes = bytes},
          [this, bytes, turns, i] {
            holdings_.during(bytes, [&] {
              for (std::atomic<std::uint64_t> turn{0}; turn < turns;) ++turn;
            });
            ++ran_;
            if (i == thrower) throw std::runtime_error("thrown");
          },
          after);
    }
  }
  TaskGraph& graph() { return graph_; }
  const Holdings& holdings() const { return holdings_; }
  int take_ran() { return ran_.exchange(0); }

  int thrower = -1;

 private:
  TaskGraph graph_;
  Holdings holdings_;
  std::atomic<int> ran_{0};
};

}  // namespace

TEST_CASE("tasks together never hold more than the budget, and all of them run") {
  constexpr std::size_t budget = 1000;
  constexpr int tasks = 200;
  Watchdog watchdog;
  for (const int threads : {1, 2, 3, 8}) {
    Scheduler scheduler(threads, {.scratch_budget = budget});
    for (std::uint64_t seed = 0; seed < (test::sanitized ? 10 : 40); ++seed) {
      watchdog.report(seed, threads);
      HoldingGraph holding(seed, tasks, budget);
      for (int repeat = 0; repeat < 2; ++repeat) {
        REQUIRE(holding.graph().run(scheduler) == RunResult::completed);
        REQUIRE(holding.take_ran() == tasks);
      }
      REQUIRE(holding.holdings().violations() == 0);
    }
  }
}

TEST_CASE("tasks that fit beside each other, or have no budget, do not wait") {
  Watchdog watchdog;
  Scheduler unlimited(3), limited(3, {.scratch_budget = 100});
  for (const auto& [scheduler, scratch] :
       {std::pair{&unlimited, std::size_t{1} << 60}, std::pair{&limited, std::size_t{33}}}) {
    TaskGraph graph;
    std::atomic<int> inside{0};
    for (int i = 0; i < 3; ++i) {
      graph.add({.name = "meet", .scratch_bytes = scratch}, [&] {
        ++inside;
        while (inside < 3) std::this_thread::yield();
      });
    }
    CHECK(graph.run(*scheduler) == RunResult::completed);
  }
}

TEST_CASE("what holds nothing passes by those that wait for memory") {
  Watchdog watchdog;
  Scheduler scheduler(2, {.scratch_budget = 100});
  TaskGraph graph;
  std::atomic<int> passed{0};
  std::atomic<bool> first_runs{false};
  bool overtook = false;
  graph.add({.name = "first", .cost = 10, .scratch_bytes = 80}, [&] {
    first_runs = true;
    while (passed < 20) std::this_thread::yield();
    first_runs = false;
  });
  graph.add({.name = "second", .cost = 9, .scratch_bytes = 80}, [&] { overtook = first_runs; });
  for (int i = 0; i < 20; ++i) graph.add({.name = "free"}, [&] { ++passed; });
  CHECK(graph.run(scheduler) == RunResult::completed);
  CHECK_FALSE(overtook);
}

TEST_CASE("small tasks do not overtake a large one that waits for memory") {
  for (const int threads : {1, 3}) {
    Scheduler scheduler(threads, {.scratch_budget = 100});
    TaskGraph graph;
    std::mutex mutex;
    std::string order;
    const auto add = [&](char name, double cost, std::size_t bytes) {
      graph.add({.name = "task", .cost = cost, .scratch_bytes = bytes}, [&, name] {
        const std::lock_guard lock(mutex);
        order += name;
      });
    };
    add('a', 10, 60);
    add('b', 9, 100);
    for (int i = 0; i < 30; ++i) add('s', 1, 10);
    CHECK(graph.run(scheduler) == RunResult::completed);
    CHECK(order.substr(0, 2) == "ab");
    CHECK(order.size() == 32);
  }
}

TEST_CASE("a run that fails or is stopped gives its memory back") {
  constexpr std::size_t budget = 1000;
  constexpr int tasks = 60;
  Watchdog watchdog;
  for (const int threads : {1, 3}) {
    Scheduler scheduler(threads, {.scratch_budget = budget});
    HoldingGraph holding(7, tasks, budget);
    for (int i = 0; i < tasks; ++i) {
      watchdog.report(static_cast<std::uint64_t>(i), threads);
      holding.thrower = i;
      REQUIRE_THROWS_WITH(holding.graph().run(scheduler), "thrown");
      holding.thrower = -1;
      std::stop_source stop;
      stop.request_stop();
      REQUIRE(holding.graph().run(scheduler, stop.get_token()) == RunResult::cancelled);
      holding.take_ran();
      REQUIRE(holding.graph().run(scheduler) == RunResult::completed);
      REQUIRE(holding.take_ran() == tasks);
    }
    CHECK(holding.holdings().violations() == 0);
  }
}

TEST_CASE("a run inside a task that holds memory does not wait for it") {
  Watchdog watchdog;
  Scheduler scheduler(2, {.scratch_budget = 100});
  TaskGraph outer;
  std::atomic<int> inner_ran{0};
  for (int i = 0; i < 4; ++i) {
    outer.add({.name = "outer", .scratch_bytes = 100}, [&] {
      TaskGraph inner;
      for (int k = 0; k < 4; ++k) inner.add({.name = "inner", .scratch_bytes = 100}, [&] { ++inner_ran; });
      inner.run(scheduler);
    });
  }
  CHECK(outer.run(scheduler) == RunResult::completed);
  CHECK(inner_ran == 16);
}

TEST_CASE("a ready set finds the first element from any number on") {
  using scheduler::ReadySet;
  std::mt19937 random(1);
  for (const std::int32_t capacity : {1, 63, 64, 65, 4096, 4097, 300000}) {
    ReadySet set(static_cast<std::size_t>(capacity));
    std::set<std::int32_t> wanted;
    std::uniform_int_distribution<std::int32_t> any(0, capacity - 1);
    const auto lower = [&](std::int32_t from) {
      const auto found = wanted.lower_bound(from);
      return found == wanted.end() ? ReadySet::none : *found;
    };
    for (int i = 0; i < 2000; ++i) {
      const std::int32_t element = any(random);
      if (wanted.insert(element).second) {
        set.insert(element);
      } else {
        set.erase(element);
        wanted.erase(element);
      }
      const std::int32_t from = any(random);
      REQUIRE(set.first_from(from) == lower(from));
      REQUIRE(set.first_from(element) == lower(element));
      REQUIRE(set.first() == lower(0));
      if (i % 500 == 499) {  // few elements, far apart
        for (const std::int32_t left : wanted) set.erase(left);
        wanted.clear();
        REQUIRE(set.first_from(0) == ReadySet::none);
      }
    }
  }
}

TEST_CASE("the head of those that hold memory is admitted when it fits, or when nobody holds any") {
  using scheduler::ReadyTasks;
  ReadyTasks tasks(4, {50, 200, 0, 10}, 100);
  for (const std::int32_t rank : {0, 1, 3}) tasks.insert(rank);
  CHECK(tasks.first() == 0);
  tasks.erase(0);
  CHECK(tasks.first() == ReadyTasks::none);  // 200 is next, and 10 must wait behind it
  CHECK(tasks.size() == 0);
  tasks.insert(2);
  CHECK(tasks.first() == 2);
  CHECK(tasks.size() == 1);
  tasks.erase(2);
  tasks.ended(0);
  CHECK(tasks.first() == 1);
  tasks.erase(1);
  CHECK(tasks.first() == ReadyTasks::none);  // more than the budget is held
  tasks.ended(1);
  CHECK(tasks.first() == 3);
  CHECK(tasks.size() == 1);
  tasks.erase(3);
  tasks.ended(3);
  CHECK(tasks.size() == 0);
}
