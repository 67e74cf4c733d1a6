#include "bench/conv/conv_speed_up.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/common/progress_bar.hpp"
#include "bench/common/report.hpp"
#include "bench/conv/conv_competitor.hpp"
#include "bench/conv/conv_field.hpp"
#include "bench/conv/conv_floor.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double wanted = 0.9;

/// Returns whether a plan's estimate is that of a direction alone. A plan of a gradient includes the forward direction.
bool is_modelled(Direction direction) { return direction == Direction::forward || direction == Direction::training; }

struct SpeedUpRow {
  std::string name;
  ConvProblem problem;
  Direction direction;
  std::string choice;
  double one = 0, all = 0;                 ///< median seconds on one thread and on all threads
  double speed_up = 0, low = 0, high = 0;  ///< median and quartiles over the rounds
  double model = 0;                        ///< the cost model's seconds on one thread; 0 for one gradient alone
  bool held_out = false;                   ///< belongs to the quarter of the problems that is held out from fitting
  double make = 0;                         ///< least seconds of three calls of ConvPlan::make for all directions
  double allowed = 0;                      ///< floor on one thread divided by the floor on all threads

  double share() const { return speed_up / allowed; }
};
using SpeedUpRows = std::vector<SpeedUpRow>;

double make_seconds(const ConvProblem& problem, const ConvOptions& options) {
  using Clock = std::chrono::steady_clock;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const auto begin = Clock::now();
    static_cast<void>(ConvPlan::make(problem, options));
    least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return least;
}

/// One problem, on one thread and on all threads.
class SpeedUpContest {
 public:
  SpeedUpContest(const ConvBenchOptions& options, const NamedProblem& named, Engine engine, Layout layout)
      : o_(options),
        name_(named.name),
        problem_(with_layout(named.problem, layout)),
        data_(named.problem),
        make_(make_seconds(problem_, options.conv(engine))) {
    data_.fill_normal();
    PlannedConvolution::Options planned{
        .conv = o_.conv(engine), .prepare_forward = !o_.cached_weights, .tune = o_.tune};
    for (const int threads : {1, o_.threads}) {
      planned.threads = threads;
      runs_.push_back(std::make_unique<PlannedConvolution>(problem_, data_, planned));
      // Both run the choice, measured or not, of the run on one thread.
      planned.choose = [first = runs_.front().get()](Direction direction) { return first->plan(direction).choice(); };
      planned.conv.engine = Engine::automatic;
      planned.tune = false;
    }
  }

  SpeedUpRow measure(Direction direction, const std::function<bool(double)>& go_on) {
    std::array<PassTimer, 2> timers;
    for (std::size_t i = 0; i < timers.size(); ++i) timers[i].seconds(*runs_[i], direction);
    const Protocol protocol{.rounds = o_.rounds, .min_seconds = o_.min_seconds, .max_seconds = o_.max_seconds};
    const auto seconds = take_turns(
        timers.size(), protocol, [&](std::size_t i) { return timers[i].seconds(*runs_[i], direction); }, go_on);
    const auto ratios = quotients(seconds[0], seconds[1]);
    const auto floor = [&](int threads) { return floor_seconds(problem_, direction, threads, o_.cached_weights); };
    return {.name = name_,
            .problem = problem_,
            .direction = direction,
            .choice = runs_[0]->plan(direction).choice(),
            .one = quantile(seconds[0], 0.5),
            .all = quantile(seconds[1], 0.5),
            .speed_up = quantile(ratios, 0.5),
            .low = quantile(ratios, 0.25),
            .high = quantile(ratios, 0.75),
            .model = is_modelled(direction) ? runs_[0]->plan(direction).seconds() : 0,
            .held_out = is_held_out(problem_),
            .make = make_,
            .allowed = floor(1) / floor(o_.threads)};
  }

 private:
  const ConvBenchOptions& o_;
  std::string name_;
  ConvProblem problem_;
  ConvData data_;
  double make_;
  std::vector<std::unique_ptr<PlannedConvolution>> runs_;
};

std::string summary(const SpeedUpRows& rows) {
  const auto good =
      std::count_if(rows.begin(), rows.end(), [](const SpeedUpRow& row) { return row.share() >= wanted; });
  return fmt::format("{} of {} reach {} of the speed-up that operations and bandwidth allow", good, rows.size(),
                     wanted);
}

/// Returns how far the cost model's seconds are from those of one thread: the geometric mean of the distance from one,
/// a factor of at least 1, and the range of the quotients. Returns nothing if no row has an estimate.
std::string model_summary(const SpeedUpRows& rows) {
  const auto part = [&](const char* name, bool all) {
    Mean distance;
    double least = 1, most = 1;
    for (const SpeedUpRow& row : rows) {
      if (row.model == 0 || (!all && !row.held_out)) continue;
      const double quotient = row.model / row.one;
      distance.add(std::max(quotient, 1 / quotient));
      least = std::min(least, quotient);
      most = std::max(most, quotient);
    }
    return distance.count() == 0 ? std::string()
                                 : fmt::format("; {} {}: {:.3f} ({:.2f} .. {:.2f})", distance.count(), name,
                                               *distance.value(), least, most);
  };
  const std::string all = part("rows", true);
  return all.empty() ? all : "cost model over one thread, mean distance (range)" + all + part("held out", false);
}

