#include "scheduler/task_graph.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "convolume/scheduler.hpp"

using namespace convolume;

namespace {

std::vector<TaskId> ids(std::initializer_list<TaskId> list) { return list; }

/// Runs `threads` tasks that wait for each other until all of them run at once.
void meet(Scheduler& scheduler, int threads) {
  TaskGraph graph;
  std::atomic<int> arrived{0};
  for (int i = 0; i < threads; ++i) {
    graph.add({.name = "meet"}, [&] {
      arrived.fetch_add(1);
      while (arrived.load() < threads) std::this_thread::yield();
    });
  }
  graph.run(scheduler);
}

}  // namespace

TEST_CASE("a task sees the writes of all tasks before it, on any number of threads") {
  for (const int threads : {1, 2, 3, 8}) {
    Scheduler scheduler(threads);
    TaskGraph graph;
    constexpr int width = 16, depth = 20;
    std::vector<std::vector<long>> value(depth, std::vector<long>(width, 0));
    std::vector<TaskId> previous;
    for (int d = 0; d < depth; ++d) {
      std::vector<TaskId> layer;
      for (int w = 0; w < width; ++w) {
        layer.push_back(graph.add(
            {.name = "node"},
            [&value, d, w] {
              long sum = 1;
              if (d > 0) {
                for (const long v : value[static_cast<std::size_t>(d - 1)]) sum += v % 1000;
              }
              value[static_cast<std::size_t>(d)][static_cast<std::size_t>(w)] = sum;
            },
            previous));
      }
      previous = layer;
    }
    for (int repeat = 0; repeat < 5; ++repeat) {
      for (auto& row : value) std::fill(row.begin(), row.end(), -7);
      CHECK(graph.run(scheduler) == RunResult::completed);
      CHECK(value[1][3] == 17);
      CHECK(value[2][0] == 1 + 16 * 17);
    }
  }
}

TEST_CASE("a scheduler of N threads runs N workers, more than there are processors included") {
  for (const int threads : {1, 2, 3, 8}) {
    Scheduler scheduler(threads);
    meet(scheduler, threads);
    CHECK(scheduler.distinct_workers() == threads);
  }
  CHECK_THROWS_AS(Scheduler(0), InvalidArgument);
}

TEST_CASE("the costliest path runs first and updates run last where both are ready") {
  Scheduler scheduler = Scheduler::serial();
  TaskGraph graph;
  std::string order;
  graph.add({.name = "u", .cost = 100, .task_class = TaskClass::update}, [&] { order += 'u'; });
  graph.add({.name = "short"}, [&] { order += 's'; });
  const TaskId head = graph.add({.name = "head"}, [&] { order += 'h'; });
  graph.add(
      {.name = "tail", .cost = 5}, [&] { order += 't'; }, ids({head}));
  graph.run(scheduler);
  CHECK(order == "htsu");
}

TEST_CASE("an update runs when the task that needs it would be next, before whatever is less urgent") {
  Scheduler scheduler = Scheduler::serial();
  TaskGraph graph;
  std::string order;
  const auto add = [&](char name, double cost, TaskClass task_class, std::vector<TaskId> after = {}) {
    return graph.add(
        {.name = "task", .cost = cost, .task_class = task_class}, [&order, name] { order += name; }, after);
  };
  for (int i = 0; i < 3; ++i) add('l', 2, TaskClass::normal);  // less urgent than the task that waits for the update
  const TaskId update = add('u', 100, TaskClass::update), second = add('v', 100, TaskClass::update, {update});
  const TaskId first = add('f', 3, TaskClass::normal);
  add('n', 5, TaskClass::normal, {first, second});
  add('w', 100, TaskClass::update);  // no task waits for it
  graph.run(scheduler);
  // u and v are as urgent as n, which waits for them. f is more urgent by its own cost.
  CHECK(order == "fuvnlllw");
}

TEST_CASE("what gives memory back runs first, and is never skipped") {
  Scheduler scheduler = Scheduler::serial();
  TaskGraph graph;
  std::string order;
  bool armed = false;
  const TaskId user = graph.add({.name = "user", .cost = 9}, [&] {
    order += 'u';
    if (armed) throw std::runtime_error("user");
  });
  graph.add({.name = "other", .cost = 5}, [&] { order += 'o'; });
  graph.add(
      {.name = "release", .task_class = TaskClass::release}, [&] { order += 'r'; }, ids({user}));
  graph.run(scheduler);
  CHECK(order == "uro");
  armed = true;
  order.clear();
  CHECK_THROWS_WITH(graph.run(scheduler), "user");
  CHECK(order == "ur");
}

