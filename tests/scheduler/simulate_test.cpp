#include <chrono>
#include <thread>

#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "convolume/scheduler.hpp"

using namespace convolume;

namespace {

TraceEvent event(TaskId task, int thread, double begin_ms, double ms, std::vector<TaskId> after = {}) {
  const auto begin = static_cast<std::int64_t>(1e6 * begin_ms);
  TraceEvent e{.name = "task", .layer = task % 2 == 0 ? "even" : "odd", .thread = thread};
  e.begin = begin;
  e.end = begin + static_cast<std::int64_t>(1e6 * ms);
  e.task = task;
  e.after = std::move(after);
  return e;
}

std::vector<TraceEvent> row(int count, double ms) {
  std::vector<TraceEvent> events;
  for (int i = 0; i < count; ++i) events.push_back(event(i, 0, i * ms, ms));
  return events;
}

}  // namespace

TEST_CASE("independent tasks take as long as the fullest core") {
  const auto events = row(9, 1);
  CHECK(simulate_seconds(events, 1) == Approx(9e-3));
  CHECK(simulate_seconds(events, 4) == Approx(3e-3));
  CHECK(simulate_seconds(events, 9) == Approx(1e-3));
  CHECK(simulate_seconds(events, 256) == Approx(1e-3));
}

TEST_CASE("a chain gains nothing from cores") {
  std::vector<TraceEvent> chain{event(0, 0, 0, 1), event(1, 1, 1, 2, {0}), event(2, 0, 3, 3, {1})};
  for (const int cores : {1, 2, 64}) CHECK(simulate_seconds(chain, cores) == Approx(6e-3));
}

TEST_CASE("the longest path goes first, and updates go last") {
  // On two cores: 4 beside 1 + 3. In the order of task numbers it would be 1 beside 3, and then 4 more.
  std::vector<TraceEvent> events{event(0, 0, 0, 1), event(1, 0, 1, 3), event(2, 0, 4, 4)};
  CHECK(simulate_seconds(events, 2) == Approx(4e-3));
  events[2].task_class = TaskClass::update;
  CHECK(simulate_seconds(events, 2) == Approx(5e-3));
}

TEST_CASE("an update that holds up the longest path is not left to the end") {
  // The update (1) and the task that needs it (4) run on one core, while the other core runs the three tasks of 1.
  std::vector<TraceEvent> events{event(0, 0, 0, 1), event(1, 0, 1, 1), event(2, 0, 2, 1), event(3, 0, 3, 1),
                                 event(4, 0, 4, 4, {3})};
  events[3].task_class = TaskClass::update;
  CHECK(simulate_seconds(events, 2) == Approx(5e-3));
}

TEST_CASE("runs follow each other, and tasks that were skipped hold nobody up") {
  auto events = row(4, 1);
  auto again = row(4, 2);
  for (auto& e : again) {
    e.run = 1;
    e.after = {17};
    events.push_back(e);
  }
  CHECK(simulate_seconds(events, 4) == Approx(3e-3));
  CHECK_THROWS_AS(simulate_seconds(events, 0), InvalidArgument);
  CHECK(simulate_seconds({}, 3) == 0);
}

TEST_CASE("a summary tells busy from idle and names the layers of the critical path") {
  const std::vector<TraceEvent> events{event(0, 0, 0, 4), event(1, 1, 0, 1), event(2, 0, 4.001, 5.999, {0, 1})};
  const TraceSummary summary = summarize(events);
  CHECK(summary.seconds == Approx(10e-3));
  REQUIRE(summary.threads.size() == 2);
  CHECK(summary.threads[0].busy == Approx(9.999e-3));
  CHECK(summary.threads[0].between == Approx(1e-6));
  CHECK(summary.threads[0].idle == Approx(0).margin(1e-9));
  CHECK(summary.threads[1].idle == Approx(9e-3));
  REQUIRE(summary.runs.size() == 1);
  CHECK(summary.runs[0].seconds == Approx(9.999e-3));
  REQUIRE(summary.runs[0].layers.size() == 1);
  CHECK(summary.runs[0].layers[0].first == "even");
  CHECK_THAT(to_string(summary), Catch::Contains("critical path 10.00 ms: even 10.00"));
  CHECK(summarize({}).threads.empty());
}

TEST_CASE("a trace of a real run knows its tasks' order and class, run by run") {
  Scheduler scheduler(2);
  TaskGraph graph;
  const auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  const TaskId first = graph.add({.name = "first"}, nap);
  const TaskId left = graph.add({.name = "left"}, nap, std::vector{first});
  const TaskId right = graph.add({.name = "right"}, nap, std::vector{first});
  graph.add({.name = "last", .task_class = TaskClass::update}, nap, std::vector{left, right});
  Trace trace;
  scheduler.record(&trace);
  for (int i = 0; i < 3; ++i) graph.run(scheduler);
  scheduler.record(nullptr);
  const auto events = trace.events();
  REQUIRE(events.size() == 12);
  for (std::size_t i = 0; i < events.size(); ++i) CHECK(events[i].run == static_cast<int>(i / 4));
  CHECK(events[3].task_class == TaskClass::update);
  CHECK(events[3].after == std::vector{left, right});
  // At most two of the four naps can run at once.
  CHECK(simulate_seconds(events, 1) >= 12e-3);
  CHECK(simulate_seconds(events, 2) < 0.9 * simulate_seconds(events, 1));
  CHECK(simulate_seconds(events, 8) == simulate_seconds(events, 2));
}