std::string make_summary(const SpeedUpRows& rows) {
  std::vector<double> seconds;
  for (const SpeedUpRow& row : rows) seconds.push_back(row.make);
  if (seconds.empty()) return {};
  return fmt::format("ConvPlan::make takes {} (median), {} (largest)", time_text(quantile(seconds, 0.5)),
                     time_text(quantile(seconds, 1)));
}

Json to_json(const ConvBenchOptions& options, const SpeedUpRows& rows) {
  Json report{{"machine", describe_machine(options.types.front())}, {"speed_ups", Json::array()}};
  for (const SpeedUpRow& row : rows) {
    report["speed_ups"].push_back({{"problem", to_string(row.problem)},
                                   {"name", row.name},
                                   {"dir", name_of(row.direction)},
                                   {"layout", name_of(layout_of(row.problem))},
                                   {"choice", row.choice},
                                   {"threads", options.threads},
                                   {"one_s", row.one},
                                   {"all_s", row.all},
                                   {"model_s", row.model},
                                   {"held_out", row.held_out},
                                   {"make_s", row.make},
                                   {"speed_up", row.speed_up},
                                   {"speed_up_low", row.low},
                                   {"speed_up_high", row.high},
                                   {"allowed", row.allowed},
                                   {"share", row.share()}});
  }
  report["summary"] = summary(rows);
  report["model"] = model_summary(rows);
  report["make"] = make_summary(rows);
  return report;
}

void print(const SpeedUpRow& row) {
  const std::string model = row.model > 0 ? fmt::format("{:.2f}", row.model / row.one) : "-";
  fmt::print("{:9} {:7} {:10} {:>11} {:>11} {:6.2f}  {:13} {:6.2f} {:6.2f} {:>6}{}\n", name_of(row.direction),
             name_of(layout_of(row.problem)), row.choice.substr(0, row.choice.find(' ')), time_text(row.one),
             time_text(row.all), row.speed_up, fmt::format("{:.2f} .. {:.2f}", row.low, row.high), row.allowed,
             row.share(), model, row.share() >= wanted ? "" : "  <--");
  std::fflush(stdout);
}

class SpeedUps {
 public:
  explicit SpeedUps(const ConvBenchOptions& options) : o_(options), file_(o_.json, to_json(o_, rows_)) {}

  int run() {
    fmt::print(
        "weights {}; allowed is the speed-up of the floor on {} threads; model is the cost model over one thread\n",
        o_.cached_weights ? "cached" : "fresh", o_.threads);
    fmt::print("{:9} {:7} {:10} {:>11} {:>11} {:>8}  {:11} {:>6} {:>6} {:>6}\n", "dir", "layout", "engine", "1 thread",
               fmt::format("{} threads", o_.threads), "speed-up", "quartiles", "allowed", "share", "model");
    for (; at_ < o_.problems.size() && !stop_.pending(); ++at_) {
      bar_.clear();
      fmt::print("{}\n", o_.problems[at_].name);
      for (const Engine engine : o_.engines) {
        for (const Layout layout : o_.layouts) measure(o_.problems[at_], engine, layout);
      }
      if (file_.due()) file_.write(to_json(o_, rows_));
    }
    bar_.clear();
    fmt::print("\n{}\n", summary(rows_));
    if (const std::string model = model_summary(rows_); !model.empty()) fmt::print("{}\n", model);
    fmt::print("{}\n", make_summary(rows_));
    file_.write(to_json(o_, rows_));
    return stop_.pending() ? interrupted_status : failed_ ? 1 : 0;
  }

 private:
  void measure(NamedProblem named, Engine engine, Layout layout) {
    named.problem.type = o_.types.front();
    if (stop_.pending() || layout_of(with_layout(named.problem, layout)) != layout) return;
    try {
      SpeedUpContest contest(o_, named, engine, layout);
      for (const Direction direction : o_.directions) {
        bar_.show(static_cast<double>(at_) / static_cast<double>(o_.problems.size()),
                  fmt::format("{} {}", named.name, name_of(direction)));
        rows_.push_back(contest.measure(direction, [&](double) { return !stop_.pending(); }));
        bar_.clear();
        print(rows_.back());
        if (stop_.pending()) return;
      }
    } catch (const std::exception& error) {
      failed_ = true;
      bar_.clear();
      fmt::print(stderr, "bench_conv: {}: {}\n", named.name, error.what());
    }
  }

  const ConvBenchOptions& o_;
  SpeedUpRows rows_;
  const StopRequest stop_;
  ReportFile file_;
  ProgressBar bar_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace

int conv_speed_up(const ConvBenchOptions& options) { return SpeedUps(options).run(); }

}  // namespace convolume::bench
