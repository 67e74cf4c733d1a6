// Tests failures in runs: exceptions and stop requests at every task, runs inside runs, many callers.
#include <mutex>
#include <stdexcept>
#include <thread>

#include "testing/random_graph.hpp"
#include "testing/sanitizers.hpp"
#include <catch2/catch.hpp>

#include "convolume/error.hpp"

using namespace convolume;
using test::RandomGraph;
using test::Watchdog;

namespace {

/// Runs small graphs, so that runs begin and end often. The largest number of workers comes first; all of them exist
/// from then on.
void run_random_graphs(std::uint64_t first, std::uint64_t count, int most_tasks, double density) {
  Watchdog watchdog;
  for (const int threads : {16, 8, 5, 3, 2, 1}) {
    Scheduler scheduler(threads);
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
      watchdog.report(seed, threads);
      RandomGraph random(seed, most_tasks, density);
      REQUIRE(random.graph().run(scheduler) == RunResult::completed);
      REQUIRE(random.all_done());
      REQUIRE(random.violations() == 0);
    }
  }
}

/// Makes every task of a graph throw in turn, then request a stop in turn. After each failure the graph must complete a
/// run.
void fail_everywhere(Scheduler& scheduler, std::uint64_t seed, int most_tasks) {
  int victim = -1;
  std::stop_source stop;
  bool throws = true;
  RandomGraph random(seed, most_tasks, 0.15, [&](int i) {
    if (i != victim) return;
    if (throws) throw std::runtime_error("task " + std::to_string(i));
    stop.request_stop();
  });
  for (int i = 0; i < random.size(); ++i) {
    victim = i;
    throws = true;
    random.clear();
    REQUIRE_THROWS_WITH(random.graph().run(scheduler), "task " + std::to_string(i));
    REQUIRE(random.updates_done());

    throws = false;
    stop = std::stop_source();
    random.clear();
    const RunResult result = random.graph().run(scheduler, stop.get_token());
    REQUIRE(random.updates_done());
    REQUIRE((result == RunResult::completed) == random.all_done());

    victim = -1;
    random.clear();
    REQUIRE(random.graph().run(scheduler) == RunResult::completed);
    REQUIRE(random.all_done());
    REQUIRE(random.violations() == 0);
  }
}

/// Runs a graph in which every task runs a graph of the next level on the next scheduler.
void run_nested(const std::vector<Scheduler*>& schedulers, std::size_t level, int width, std::atomic<int>& leaves) {
  TaskGraph graph;
  for (int i = 0; i < width; ++i) {
    graph.add({.name = "level " + std::to_string(level)}, [&, level, width] {
      level + 1 < schedulers.size() ? run_nested(schedulers, level + 1, width, leaves) : void(++leaves);
    });
  }
  graph.run(*schedulers[level]);
}

}  // namespace

TEST_CASE("random graphs run every task once, after its predecessors") {
  run_random_graphs(0, test::sanitized ? 30 : 100, 60, 0.1);
  run_random_graphs(1000, test::sanitized ? 100 : 500, 8, 0.3);
}

TEST_CASE("a hundred thousand random graphs on 1 to 16 workers", "[.long]") {
  run_random_graphs(10000, 2000, 60, 0.1);
  run_random_graphs(20000, 15000, 8, 0.3);
}

TEST_CASE("an exception or a stop request at any task of random graphs ends the run, once, and spares updates") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 5}) {
    Scheduler scheduler(threads);
    for (std::uint64_t seed = 0; seed < (test::sanitized ? 5 : 20); ++seed) {
      watchdog.report(seed, threads);
      fail_everywhere(scheduler, seed, 30);
    }
  }
}

TEST_CASE("an exception or a stop request at any task of a thousand random graphs", "[.long]") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 5, 16}) {
    Scheduler scheduler(threads);
    for (std::uint64_t seed = 100; seed < 1100; ++seed) {
      watchdog.report(seed, threads);
      fail_everywhere(scheduler, seed, 40);
    }
  }
}

