// Measures the cost of the scheduler: graphs of empty tasks, alone or side by side with oneTBB.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "bench/common/support.hpp"
#include "bench/scheduler/order_contest.hpp"
#include "bench/scheduler/scheduler_side_by_side.hpp"
#include "bench/scheduler/task_runners.hpp"
#include "convolume/cpu.hpp"
#include "convolume/scheduler.hpp"

namespace convolume::bench {
namespace {

constexpr const char* description =
    "Graphs of empty tasks: a chain, fans (one task, many after it, one after these), random layers, and the\n"
    "graph of a training iteration of every net of --net, with empty tasks.\n\n"
    "Without --side-by-side each benchmark runs a graph on this library's scheduler alone. ns/task is wall-clock\n"
    "time x threads / tasks. second_worker is the time from the begin of a run until the second worker has its\n"
    "first task, after a rest.\n\n"
    "With --side-by-side, or any option that only it has, the same graph runs on our scheduler, on a\n"
    "tbb::flow::graph of continue_nodes, on a tbb::task_group, whose tasks count predecessors and run the first\n"
    "task that they make ready themselves, and on threads that are made and joined for each level of the graph\n"
    "(join_levels; tasks of a level do not depend on each other). All are built once and run many times, in turn, in "
    "an order that\n"
    "rotates. Medians and quartiles over the rounds are printed. Ratios compare times of the same round.\n\n"
    "With --orders the tasks of a training iteration of each net do their work, and run in several orders: FIFO,\n"
    "LIFO, by priority (the costliest path to the end) with all updates first, last, or forced by the task that\n"
    "needs them, the latter also with release tasks last instead of first, and with a barrier after each layer.\n"
    "TaskGraph uses priority with forced updates. Each order runs once untimed and once timed, in turn. Peaks are\n"
    "the largest bytes of tensors, spectra and scratch of a net that ran in this order only. Speed-ups are\n"
    "simulated by list scheduling in the same order, with the task times of the measured threads.\n"
    "--scratch-budget adds TaskGraph with a scratch budget.";

void measure(benchmark::State& state, const TaskShape& shape, int threads) {
  const auto runner = runner_kinds().front().make(
      shape, [](TaskId) {}, threads);
  runner->run();
  const Stopwatch watch;
  for (auto _ : state) runner->run();
  state.counters["ns/task"] = 1e9 * watch.seconds() * threads / static_cast<double>(shape.tasks.size()) /
                              static_cast<double>(state.iterations());
}

/// Measures when the second worker gets its first task. There are two tasks, each longer than a helper needs to come;
/// the later begin counts. The caller computes for a while after the rest, as a real program would before it runs a
/// graph.
void measure_second_worker(benchmark::State& state) {
  Scheduler scheduler(2);
  TaskGraph graph;
  std::array<double, 2> begin{};
  Stopwatch watch;
  const auto work = [](double seconds) {
    for (const Stopwatch busy; busy.seconds() < seconds;) {
    }
  };
  for (double& mine : begin) {
    graph.add({.name = "long"}, [&] {
      mine = watch.seconds();
      work(5e-3);
    });
  }
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(state.range(0)));
    work(1e-3);
    watch = {};
    graph.run(scheduler);
    state.SetIterationTime(std::max(begin[0], begin[1]));
  }
}

void add_second_worker() {
  if (available_cpus() < 2) return;
  benchmark::RegisterBenchmark("second_worker/rest_ms", measure_second_worker)
      ->Arg(0)
      ->Arg(20)
      ->Iterations(21)
      ->Unit(benchmark::kMicrosecond)
      ->UseManualTime();
}