TEST_CASE("an exception cancels what is left, spares updates, reaches the caller once and leaves the graph usable") {
  for (const int threads : {1, 3}) {
    Scheduler scheduler(threads);
    for (int thrower = 0; thrower < 12; ++thrower) {
      TaskGraph graph;
      std::atomic<int> normal{0}, updates{0};
      bool armed = true;
      std::vector<TaskId> before;
      for (int i = 0; i < 12; ++i) {
        const auto id = graph.add(
            {.name = "work"},
            [&, i] {
              if (armed && i == thrower) throw std::runtime_error("task " + std::to_string(i));
              ++normal;
            },
            before);
        graph.add(
            {.name = "update", .task_class = TaskClass::update}, [&] { ++updates; }, ids({id}));
        before = {id};
      }
      CHECK_THROWS_WITH(graph.run(scheduler), "task " + std::to_string(thrower));
      CHECK(normal == thrower);
      CHECK(updates == 12);
      armed = false;
      normal = updates = 0;
      CHECK(graph.run(scheduler) == RunResult::completed);
      CHECK(normal == 12);
      CHECK(updates == 12);
    }
  }
}

TEST_CASE("a stop request cancels between tasks and updates still run") {
  Scheduler scheduler(2);
  TaskGraph graph;
  std::stop_source stop;
  std::atomic<int> after_stop{0}, updates{0};
  const TaskId first = graph.add({.name = "first"}, [&] { stop.request_stop(); });
  const TaskId second = graph.add(
      {.name = "second"}, [&] { ++after_stop; }, ids({first}));
  graph.add(
      {.name = "update", .task_class = TaskClass::update}, [&] { ++updates; }, ids({second}));
  CHECK(graph.run(scheduler, stop.get_token()) == RunResult::cancelled);
  CHECK(after_stop == 0);
  CHECK(updates == 1);
}