TEST_CASE("of many tasks that throw one exception reaches the caller, also from an update") {
  for (const int threads : {1, 4}) {
    Scheduler scheduler(threads);
    for (const TaskClass task_class : {TaskClass::normal, TaskClass::update}) {
      TaskGraph graph;
      std::atomic<int> ran{0};
      for (int i = 0; i < 40; ++i) {
        graph.add({.name = "thrower", .task_class = task_class}, [&] {
          ++ran;
          throw std::runtime_error("thrown");
        });
      }
      for (int repeat = 0; repeat < 3; ++repeat) {
        ran = 0;
        CHECK_THROWS_WITH(graph.run(scheduler), "thrown");
        // Tasks that other workers have begun may run beside the first one.
        CHECK(ran <= (task_class == TaskClass::update ? 40 : threads));
        if (task_class == TaskClass::update) CHECK(ran == 40);
      }
    }
  }
}

TEST_CASE("runs inside tasks, on the same scheduler, on others and back again, end") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 3}) {
    Scheduler a(threads), b(2), c(3);
    for (const std::vector<Scheduler*>& way :
         {std::vector{&a, &a, &a}, std::vector{&a, &b, &a}, std::vector{&a, &b, &c, &a, &b}, std::vector{&b, &b, &a}}) {
      std::atomic<int> leaves{0};
      watchdog.report(way.size(), threads);
      for (int repeat = 0; repeat < 5; ++repeat) run_nested(way, 0, 4, leaves);
      CHECK(leaves == 5 * (1 << 2 * way.size()));
    }
  }
}

TEST_CASE("many threads run graphs at once, also inside tasks of each other's schedulers") {
  Watchdog watchdog;
  Scheduler a(2), b(3);
  std::atomic<int> leaves{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 12; ++i) {
    callers.emplace_back([&, i] {
      const std::vector<Scheduler*> way = i % 2 == 0 ? std::vector{&a, &b, &a} : std::vector{&b, &a, &b};
      for (int repeat = 0; repeat < 10; ++repeat) {
        watchdog.report(static_cast<std::uint64_t>(i), 12);
        run_nested(way, 0, 3, leaves);
      }
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK(leaves == 12 * 10 * 27);
}

TEST_CASE("a task that holds a mutex may run a graph") {
  // While a worker waits for the inner graph, it must not take tasks of the outer graph, because it would lock the
  // mutex twice.
  Watchdog watchdog;
  Scheduler scheduler(3);
  for (int repeat = 0; repeat < 50; ++repeat) {
    watchdog.report(static_cast<std::uint64_t>(repeat), 3);
    std::mutex mutex;
    int inside = 0;
    TaskGraph outer;
    for (int i = 0; i < 8; ++i) {
      outer.add({.name = "outer"}, [&] {
        const std::lock_guard lock(mutex);
        TaskGraph inner;
        std::atomic<int> ran{0};
        for (int j = 0; j < 8; ++j) inner.add({.name = "inner"}, [&] { ++ran; });
        inner.run(scheduler);
        inside += ran;
      });
    }
    outer.run(scheduler);
    REQUIRE(inside == 64);
  }
}

TEST_CASE("a graph that runs already refuses to run") {
  Scheduler scheduler(2);
  TaskGraph graph;
  graph.add({.name = "again"}, [&] { graph.run(scheduler); });
  CHECK_THROWS_AS(graph.run(scheduler), InvalidArgument);
  CHECK_THROWS_WITH(graph.run(scheduler), Catch::Contains("while the graph is running"));
}

TEST_CASE("a graph runs on one scheduler after the other, grows in between, and outlives them") {
  TaskGraph graph;
  std::atomic<int> ran{0};
  for (int round = 0; round < 30; ++round) {
    Scheduler scheduler(1 + round % 4);
    for (int i = 0; i < 5; ++i) graph.add({.name = "more"}, [&] { ++ran; });
    ran = 0;
    CHECK(graph.run(scheduler) == RunResult::completed);
    CHECK(graph.run(scheduler) == RunResult::completed);
    CHECK(ran == 2 * 5 * (round + 1));
  }
}