void add(const SchedulerContestOptions& options) {
  for (const TaskShape& shape : shapes(options)) {
    for (const int threads : options.threads) {
      benchmark::RegisterBenchmark(fmt::format("{}/threads:{}", shape.name, threads).c_str(),
                                   [shape, threads](benchmark::State& state) {
                                     try {
                                       measure(state, shape, threads);
                                     } catch (const std::exception& error) {
                                       fail(state, error.what());
                                     }
                                   })
          ->Unit(benchmark::kMicrosecond)
          ->MeasureProcessCPUTime()
          ->UseRealTime();
    }
  }
}

OrderContestOptions orders_of(const SchedulerContestOptions& o, const std::string& engine, bool low_error,
                              std::vector<double> scratch_mib) {
  return {.nets = o.nets,
          .overrides = o.overrides,
          .engine = engine,
          .low_error = low_error,
          .threads = o.threads,
          .scratch_mib = std::move(scratch_mib),
          .rounds = o.rounds,
          .min_seconds = o.min_seconds,
          .json = o.json};
}

int run_scheduler(int argc, char** argv) {
  SchedulerContestOptions options;
  std::string engine = "automatic";
  std::vector<double> scratch_mib;
  bool low_error = false, side_by_side = false, orders = false;
  CLI::App app(description, "bench_scheduler");
  app.add_option("--net", options.nets, "Net descriptions (TOML)")->check(CLI::ExistingFile)->option_text("FILE ...");
  app.add_option("--set", options.overrides, "table.key=value replaces a value of each description; may be repeated")
      ->option_text("KEY=VALUE ...");
  app.add_option("--threads", options.threads, "Numbers of threads, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->option_text("NUMBERS [1,2]");
  app.add_flag("--side-by-side", side_by_side, "Compare with oneTBB, in turn");
  app.add_flag("--orders", orders, "Compare orders in which the tasks of nets run, in turn");
  app.add_option("--engine", engine, "With --orders: automatic, fft_tiled, fft_volume, toom_cook, direct or reference")
      ->check(CLI::IsMember({"automatic", "fft_tiled", "fft_volume", "toom_cook", "direct", "reference"}))
      ->option_text("NAME [automatic]");
  app.add_flag("--low-error", low_error, "With --orders: leave out engines with a larger error (toom_cook)");
  app.add_option("--scratch-budget", scratch_mib, "With --orders: scratch budgets in MiB, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(0.001, 1048576.0))
      ->option_text("NUMBERS");
  app.add_option("--rounds", options.rounds, "Least number of rounds")
      ->check(CLI::Range(1, 100000))
      ->option_text("NUMBER [21]");
  app.add_option("--min-seconds", options.min_seconds, "Least total time of all rounds of a graph")
      ->check(CLI::Range(0.0, 86400.0))
      ->option_text("NUMBER [0.5]");
  app.add_option("--json", options.json, "File for the results")->option_text("FILE");
  app.final_callback([&] {
    for (const char* flag : {"--rounds", "--min-seconds", "--json"}) {
      side_by_side = side_by_side || app.count(flag) > 0;
    }
    if (orders && options.nets.empty()) throw CLI::ValidationError("--orders", "name nets with --net");
    for (const char* flag : {"--engine", "--low-error", "--scratch-budget"}) {
      if (!orders && app.count(flag) > 0)
        throw CLI::ValidationError(flag, "it needs --orders; add --orders or leave it out");
    }
    if (orders && app.count("--side-by-side") > 0)
      throw CLI::ValidationError("--orders", "it excludes --side-by-side; leave one of them out");
    if (options.threads.empty()) options.threads = orders ? std::vector{2} : std::vector{1, 2};
  });
  return run(
      app, argc, argv,
      [&] {
        add(options);
        add_second_worker();
      },
      [&]() -> Mode {
        if (orders) return [&] { return order_contest(orders_of(options, engine, low_error, scratch_mib)); };
        if (!side_by_side) return {};
        return [&] { return scheduler_side_by_side(options); };
      });
}

}  // namespace
}  // namespace convolume::bench

int main(int argc, char** argv) { return convolume::bench::run_scheduler(argc, argv); }
