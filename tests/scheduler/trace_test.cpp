#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include <catch2/catch.hpp>

#include "convolume/scheduler.hpp"

using namespace convolume;

namespace {

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::set<std::string> names(const std::vector<TraceEvent>& events) {
  std::set<std::string> all;
  for (const TraceEvent& event : events) all.insert(event.name);
  return all;
}

/// Returns whether every event ends after it begins, within [first, last], and no thread does two things at once.
bool consistent(const std::vector<TraceEvent>& events, std::int64_t first, std::int64_t last) {
  std::map<int, std::int64_t> end_of_thread;
  for (const TraceEvent& event : events) {
    if (event.begin > event.end || event.begin < first || event.end > last) return false;
    const auto [entry, fresh] = end_of_thread.try_emplace(event.thread, event.end);
    if (!fresh && event.begin < entry->second) return false;
    entry->second = event.end;
  }
  return true;
}

/// Adds layers of tasks. Each task follows all tasks of the previous layer.
void add_layers(TaskGraph& graph, int layers, int width, const std::function<void()>& body) {
  std::vector<TaskId> previous;
  for (int layer = 0; layer < layers; ++layer) {
    const LayerScope scope(graph, "layer" + std::to_string(layer));
    std::vector<TaskId> tasks;
    for (int i = 0; i < width; ++i) {
      tasks.push_back(graph.add({.name = "task" + std::to_string(i), .bytes = 16.0 * i}, body, previous));
    }
    previous = tasks;
  }
}

}  // namespace

TEST_CASE("a trace holds every task once, with its layer, bytes, thread and time") {
  for (const int threads : {1, 2, 4}) {
    Scheduler scheduler(threads);
    TaskGraph graph;
    constexpr int layers = 12, width = 9;
    add_layers(graph, layers, width, [] {});
    Trace trace;
    scheduler.record(&trace);
    for (int repeat = 0; repeat < 3; ++repeat) {
      trace.clear();
      const std::int64_t first = now();
      graph.run(scheduler);
      const std::int64_t last = now();
      const auto events = trace.events();
      REQUIRE(events.size() == layers * width);
      CHECK(trace.lost() == 0);
      CHECK(consistent(events, first, last));
      std::map<std::string, double> bytes;
      for (const TraceEvent& event : events) {
        bytes[event.layer] += event.bytes;
        CHECK((event.thread >= 0 && event.thread < threads));
      }
      REQUIRE(bytes.size() == layers);
      for (int layer = 0; layer < layers; ++layer) CHECK(bytes["layer" + std::to_string(layer)] == 16.0 * 36);
      CHECK(std::is_sorted(events.begin(), events.end(),
                           [](const TraceEvent& a, const TraceEvent& b) { return a.begin < b.begin; }));
    }
  }
}

TEST_CASE("threads that work at once have numbers of their own in a trace") {
  Scheduler scheduler(3);
  Trace trace;
  scheduler.record(&trace);
  TaskGraph graph;
  std::atomic<int> arrived{0};
  for (int i = 0; i < 3; ++i) {
    graph.add({.name = "meet"}, [&] {
      ++arrived;
      while (arrived < 3) std::this_thread::yield();
    });
  }
  graph.run(scheduler);
  std::set<int> threads;
  for (const TraceEvent& event : trace.events()) threads.insert(event.thread);
  CHECK(threads == std::set<int>{0, 1, 2});
}

TEST_CASE("nothing is traced unless asked, and nothing any more afterwards") {
  Scheduler scheduler(2);
  Trace trace;
  TaskGraph graph;
  add_layers(graph, 2, 3, [] {});
  graph.run(scheduler);
  CHECK(trace.events().empty());
  scheduler.record(&trace);
  graph.run(scheduler);
  CHECK(trace.events().size() == 6);
  scheduler.record(nullptr);
  graph.run(scheduler);
  CHECK(trace.events().size() == 6);
  trace.clear();
  CHECK(trace.events().empty());
}

TEST_CASE("layers nest, and a graph that grows is traced whole") {
  Scheduler scheduler = Scheduler::serial();
  Trace trace;
  scheduler.record(&trace);
  TaskGraph graph;
  graph.add({.name = "before"}, [] {});
  {
    const LayerScope outer(graph, "outer");
    {
      const LayerScope inner(graph, "inner");
      graph.add({.name = "within"}, [] {});
    }
    graph.add({.name = "beside"}, [] {});
  }
  graph.run(scheduler);
  graph.add({.name = "after"}, [] {});
  trace.clear();
  graph.run(scheduler);
  std::map<std::string, std::string> layers;
  for (const TraceEvent& event : trace.events()) layers[event.name] = event.layer;
  CHECK(layers ==
        std::map<std::string, std::string>{{"before", ""}, {"within", "inner"}, {"beside", "outer"}, {"after", ""}});
}

TEST_CASE("a trace outlives graphs, shows the task that threw and leaves out those that were skipped") {
  for (const int threads : {1, 3}) {
    Scheduler scheduler(threads);
    Trace trace;
    scheduler.record(&trace);
    {
      TaskGraph graph;
      bool armed = true;
      const TaskId first = graph.add({.name = "first"}, [] {});
      const TaskId thrower = graph.add(
          {.name = "thrower"},
          [&] {
            if (armed) throw std::runtime_error("thrown");
          },
          std::vector{first});
      const TaskId skipped = graph.add(
          {.name = "skipped"}, [] {}, std::vector{thrower});
      graph.add(
          {.name = "update", .task_class = TaskClass::update}, [] {}, std::vector{skipped});
      CHECK_THROWS_WITH(graph.run(scheduler), "thrown");
      CHECK(names(trace.events()) == std::set<std::string>{"first", "thrower", "update"});
      armed = false;
      trace.clear();
      graph.run(scheduler);
    }
    CHECK(names(trace.events()) == std::set<std::string>{"first", "thrower", "skipped", "update"});
  }
}

TEST_CASE("graphs of several threads on one scheduler share a trace") {
  Scheduler scheduler(2);
  Trace trace;
  scheduler.record(&trace);
  const std::int64_t first = now();
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back([&] {
        TaskGraph graph;
        add_layers(graph, 4, 5, [] {});
        graph.run(scheduler);
      });
    }
    for (std::thread& caller : callers) caller.join();
  }
  CHECK(trace.events().size() == 3 * 4 * 4 * 5);
  CHECK(consistent(trace.events(), first, now()));
}

TEST_CASE("a Chrome trace names processes, escapes what JSON cannot hold and begins at zero") {
  const TraceEvent event{.name = "a \"quoted\"\n\\task",
                         .layer = "conv1",
                         .bytes = 4096,
                         .thread = 1,
                         .begin = 5'000'001'500,
                         .end = 5'000'004'000};
  const std::string json = chrome_trace({{"training", {event}}, {"nothing", {}}});
  CHECK_THAT(json, Catch::Contains(R"("name": "process_name", "ph": "M", "pid": 0, "args": {"name": "training"})"));
  CHECK_THAT(json, Catch::Contains(R"("name": "process_name", "ph": "M", "pid": 1, "args": {"name": "nothing"})"));
  CHECK_THAT(
      json,
      Catch::Contains(
          R"("name": "a \"quoted\"\u000a\\task", "cat": "conv1", "ph": "X", "pid": 0, )"
          R"("tid": 1, "ts": 0.000, "dur": 2.500, "args": {"layer": "conv1", "bytes": 4096, "run": 0, "task": 0, "class": "normal", "after": []})"));
  CHECK(std::count(json.begin(), json.end(), '{') == std::count(json.begin(), json.end(), '}'));
}
