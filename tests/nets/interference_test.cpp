// Disturbs the tasks of a training iteration one by one: exceptions and stop requests at every task, delays at random.
#include <chrono>
#include <stdexcept>
#include <thread>

#include "testing/sanitizers.hpp"
#include "testing/training_session.hpp"
#include <catch2/catch.hpp>

#include "core/random.hpp"
#include "scheduler/task_graph.hpp"

using namespace convolume;
using test::Session;

namespace {

/// Replaces every task's body by around(task, body).
template <class Around>
void wrap_bodies(const TaskGraph& graph, const Around& around) {
  auto& bodies = graph.impl().bodies;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    bodies[i] = [around, i, body = std::move(bodies[i])] { around(i, body); };
  }
}

/// The task at which a run is disturbed, and the kind of the disturbance.
struct Disturbance {
  enum class Kind { none, throw_before, throw_behind, stop } kind = Kind::none;
  std::size_t task = 0;
  std::stop_source stop{};

  void around(std::size_t now, const std::function<void()>& body) {
    const bool here = now == task;
    if (here && kind == Kind::throw_before) throw std::runtime_error("disturbed");
    if (here && kind == Kind::stop) stop.request_stop();
    body();
    if (here && kind == Kind::throw_behind) throw std::runtime_error("disturbed");
  }
};

/// Runs one iteration that may fail.
void disturbed_step(Session& session, Disturbance& disturbance) {
  if (disturbance.kind == Disturbance::Kind::stop) {
    session.trainer.step(disturbance.stop.get_token());  // completes if the request came from one of the last tasks
  } else {
    REQUIRE_THROWS_WITH(session.trainer.step(), "disturbed");
  }
}

/// Disturbs every `every`-th task in turn. The failed iteration must leave the weights of all iterations before it, and
/// training must continue as if nothing had happened.
void disturb_everywhere(const nets::NetworkOptions& network, int threads, std::size_t every) {
  const nets::Dataset data = test::small_data();
  Session victim(data, threads, network), reference(data, 1, network);
  Disturbance disturbance;
  wrap_bodies(victim.trainer.graph(),
              [&](std::size_t i, const std::function<void()>& body) { disturbance.around(i, body); });
  const auto tasks = victim.trainer.graph().describe();
  victim.trainer.step();  // so that every later iteration begins with an update
  reference.steps(1);
  std::size_t failed = 0;
  for (std::size_t i = 0; i < tasks.size(); i += every) {
    for (const auto kind :
         {Disturbance::Kind::throw_before, Disturbance::Kind::throw_behind, Disturbance::Kind::stop}) {
      // Updates never throw.
      if (kind != Disturbance::Kind::stop && tasks[i].options.task_class != TaskClass::normal) continue;
      CAPTURE(tasks[i].options.name, tasks[i].layer, static_cast<int>(kind));
      disturbance.kind = kind;
      disturbance.task = i;
      disturbance.stop = std::stop_source();
      const std::int64_t before = victim.trainer.iteration();
      disturbed_step(victim, disturbance);
      disturbance.kind = Disturbance::Kind::none;
      if (victim.trainer.iteration() == before) {
        ++failed;
      } else {
        reference.steps(1);
      }
      victim.trainer.flush();
      REQUIRE(victim.trainer.updates() == victim.trainer.iteration());
      REQUIRE(victim.trainer.iteration() == reference.trainer.iteration());
      REQUIRE(victim.weights() == reference.weights());
      REQUIRE(victim.trainer.step());
      reference.steps(1);
    }
  }
  victim.trainer.flush();
  CHECK(victim.weights() == reference.weights());
  CHECK(failed > tasks.size() / every);
}

/// The losses of a run and its final weights.
struct Course {
  std::vector<double> losses;
  std::vector<float> weights;
  friend bool operator==(const Course&, const Course&) = default;
};

Course run_course(Session& session, int iterations) {
  Course course;
  for (int i = 0; i < iterations; ++i) course.losses.push_back(session.trainer.step().value());
  session.trainer.flush();
  course.weights = session.weights();
  return course;
}

/// Delays about every fourth task by up to a tenth of a millisecond. Another seed delays other tasks.
void delay_tasks(const TaskGraph& graph, std::uint64_t seed) {
  auto calls = std::make_shared<std::atomic<std::uint64_t>>(0);
  wrap_bodies(graph, [calls, seed](std::size_t, const std::function<void()>& body) {
    const RandomKey key{.seed = seed};
    const std::uint64_t call = (*calls)++;
    if (uniform_below(key, 2 * call, 4) == 0) {
      const auto end =
          std::chrono::steady_clock::now() + std::chrono::microseconds(uniform_below(key, 2 * call + 1, 100));
      while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
    }
    body();
  });
}

void run_with_delays(int repeats, const std::vector<int>& thread_counts) {
  constexpr int iterations = 20;
  const nets::Dataset data = test::small_data();
  for (const Engine engine : {Engine::automatic, Engine::fft_volume}) {
    Session quiet(data, 1, {.engine = engine});
    const Course expected = run_course(quiet, iterations);
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (const int threads : thread_counts) {
        // In every other repeat, tasks also wait for memory.
        const std::size_t budget = repeat % 2 == 0 ? 0 : 40000;
        CAPTURE(name_of(engine), repeat, threads, budget);
        Session delayed(data, threads, {.engine = engine}, {.scratch_budget = budget});
        delay_tasks(delayed.trainer.graph(), static_cast<std::uint64_t>(repeat));
        test::meet(delayed.scheduler);
        REQUIRE(run_course(delayed, iterations) == expected);
        REQUIRE(delayed.scheduler.distinct_workers() == threads);
      }
    }
  }
}

}  // namespace

TEST_CASE("an exception or a stop request at any task of an iteration leaves weights of whole iterations") {
  const std::size_t every = test::sanitized ? 7 : 2;
  disturb_everywhere({}, 2, every);
  disturb_everywhere({.engine = Engine::fft_volume}, 3, every);
}

TEST_CASE("an exception or a stop request at every task, for every engine, on 1 to 8 threads", "[.long]") {
  for (const Engine engine : {Engine::automatic, Engine::fft_volume, Engine::direct, Engine::reference}) {
    for (const int threads : {1, 2, 3, 8}) {
      CAPTURE(name_of(engine), threads);
      disturb_everywhere({.engine = engine}, threads, 1);
      disturb_everywhere({.engine = engine, .memory_budget = 1}, threads, 1);
    }
  }
}

TEST_CASE("20 iterations give the same bits on 1, 2, 3 and 8 threads, whatever delays tasks") {
  test::sanitized ? run_with_delays(1, {3}) : run_with_delays(2, {1, 2, 3, 8});
}

TEST_CASE("20 iterations give the same bits, 20 times", "[.long]") { run_with_delays(20, {1, 2, 3, 8}); }
