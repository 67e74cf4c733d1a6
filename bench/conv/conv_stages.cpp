#include "bench/conv/conv_stages.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/common/progress_bar.hpp"
#include "bench/common/report.hpp"
#include "bench/conv/conv_competitor.hpp"
#include "bench/conv/conv_floor.hpp"
#include "conv/implementations.hpp"
#include "conv/spectra/tiled_choice.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array stage_names{"weights", "transforms", "products", "idle"};
using Stages = std::array<double, stage_names.size()>;

struct StagesRow {
  std::string name;
  ConvProblem problem;
  Direction direction;
  std::string choice;
  plan::TiledCost model;
  Stages measured{};   ///< thread-seconds, medians
  double seconds = 0;  ///< of a pass
  double floor = 0;
};
using StagesRows = std::vector<StagesRow>;

plan::StageCost operator+(const plan::StageCost& a, const plan::StageCost& b) {
  return {a.seconds + b.seconds, a.bytes + b.bytes};
}

/// Returns the estimated cost of a direction, for a problem that is not transposed. If the directions share tiles, they
/// are estimated together.
plan::TiledCost model_of(const plan::Tilings& tilings, Direction direction) {
  switch (direction) {
    case Direction::forward:
      return tilings.forward.cost;
    case Direction::backward_data:
      return tilings.data.cost;
    case Direction::backward_weights:
      return tilings.weights.cost;
    case Direction::training:
      break;
  }
  const plan::TiledCost &y = tilings.forward.cost, &dx = tilings.data.cost, &dw = tilings.weights.cost;
  return {.weights = y.weights + dx.weights + dw.weights,
          .transforms = y.transforms + dx.transforms + dw.transforms,
          .products = y.products + dx.products + dw.products,
          .idle = y.idle + dx.idle + dw.idle};
}

/// Returns whether a task only transforms weights, or transforms their gradient back.
bool is_of_weights(const TraceEvent& event) {
  return event.name == "pack weights" || event.name == "weight spectra" || event.name == "weight gradient";
}

class StagesContest {
 public:
  StagesContest(const ConvBenchOptions& options, const NamedProblem& named, Layout layout)
      : o_(options), name_(named.name), problem_(with_layout(named.problem, layout)), data_(named.problem) {
    data_.fill_normal();
    run_ = std::make_unique<PlannedConvolution>(
        problem_, data_, PlannedConvolution::Options{.conv = o_.conv(Engine::fft_tiled), .threads = o_.threads});
  }

  StagesRow measure(Direction direction, const std::function<bool()>& go_on) {
    const std::string choice = run_->plan(direction).choice();
    StagesRow row{.name = name_,
                  .problem = problem_,
                  .direction = direction,
                  .choice = choice,
                  .model = model_of(conv::tilings_of(problem_, plan::Wanted{}, conv::parse_choice(choice).parts.get(),
                                                     machine_model()),
                                    direction),
                  .floor = floor_seconds(problem_, direction, o_.threads, false)};
    run_->execute(direction);
    std::array<std::vector<double>, stage_names.size()> rounds;
    std::vector<double> seconds;
    const Protocol protocol{.rounds = o_.rounds, .min_seconds = o_.min_seconds, .max_seconds = o_.max_seconds};
    const auto sample = [&](std::size_t) {
      double pass = 0;
      const Stages stages = one_pass(direction, pass);
      for (std::size_t i = 0; i < stages.size(); ++i) rounds[i].push_back(stages[i]);
      return pass;
    };
    row.seconds = quantile(take_turns(1, protocol, sample, [&](double) { return go_on(); })[0], 0.5);
    for (std::size_t i = 0; i < rounds.size(); ++i) row.measured[i] = quantile(rounds[i], 0.5);
    return row;
  }

 private:
  Stages one_pass(Direction direction, double& pass) {
    Trace trace;
    run_->record(&trace);
    const TransformCounts before = run_->plan(direction).transforms();
    const auto begin = std::chrono::steady_clock::now();
    run_->execute(direction);
    pass = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const TransformCounts counts = run_->plan(direction).transforms() - before;
    run_->record(nullptr);
    double busy = 0, weights = 0;
    for (const TraceEvent& event : trace.events()) {
      const double took = 1e-9 * static_cast<double>(event.end - event.begin);
      busy += took;
      if (is_of_weights(event)) weights += took;
    }
    const double transforms = std::max(0.0, counts.seconds - weights);
    return {weights, transforms, std::max(0.0, busy - weights - transforms), std::max(0.0, o_.threads * pass - busy)};
  }

