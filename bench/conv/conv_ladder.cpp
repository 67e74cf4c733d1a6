#include "bench/conv/conv_ladder.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/common/progress_bar.hpp"
#include "bench/common/report.hpp"
#include "bench/conv/conv_competitor.hpp"
#include "bench/conv/ladder_loops.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;
using ladder::Extents;

/// Columns that share the weights of a tap: b_C of paper 003.
constexpr index_t column_block = 8;
constexpr double allowed_error = 1e-5;

enum class Loops { algorithm_2, over_samples, in_blocks };

/// Returns why the steps do not serve a problem; an empty text if they do.
std::string refusal_of(const ConvProblem& p) {
  const Extent3 one{1, 1, 1};
  if (p.type != DataType::f32) return "the steps compute in float";
  if (p.transposed || p.groups != 1) return "the steps have neither groups nor transposed convolutions";
  if (p.kernel.z != 1 || p.input.z != 1) return "the steps have two axes";
  if (p.stride != one || p.dilation != one) return "the steps have neither stride nor dilation";
  if (p.input.y != p.output().y + p.kernel.y - 1 || p.input.x != p.output().x + p.kernel.x - 1)
    return "the steps have no padding; give ih and iw for it";
  if (p.in_channels % 16 != 0 || p.out_channels % 16 != 0) return "the steps have channels in multiples of 16";
  return "";
}

/// One of the three steps that are plain loops, on one thread.
class LadderLoops final : public ConvCompetitor {
 public:
  LadderLoops(const ConvProblem& p, const ConvData& data, Loops loops)
      : loops_(loops),
        n_{.batch = p.batch,
           .in_channels = p.in_channels,
           .out_channels = p.out_channels,
           .in_rows = p.input.y,
           .in_columns = p.input.x,
           .out_rows = p.output().y,
           .out_columns = p.output().x,
           .kernel_rows = p.kernel.y,
           .kernel_columns = p.kernel.x} {
    const auto values = [](const ConvTensor& tensor) { return tensor.view().as<float>().data; };
    const bool plain = loops == Loops::algorithm_2;
    x_ = moved(values(data.x), p.batch, p.in_channels, p.input.volume(), plain);
    w_ = moved(values(data.w), p.out_channels * p.in_channels, 1, p.kernel.volume(), plain);
    y_.resize(static_cast<std::size_t>(p.batch * p.out_channels * p.output().volume()));
    if (!plain) return;
    w_tap_.resize(static_cast<std::size_t>(p.out_channels * p.in_channels));
    x_tap_.resize(static_cast<std::size_t>(p.in_channels * p.batch));
    sums_.resize(static_cast<std::size_t>(p.out_channels * p.batch));
  }

  bool has(Direction direction) const override { return direction == Direction::forward; }

  void execute(Direction) override {
    switch (loops_) {
      case Loops::algorithm_2:
        ladder::algorithm_2(n_, x_.data(), w_.data(), y_.data(), w_tap_.data(), x_tap_.data(), sums_.data());
        return;
      case Loops::over_samples:
        ladder::over_samples(n_, x_.data(), w_.data(), y_.data());
        return;
      case Loops::in_blocks:
        ladder::in_blocks(n_, column_block, x_.data(), w_.data(), y_.data());
        return;
    }
  }

  void read(Output, ConvTensor& plain) override {
    const index_t voxels = n_.out_rows * n_.out_columns;
    index_t to = 0;
    for (index_t b = 0; b < n_.batch; ++b) {
      for (index_t k = 0; k < n_.out_channels; ++k) {
        for (index_t voxel = 0; voxel < voxels; ++voxel, ++to) {
          const index_t from = loops_ == Loops::algorithm_2 ? to : (voxel * n_.out_channels + k) * n_.batch + b;
          plain.set(to, static_cast<double>(y_[static_cast<std::size_t>(from)]));
        }
      }
    }
  }

 private:
  /// Returns a copy of [outer][channel][voxel], which stays as it is or becomes [voxel][channel][outer].
  static std::vector<float> moved(const float* from, index_t outer, index_t channels, index_t voxels, bool plain) {
    std::vector<float> to(static_cast<std::size_t>(outer * channels * voxels));
    for (index_t i = 0; i < outer * channels * voxels; ++i) {
      const index_t voxel = i % voxels, channel = i / voxels % channels, first = i / voxels / channels;
      to[static_cast<std::size_t>(plain ? i : (voxel * channels + channel) * outer + first)] = from[i];
    }
    return to;
  }

  Loops loops_;
  Extents n_;
  std::vector<float> x_, w_, y_, w_tap_, x_tap_, sums_;
};

struct Step {
  std::string name;
  std::unique_ptr<ConvCompetitor> competitor;
  std::vector<double> seconds{};
  double error = 0;

  double low() const { return quantile(seconds, 0.25); }
};

/// Returns the choice text of the default nests with another forward nest: two voxels and one block of channels.
std::string small_tile(const std::string& choice) {
  const std::size_t begin = choice.find("fwd="), end = choice.find(' ', begin);
  return choice.substr(0, begin) + "fwd=n*.k.y.x.|.c.ky.kx.c16.x2.k16" + choice.substr(end);
}

