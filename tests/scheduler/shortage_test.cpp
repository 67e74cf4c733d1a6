// Tests a system that has neither memory nor threads left. It is a separate program, because it replaces operator new
// and pthread_create.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <new>
#include <thread>

#include "testing/allocation_count.hpp"
#include <catch2/catch.hpp>
#include <dlfcn.h>
#include <pthread.h>

#include "convolume/error.hpp"
#include "convolume/scheduler.hpp"

using namespace convolume;

namespace {

std::atomic<int> threads_left{INT_MAX}, threads_refused{0};

}  // namespace

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*start)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left.fetch_sub(1) > 0) return create(thread, attributes, start, argument);
  ++threads_refused;
  return EAGAIN;
}

namespace {

/// Builds a graph that is wide enough to need helpers, at the start and in the middle. Every task counts itself.
void build(TaskGraph& graph, std::atomic<int>& ran) {
  const auto body = [&ran] { ++ran; };
  TaskId last = graph.add({.name = "the first one, with a name that needs memory"}, body);
  for (int layer = 0; layer < 3; ++layer) {
    std::vector<TaskId> middle;
    for (int i = 0; i < 70; ++i) middle.push_back(graph.add({.name = "middle"}, body, std::vector{last}));
    last = graph.add({.name = "join", .task_class = TaskClass::update}, body, middle);
  }
}
constexpr int tasks = 1 + 3 * 71;

/// Calls `work` repeatedly, with another one of its allocations failing each time. Each call must throw bad_alloc or
/// must not notice the failure. Returns the number of allocations.
template <class Work, class Check>
int fail_every_allocation(const Work& work, const Check& check) {
  for (int nth = 1;; ++nth) {
    bool thrown = false;
    test::fail_allocation(nth);
    try {
      work();
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    const bool failed = test::allocation_failed();
    test::fail_allocation(0);
    REQUIRE((failed || !thrown));
    check();
    if (!failed) return nth - 1;
  }
}

/// Waits until the number of live blocks has fallen to `count`. Invitations that no helper has read yet hold a little
/// memory.
bool live_blocks_fall_to(std::int64_t count) {
  for (int i = 0; i < 1000 && test::live_blocks() > count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return test::live_blocks() <= count;
}

}  // namespace

TEST_CASE("where memory ends while a graph is built or run, nothing is lost and the next try succeeds") {
  test::heap_calls();
  std::atomic<int> ran{0};
  const auto whole = [&] {
    Scheduler scheduler(3);
    Trace trace;
    scheduler.record(&trace);
    TaskGraph graph;
    build(graph, ran);
    ran = 0;
    graph.run(scheduler);
    REQUIRE(ran == tasks);
    graph.run(scheduler);
  };
  whole();
  whole();
  const std::int64_t before = test::live_blocks();
  const int allocations = fail_every_allocation(whole, [] {});
  CHECK(allocations > 2 * tasks);
  CHECK(live_blocks_fall_to(before));
}

TEST_CASE("where memory ends while a scheduler tries its threads, it is an error and the next one can be made") {
  // Each scheduler has more threads than any scheduler before, because thread counts that succeeded are not tried
  // again.
  int threads = 8, refused = 0;
  const auto make = [&] { Scheduler scheduler(threads); };
  for (int nth = 1; nth < 100; ++nth, ++threads) {
    test::fail_allocation(nth);
    try {
      make();
    } catch (const std::bad_alloc&) {
      ++refused;
    }
    const bool failed = test::allocation_failed();
    test::fail_allocation(0);
    make();
    if (!failed) break;
  }
  CHECK(refused >= 8);
}

TEST_CASE("where memory ends in the first run of a graph no task has run, or all have") {
  test::heap_calls();
  Scheduler scheduler(3);
  std::atomic<int> ran{0};
  TaskGraph graph;
  build(graph, ran);
  int size = tasks;
  const int allocations = fail_every_allocation(
      [&] {
        ran = 0;
        graph.run(scheduler);
      },
      [&] {
        REQUIRE((ran == 0 || ran == size));
        ran = 0;
        REQUIRE(graph.run(scheduler) == RunResult::completed);
        REQUIRE(ran == size);
        // The graph grows, so that the next run allocates again.
        graph.add({.name = "one more"}, [&] { ++ran; });
        ++size;
      });
  CHECK(allocations > 5);
}

TEST_CASE("runs allocate nothing of ours after the first one") {
  Scheduler scheduler(3);
  std::atomic<int> ran{0};
  TaskGraph graph;
  build(graph, ran);
  // A worker's first run allocates.
  for (int i = 0; i < 200; ++i) graph.run(scheduler);
  const std::size_t before = test::heap_calls().ours;
  for (int i = 0; i < 200; ++i) graph.run(scheduler);
  CHECK(test::heap_calls().ours == before);
}

TEST_CASE("a scheduler of more threads than the system starts is refused, and one of fewer works") {
  for (const int allowed : {0, 1, 5}) {
    threads_left = allowed;
    CHECK_THROWS_WITH(Scheduler(400), Catch::Contains("400 threads requested") &&
                                          Catch::Contains("starts only " + std::to_string(allowed) + " besides") &&
                                          Catch::Contains("request fewer"));
    threads_left = INT_MAX;
  }
  Scheduler scheduler(2);
  std::atomic<int> ran{0};
  TaskGraph graph;
  build(graph, ran);
  CHECK(graph.run(scheduler) == RunResult::completed);
  CHECK(ran == tasks);
}

// This test has its own process, because TBB does not ask again for a thread that was refused.
TEST_CASE("where the system refuses the thread that a run asks for first, the caller does the work", "[.refused]") {
  Scheduler scheduler(2);
  threads_left = 0;
  std::atomic<int> ran{0};
  TaskGraph graph;
  build(graph, ran);
  for (int run = 1; run <= 5; ++run) {
    CHECK(graph.run(scheduler) == RunResult::completed);
    CHECK(ran == run * tasks);
  }
  CHECK(threads_refused > 0);
  threads_left = INT_MAX;
  CHECK(graph.run(scheduler) == RunResult::completed);
}