  const ConvBenchOptions& o_;
  std::string name_;
  ConvProblem problem_;
  ConvData data_;
  std::unique_ptr<PlannedConvolution> run_;
};

std::array<plan::StageCost, stage_names.size()> stages_of(const plan::TiledCost& cost) {
  return {cost.weights, cost.transforms, cost.products, plan::StageCost{cost.idle, 0}};
}

Json to_json(const ConvBenchOptions& options, const StagesRows& rows) {
  Json report{{"machine", describe_machine(options.types.front())}, {"stages", Json::array()}};
  for (const StagesRow& row : rows) {
    const auto model = stages_of(row.model);
    Json stages = Json::object();
    for (std::size_t i = 0; i < stage_names.size(); ++i) {
      stages[stage_names[i]] = {
          {"model_s", model[i].seconds}, {"measured_s", row.measured[i]}, {"model_bytes", model[i].bytes}};
    }
    report["stages"].push_back({{"problem", to_string(row.problem)},
                                {"name", row.name},
                                {"dir", name_of(row.direction)},
                                {"layout", name_of(layout_of(row.problem))},
                                {"choice", row.choice},
                                {"threads", options.threads},
                                {"seconds", row.seconds},
                                {"floor_fraction", row.floor / row.seconds},
                                {"stages", stages}});
  }
  return report;
}

void print(const StagesRow& row) {
  fmt::print("{} {}\n", row.name, row.choice);
  fmt::print("{:9} {} of a pass, the floor is {:.0f} %\n", name_of(row.direction), time_text(row.seconds),
             100 * row.floor / row.seconds);
  const auto model = stages_of(row.model);
  for (std::size_t i = 0; i < stage_names.size(); ++i) {
    fmt::print("  {:11} {:9.2f} {:9.2f} {:9.1f}\n", stage_names[i], 1e3 * model[i].seconds, 1e3 * row.measured[i],
               1e-6 * model[i].bytes);
  }
  std::fflush(stdout);
}

class StagesReport {
 public:
  explicit StagesReport(const ConvBenchOptions& options) : o_(options), file_(o_.json, to_json(o_, rows_)) {}

  int run() {
    fmt::print("{} threads, fft_tiled; thread-ms by the model, thread-ms measured, and MB beyond the L2 by the model\n",
               o_.threads);
    for (; at_ < o_.problems.size() && !stop_.pending(); ++at_) {
      for (const Layout layout : o_.layouts) measure(o_.problems[at_], layout);
      if (file_.due()) file_.write(to_json(o_, rows_));
    }
    bar_.clear();
    file_.write(to_json(o_, rows_));
    return stop_.pending() ? interrupted_status : failed_ ? 1 : 0;
  }

 private:
  void measure(NamedProblem named, Layout layout) {
    named.problem.type = o_.types.front();
    if (stop_.pending() || layout_of(with_layout(named.problem, layout)) != layout) return;
    try {
      StagesContest contest(o_, named, layout);
      for (const Direction direction : o_.directions) {
        if (stop_.pending()) return;
        bar_.show(static_cast<double>(at_) / static_cast<double>(o_.problems.size()),
                  fmt::format("{} {}", named.name, name_of(direction)));
        rows_.push_back(contest.measure(direction, [&] { return !stop_.pending(); }));
        bar_.clear();
        print(rows_.back());
      }
    } catch (const Unsupported& error) {
      bar_.clear();
      fmt::print("{}: fft_tiled: {}\n", named.name, refusal(error, Engine::fft_tiled));
    } catch (const std::exception& error) {
      failed_ = true;
      bar_.clear();
      fmt::print(stderr, "bench_conv: {}: {}\n", named.name, error.what());
    }
  }

  const ConvBenchOptions& o_;
  StagesRows rows_;
  const StopRequest stop_;
  ReportFile file_;
  ProgressBar bar_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace

int conv_stages(const ConvBenchOptions& options) { return StagesReport(options).run(); }

}  // namespace convolume::bench
