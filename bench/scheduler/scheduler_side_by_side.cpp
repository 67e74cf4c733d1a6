#include "bench/scheduler/scheduler_side_by_side.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/common/progress_bar.hpp"
#include "bench/common/report.hpp"
#include "bench/scheduler/task_runners.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;

double seconds_of(TaskRunner& runner, int repetitions) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repetitions; ++i) runner.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / repetitions;
}

/// Returns how many runs take about five milliseconds together. First runs the graph about as often, to warm up caches
/// and threads.
int repetitions_for(TaskRunner& runner) {
  constexpr double sample_seconds = 5e-3;
  double seconds = 0;
  int runs = 0;
  for (; seconds < 2 * sample_seconds; ++runs) seconds += std::max(seconds_of(runner, 1), 1e-7);
  return std::max(1, runs / 2);
}

/// One graph on one number of threads; holds the seconds of a run as [runner][round].
class SchedulerContest {
 public:
  SchedulerContest(const TaskShape& shape, int threads, const SchedulerContestOptions& options, ProgressBar& bar,
                   const StopRequest& stop)
      : shape_(shape), threads_(threads), levels_(1 + std::ranges::max(shape.levels())) {
    std::vector<std::unique_ptr<TaskRunner>> runners;
    std::vector<int> repetitions;
    for (const RunnerKind& kind : runner_kinds()) {
      runners.push_back(kind.make(
          shape, [](TaskId) {}, threads));
      repetitions.push_back(repetitions_for(*runners.back()));
    }
    seconds_ = take_turns(
        runners.size(), {.rounds = options.rounds, .min_seconds = options.min_seconds},
        [&](std::size_t i) {
          runners[i]->run();
          return seconds_of(*runners[i], repetitions[i]);
        },
        [&](double share) {
          bar.show(share, shape.name);
          return !stop.pending();
        });
    bar.clear();
  }

  void print() const {
    fmt::print("{}, {} task{}, {} edges, {} thread{}, {} rounds\n", shape_.name, shape_.tasks.size(),
               shape_.tasks.size() == 1 ? "" : "s", shape_.edges(), threads_, threads_ == 1 ? "" : "s",
               seconds_[0].size());
    for (std::size_t i = 0; i < seconds_.size(); ++i) {
      fmt::print("  {:11} {:8.1f} ns per task x threads ({:.1f} .. {:.1f}), {:.2f} us per level",
                 runner_kinds()[i].name, nanoseconds(i, 0.5), nanoseconds(i, 0.25), nanoseconds(i, 0.75),
                 1e6 * quantile(seconds_[i], 0.5) / levels_);
      if (i > 0)
        fmt::print(", {:.2f} times convolume ({:.2f} .. {:.2f})", ratio(i, 0.5), ratio(i, 0.25), ratio(i, 0.75));
      fmt::print("\n");
    }
    std::fflush(stdout);
  }

  void add_to(Json& rows) const {
    for (std::size_t i = 0; i < seconds_.size(); ++i) {
      rows.push_back({{"graph", shape_.name},
                      {"tasks", shape_.tasks.size()},
                      {"edges", shape_.edges()},
                      {"threads", threads_},
                      {"rounds", seconds_[i].size()},
                      {"runner", runner_kinds()[i].name},
                      {"ns_per_task", nanoseconds(i, 0.5)},
                      {"ns_per_task_low", nanoseconds(i, 0.25)},
                      {"ns_per_task_high", nanoseconds(i, 0.75)},
                      {"levels", levels_},
                      {"us_per_level", 1e6 * quantile(seconds_[i], 0.5) / levels_},
                      {"ratio", ratio(i, 0.5)},
                      {"ratio_low", ratio(i, 0.25)},
                      {"ratio_high", ratio(i, 0.75)}});
    }
  }

 private:
  /// Returns nanoseconds per task, of all threads together.
  double nanoseconds(std::size_t runner, double q) const {
    return 1e9 * quantile(seconds_[runner], q) * threads_ / static_cast<double>(shape_.tasks.size());
  }
  /// Returns the ratio to our time in the same round.
  double ratio(std::size_t runner, double q) const { return quantile(quotients(seconds_[runner], seconds_[0]), q); }

  const TaskShape& shape_;
  int threads_, levels_;
  std::vector<std::vector<double>> seconds_;
};

}  // namespace

std::vector<TaskShape> shapes(const SchedulerContestOptions& options) {
  std::vector<TaskShape> all{chain(10000), fan(10000), fans(100, 100), fans(1000, 4), layered(100, 100, 3, 1)};
  for (const std::string& net : options.nets) all.push_back(training_iteration(net, options.overrides));
  return all;
}

int scheduler_side_by_side(const SchedulerContestOptions& options) {
  Json report{{"machine", describe_machine(DataType::f32)}, {"results", Json::array()}};
  const StopRequest stop;
  ReportFile file(options.json, report);
  ProgressBar bar;
  for (const TaskShape& shape : shapes(options)) {
    for (const int threads : options.threads) {
      if (stop.pending()) return interrupted_status;
      const SchedulerContest contest(shape, threads, options, bar, stop);
      contest.print();
      contest.add_to(report["results"]);
      file.write(report);
    }
  }
  return 0;
}

}  // namespace convolume::bench