TEST_CASE("graphs run from several threads and from inside a task without deadlock") {
  Scheduler scheduler(2);
  std::atomic<int> count{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      TaskGraph outer;
      for (int k = 0; k < 8; ++k) {
        outer.add({.name = "outer"}, [&] {
          TaskGraph inner;
          for (int j = 0; j < 4; ++j) inner.add({.name = "inner"}, [&] { ++count; });
          inner.run(scheduler);
        });
      }
      outer.run(scheduler);
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK(count == 4 * 8 * 4);
}

TEST_CASE("order is a question of paths") {
  TaskGraph graph;
  const auto nothing = [] {};
  const TaskId a = graph.add({.name = "a"}, nothing);
  const TaskId b = graph.add({.name = "b"}, nothing, ids({a}));
  const TaskId c = graph.add({.name = "c"}, nothing, ids({a}));
  const TaskId d = graph.add({.name = "d"}, nothing, ids({b}));
  CHECK(graph.ordered(a, d));
  CHECK_FALSE(graph.ordered(c, d));
  CHECK_FALSE(graph.ordered(d, a));
  CHECK_THROWS_WITH(graph.add({.name = "late"}, nothing, ids({17})), Catch::Contains("late") && Catch::Contains("17"));
}

TEST_CASE("descriptions of tasks are what was added") {
  TaskGraph graph;
  const TaskId a = graph.add({.name = "a", .cost = 3, .bytes = 40}, [] {});
  {
    const LayerScope layer(graph, "second");
    graph.add(
        {.name = "b", .task_class = TaskClass::update}, [] {}, ids({a, a}));
  }
  const std::vector<TaskDescription> tasks = graph.describe();
  REQUIRE(tasks.size() == 2);
  CHECK(tasks[0].options.name == "a");
  CHECK(tasks[0].options.cost == 3);
  CHECK(tasks[0].options.bytes == 40);
  CHECK(tasks[0].after.empty());
  CHECK(tasks[1].layer == "second");
  CHECK(tasks[1].options.task_class == TaskClass::update);
  CHECK(tasks[1].after == ids({a}));
}

TEST_CASE("tasks that wait for the same long list are woken together") {
  Scheduler scheduler(2);
  for (const int count : {15, 16}) {
    CAPTURE(count);
    TaskGraph graph;
    std::atomic<int> ended{0};
    std::vector<TaskId> all, consumers;
    for (int i = 0; i < count; ++i) all.push_back(graph.add({.name = "first"}, [&] { ++ended; }));
    std::vector<TaskId> others(all.rbegin(), all.rend());
    others.push_back(all.front());
    std::vector<int> found(5, -1);
    for (std::size_t i = 0; i < found.size(); ++i) {
      // Tasks between them, an order and duplicates make no difference.
      graph.add(
          {.name = "between"}, [] {}, ids({all.front()}));
      consumers.push_back(graph.add(
          {.name = "second"}, [&, i] { found[i] = ended; }, i % 2 == 0 ? all : others));
    }
    for (int run = 0; run < 100; ++run) {
      ended = 0;
      graph.run(scheduler);
      for (const int before : found) CHECK(before == count);
    }
    const std::size_t between = found.size(), long_lists = count < 16 ? 5 * 15 : 16 + 5;
    CHECK(graph.impl().successors.size() == between + long_lists);
    // Descriptions are what was added.
    CHECK(graph.describe().size() == all.size() + 2 * found.size());
    for (const TaskId id : consumers) CHECK(graph.describe()[static_cast<std::size_t>(id)].after == all);
  }
}

TEST_CASE("a joined list does not change the order of tasks") {
  // The same tasks with lists that differ by a task without work, so that nothing is joined.
  std::vector<std::string> orders;
  for (const bool same : {true, false}) {
    Scheduler scheduler = Scheduler::serial();
    TaskGraph graph;
    std::string order;
    std::vector<TaskId> lists[4], first;
    for (int i = 0; i < 20; ++i) {
      first.push_back(
          graph.add({.name = "first", .cost = 1.0 + i % 3}, [&order, i] { order += static_cast<char>('a' + i); }));
    }
    for (int i = 0; i < 4; ++i) {
      lists[i] = first;
      if (!same) lists[i].push_back(graph.add({.name = "unlike", .cost = 100}, [] {}));
    }
    for (int i = 0; i < 4; ++i) {
      graph.add(
          {.name = "second", .cost = 1.0 + i}, [&order, i] { order += static_cast<char>('0' + i); }, lists[i]);
    }
    graph.add({.name = "other", .cost = 2.5}, [&] { order += '.'; });
    graph.run(scheduler);
    orders.push_back(order);
  }
  CHECK(orders[0] == orders[1]);
}

TEST_CASE("tasks that free memory run before other work also if they wait for a long list") {
  Scheduler scheduler = Scheduler::serial();
  TaskGraph graph;
  std::string order;
  std::vector<TaskId> users;
  for (int i = 0; i < 20; ++i) users.push_back(graph.add({.name = "user", .cost = 10}, [&] { order += 'u'; }));
  graph.add({.name = "other", .cost = 5}, [&] { order += 'o'; });
  for (int i = 0; i < 3; ++i) {
    graph.add(
        {.name = "free", .cost = 0, .task_class = TaskClass::release}, [&] { order += 'f'; }, users);
  }
  graph.run(scheduler);
  CHECK(order == "uuuuuuuuuuuuuuuuuuuufffo");
}

TEST_CASE("a task that was just made ready waits for costlier ones") {
  Scheduler scheduler = Scheduler::serial();
  TaskGraph graph;
  std::string order;
  const TaskId first = graph.add({.name = "first", .cost = 10}, [&] { order += 'f'; });
  graph.add({.name = "costly", .cost = 5}, [&] { order += 'c'; });
  graph.add(
      {.name = "after"}, [&] { order += 'a'; }, ids({first}));
  graph.run(scheduler);
  CHECK(order == "fca");
}

TEST_CASE("of hundreds of tasks that one makes ready every one runs, the costliest first") {
  constexpr int width = 300;
  for (const int threads : {1, 3}) {
    Scheduler scheduler(threads);
    TaskGraph graph;
    std::vector<int> order(width);
    std::atomic<std::size_t> ran{0};
    const TaskId first = graph.add({.name = "first"}, [] {});
    for (int i = 0; i < width; ++i) {
      graph.add(
          {.name = "one of many", .cost = static_cast<double>((i * 7) % width)},
          [&, i] { order[ran++] = (i * 7) % width; }, ids({first}));
    }
    REQUIRE(graph.run(scheduler) == RunResult::completed);
    REQUIRE(ran == width);
    if (threads > 1) std::sort(order.begin(), order.end(), std::greater<>());  // a thread may start its task late
    for (int i = 0; i < width; ++i) REQUIRE(order[static_cast<std::size_t>(i)] == width - 1 - i);
  }
}

TEST_CASE("short runs that follow each other, on several schedulers and from several threads, run all tasks") {
  // Helpers stay for a while after a run and are invited by the next one, or leave while it begins.
  constexpr int callers = 3, runs = 400, tasks = 8;
  std::array<std::atomic<int>, callers> ran{};
  std::vector<std::thread> threads;
  for (std::size_t caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&, caller] {
      Scheduler two(2), three(3);
      TaskGraph graph;
      for (int i = 0; i < tasks; ++i) graph.add({.name = "count"}, [&, caller] { ran[caller].fetch_add(1); });
      for (int i = 0; i < runs; ++i) {
        graph.run(i % 3 == 0 ? three : two);
        if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : ran) CHECK(count == runs * tasks);
}

TEST_CASE("each worker begins with its own share of the most urgent tasks") {
  // Each group of tasks is equally urgent. The first task of each worker waits until both workers have one.
  const auto first_tasks = [](const std::vector<int>& groups) {
    Scheduler scheduler(2);
    TaskGraph graph;
    std::mutex mutex;
    std::vector<std::pair<std::thread::id, int>> began;
    std::atomic<int> workers{0};
    double cost = static_cast<double>(groups.size());
    int number = 0;
    for (const int count : groups) {
      for (int i = 0; i < count; ++i, ++number) {
        graph.add({.name = "task", .cost = cost}, [&, number] {
          {
            const std::lock_guard lock(mutex);
            if (began.size() == 2) return;
            began.emplace_back(std::this_thread::get_id(), number);
          }
          workers.fetch_add(1);
          while (workers.load() < 2) std::this_thread::yield();
        });
      }
      cost -= 1;
    }
    graph.run(scheduler);
    REQUIRE(began.size() == 2);
    const bool in_order = began[0].first == std::this_thread::get_id();
    return in_order ? std::pair(began[0].second, began[1].second) : std::pair(began[1].second, began[0].second);
  };
  CHECK(first_tasks({64}) == std::pair(0, 32));
  CHECK(first_tasks({5}) == std::pair(0, 2));
  CHECK(first_tasks({32, 100}) == std::pair(0, 16));  // never a less urgent task
  // Either worker takes the only urgent task. The other one begins with its own share of the others.
  const std::pair<int, int> first = first_tasks({1, 40});
  CHECK((first == std::pair(0, 21) || first == std::pair(1, 0)));
}

TEST_CASE("a helper that stays after a run takes part in the next one") {
  Scheduler scheduler(2);
  for (int i = 0; i < 20; ++i) meet(scheduler, 2);
  CHECK(scheduler.distinct_workers() == 2);
}

/// Returns 1 plus a small number, as SIMD arithmetic rounds it: it has a rounding of its own.
float slightly_more_than_one() {
  volatile float one = 1.0f, small = 1e-9f;
  return one + small;
}
/// Returns whether SIMD arithmetic obeys the rounding mode. Under Valgrind it does not.
bool rounds_upward() {
  std::fesetround(FE_UPWARD);
  const float sum = slightly_more_than_one();
  std::fesetround(FE_TONEAREST);
  return sum > 1.0f;
}
/// Returns whether exception flags stay set. Under Valgrind they do not.
bool keeps_flags() {
  std::feraiseexcept(FE_DIVBYZERO);
  const bool keeps = std::fetestexcept(FE_DIVBYZERO) != 0;
  std::feclearexcept(FE_ALL_EXCEPT);
  return keeps;
}

TEST_CASE("a run restores the caller's rounding if a task changes it") {
  const bool checks_sums = rounds_upward();
  Scheduler scheduler(1);
  for (const int rounding : {FE_TONEAREST, FE_UPWARD}) {
    TaskGraph graph;
    graph.add({.name = "round down"}, [] { std::fesetround(FE_DOWNWARD); });
    std::fesetround(rounding);
    graph.run(scheduler);
    const int after = std::fegetround();
    const float sum = slightly_more_than_one();
    std::fesetround(FE_TONEAREST);
    CHECK(after == rounding);
    if (checks_sums) CHECK((sum > 1.0f) == (rounding == FE_UPWARD));
  }
}

TEST_CASE("tasks round to nearest, and a run leaves the caller's rounding and exception flags as they were") {
  const bool checks_flags = keeps_flags();
  for (const int threads : {1, 2}) {
    Scheduler scheduler(threads);
    for (const int rounding : {FE_TONEAREST, FE_UPWARD}) {
      CAPTURE(threads, rounding);
      std::atomic<int> others{0};
      TaskGraph graph;
      for (int i = 0; i < 8; ++i) {
        graph.add({.name = "round"}, [&] {
          if (std::fegetround() != FE_TONEAREST) others.fetch_add(1);
          std::feraiseexcept(FE_OVERFLOW);
        });
      }
      std::fesetround(rounding);
      std::feclearexcept(FE_ALL_EXCEPT);
      std::feraiseexcept(FE_DIVBYZERO);
      graph.run(scheduler);
      const int after = std::fegetround(), flags = std::fetestexcept(FE_OVERFLOW | FE_DIVBYZERO);
      std::fesetround(FE_TONEAREST);
      std::feclearexcept(FE_ALL_EXCEPT);
      CHECK(others.load() == 0);
      CHECK(after == rounding);
      if (checks_flags) CHECK(flags == FE_DIVBYZERO);
    }
  }
}