class Ladder {
 public:
  Ladder(const ConvBenchOptions& options, const NamedProblem& named)
      : o_(options), name_(named.name), problem_(named.problem), data_(problem_) {
    const std::string reason = refusal_of(problem_);
    if (!reason.empty()) throw Unsupported(fmt::format("--ladder does not serve {}: {}", to_string(problem_), reason));
    data_.fill_normal();
    add("Algorithm 2, scalar", std::make_unique<LadderLoops>(problem_, data_, Loops::algorithm_2));
    add("vectors of samples", std::make_unique<LadderLoops>(problem_, data_, Loops::over_samples));
    add(fmt::format("blocks of {} columns", column_block),
        std::make_unique<LadderLoops>(problem_, data_, Loops::in_blocks));
    auto usual = planned("", 1);
    add("register tile of 2 voxels", planned(small_tile(usual->plan(Direction::forward).choice()), 1));
    add("default nest", std::move(usual));
    if (o_.threads > 1) add(fmt::format("{} threads", o_.threads), planned("", o_.threads));
  }

  /// Compares the results of all steps with the reference engine. Throws NumericalError if one differs.
  void check() {
    const ConvProblem laid_out = with_layout(problem_, Layout::plain);
    PlannedConvolution reference(laid_out, data_, {.conv = {.engine = Engine::reference}, .threads = o_.threads});
    reference.execute(Direction::forward);
    ConvTensor wanted(problem_.type, problem_.y_shape()), got(problem_.type, problem_.y_shape());
    reference.read(Output::y, wanted);
    for (Step& step : steps_) {
      step.competitor->execute(Direction::forward);
      step.competitor->read(Output::y, got);
      step.error = relative_error(got, wanted);
      if (step.error <= allowed_error) continue;
      throw NumericalError(fmt::format("{}: '{}' differs from the reference by {:.3g}; at most {:.3g} is allowed",
                                       name_, step.name, step.error, allowed_error));
    }
  }

  void measure(const std::function<bool(double)>& go_on) {
    const Protocol protocol{.rounds = o_.rounds, .min_seconds = o_.min_seconds, .max_seconds = o_.max_seconds};
    const auto sample = [&](std::size_t i) { return steps_[i].competitor->sample(Direction::forward); };
    auto seconds = take_turns(steps_.size(), protocol, sample, go_on);
    for (std::size_t i = 0; i < steps_.size(); ++i) steps_[i].seconds = std::move(seconds[i]);
  }

  void print() const {
    fmt::print("{}\n{:28} {:>12} {:>10} {:>18} {:>10}\n", name_, "step", "seconds", "GFLOP/s", "over the step before",
               "error");
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      const std::string gain = i == 0 ? "" : fmt::format("{:.2f}", steps_[i - 1].low() / step.low());
      fmt::print("{:28} {:>12} {:>10.2f} {:>20} {:>10.1e}\n", step.name, time_text(step.low()),
                 1e-9 * problem_.flops() / step.low(), gain, step.error);
    }
    fmt::print("all steps: {:.1f} times\n", steps_.front().low() / steps_.back().low());
    std::fflush(stdout);
  }

  void add_to(Json& rows) const {
    for (const Step& step : steps_) {
      rows.push_back({{"name", name_},
                      {"problem", to_string(problem_)},
                      {"step", step.name},
                      {"threads", &step == &steps_.back() ? o_.threads : 1},
                      {"rounds", step.seconds.size()},
                      {"low_s", step.low()},
                      {"median_s", quantile(step.seconds, 0.5)},
                      {"gflops", 1e-9 * problem_.flops() / step.low()},
                      {"error", step.error}});
    }
  }

 private:
  void add(std::string name, std::unique_ptr<ConvCompetitor> competitor) {
    steps_.push_back({.name = std::move(name), .competitor = std::move(competitor)});
  }

  std::unique_ptr<PlannedConvolution> planned(const std::string& choice, int threads) const {
    const PlannedConvolution::Options options{
        .conv = {.engine = Engine::direct, .choice = choice}, .threads = threads, .prepare_forward = false};
    return std::make_unique<PlannedConvolution>(with_layout(problem_, Layout::blocked), data_, options);
  }

  const ConvBenchOptions& o_;
  std::string name_;
  ConvProblem problem_;
  ConvData data_;
  std::vector<Step> steps_;
};

Json report_of(const ConvBenchOptions& options, const Json& rows) {
  return {{"machine", describe_machine(options.types.front())}, {"ladder", rows}};
}

}  // namespace

int conv_ladder(const ConvBenchOptions& options) {
  Json rows = Json::array();
  ReportFile file(options.json, report_of(options, rows));
  const StopRequest stop;
  ProgressBar bar;
  bool failed = false;
  for (NamedProblem named : options.problems) {
    if (stop.pending()) break;
    named.problem.type = options.types.front();
    try {
      Ladder ladder(options, named);
      ladder.check();
      ladder.measure([&](double share) {
        bar.show(share, named.name);
        return !stop.pending();
      });
      bar.clear();
      ladder.print();
      ladder.add_to(rows);
    } catch (const std::exception& error) {
      failed = true;
      bar.clear();
      std::fflush(stdout);
      fmt::print(stderr, "bench_conv: {}: {}\n", named.name, error.what());
    }
  }
  file.write(report_of(options, rows));
  return stop.pending() ? interrupted_status : failed ? 1 : 0;
}

}  // namespace convolume::bench
