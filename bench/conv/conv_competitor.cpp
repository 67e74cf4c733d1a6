#include "bench/conv/conv_competitor.hpp"

#include <chrono>
#include <cmath>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "conv/engine.hpp"

namespace convolume::bench {

const char* name_of(Output output) noexcept { return output == Output::y ? "y" : output == Output::dx ? "dx" : "dw"; }

Shape5 shape_of(const ConvProblem& problem, Output output) {
  switch (output) {
    case Output::y:
      return problem.y_shape();
    case Output::dx:
      return problem.x_shape();
    case Output::dw:
      break;
  }
  return problem.w_shape();
}

std::vector<Output> outputs_of(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return {Output::y};
    case Direction::backward_data:
      return {Output::dx};
    case Direction::backward_weights:
      return {Output::dw};
    case Direction::training:
      break;
  }
  return {Output::y, Output::dx, Output::dw};
}

ConvData::ConvData(const ConvProblem& problem)
    : x(problem.type, problem.x_shape()), w(problem.type, problem.w_shape()), dy(problem.type, problem.y_shape()) {}

void ConvData::fill_normal() {
  x.fill_normal(1);
  w.fill_normal(2);
  dy.fill_normal(3);
}

double ConvCompetitor::sample(Direction direction) {
  using Clock = std::chrono::steady_clock;
  // Long enough for the threads of every runtime to stop polling and fall asleep.
  constexpr auto idle = std::chrono::milliseconds(50);
  // A thread that sleeps takes up to 0.4 ms to come, on either side.
  constexpr auto waking = std::chrono::milliseconds(1);
  std::this_thread::sleep_for(idle);
  auto begin = Clock::now();
  do execute(direction);
  while (Clock::now() - begin < waking);
  begin = Clock::now();
  execute(direction);
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

PlannedConvolution::Planned::Planned(ConvPlan made, std::pmr::memory_resource* memory)
    : plan(std::move(made)),
      prepared(plan.prepared_weights(memory)),
      x_hat(plan.input_spectra(memory)),
      dy_hat(plan.gradient_spectra(memory)) {}

PlannedConvolution::PlannedConvolution(const ConvProblem& problem, const ConvData& data, const Options& options)
    : problem_(problem),
      options_(options),
      scheduler_(options.threads),
      run_{scheduler_, &memory_},
      x_(tensor_like(data.x, problem.x_layout)),
      w_(tensor_like(data.w, Layout::plain)),
      dy_(tensor_like(data.dy, problem.y_layout)),
      y_(problem.type, problem.y_shape(), problem.y_layout, &memory_),
      dx_(problem.type, problem.x_shape(), problem.x_layout, &memory_),
      dw_(problem.type, problem.w_shape(), Layout::plain, &memory_) {
  static_cast<void>(ConvPlan::make(problem, options.conv));  // to hear at once that no engine serves it
}

PlannedConvolution::Planned& PlannedConvolution::planned(Direction direction) {
  auto& one = planned_[static_cast<std::size_t>(direction)];
  if (one) return *one;
  ConvOptions conv = options_.conv;
  conv.want_dx = direction == Direction::backward_data || direction == Direction::training;
  conv.want_dw = direction == Direction::backward_weights || direction == Direction::training;
  if (options_.tune) conv.choice = ConvPlan::tune(problem_, conv, run_);
  if (options_.choose) conv.choice = options_.choose(direction);
  one = std::make_unique<Planned>(ConvPlan::make(problem_, conv), &memory_);
  build(direction, *one);
  return *one;
}

const ConvPlan& PlannedConvolution::plan(Direction direction) { return planned(direction).plan; }

ConvTensor PlannedConvolution::tensor_like(const ConvTensor& plain, Layout layout) {
  ConvTensor tensor(plain.type(), plain.shape(), layout, &memory_);
  tensor.load(plain);
  return tensor;
}

ConvTensor& PlannedConvolution::tensor(Output output) {
  return output == Output::y ? y_ : output == Output::dx ? dx_ : dw_;
}

void PlannedConvolution::execute(Direction direction) { planned(direction).graph.run(scheduler_); }

void PlannedConvolution::build(Direction direction, Planned& one) {
  auto& [plan, prepared, x_hat, dy_hat, graph] = one;
  // A single pass prepares the weights for itself, unless they are cached. The passes of training share them.
  const PassWeights fresh = w_.view();
  const auto cached = [&]() -> PassWeights {
    one.prepared = one.plan.prepare(run_, w_.view());
    return one.prepared;
  };
  switch (direction) {
    case Direction::forward:
      plan.append_forward(graph, {}, {.x = x_.view(), .w = options_.prepare_forward ? fresh : cached(), .y = y_.view()},
                          &memory_);
      return;
    case Direction::backward_data:
      plan.append_backward(
          graph, {}, {.dy = dy_.view(), .w = options_.prepare_backward ? fresh : cached(), .dx = dx_.view()}, &memory_);
      return;
    case Direction::backward_weights:
      plan.append_backward(graph, {}, {.x = x_.view(), .dy = dy_.view(), .w = fresh, .dw = dw_.view()}, &memory_);
      return;
    case Direction::training:
      break;
  }
  const Ready w = plan.append_prepare(graph, {}, w_.view(), prepared);
  // dy follows from y in a net, so that no gradient starts before the whole of y is there.
  const Ready y =
      plan.append_forward(graph, {.w = w}, {.x = x_.view(), .w = prepared, .y = y_.view(), .x_hat = &x_hat}, &memory_);
  plan.append_backward(graph, {.w = w, .dy = y},
                       {.x = x_.view(),
                        .y = y_.view(),
                        .dy = dy_.view(),
                        .w = prepared,
                        .x_hat = &x_hat,
                        .dy_hat = &dy_hat,
                        .dx = dx_.view(),
                        .dw = dw_.view()},
                       &memory_);
}

double PassTimer::seconds(ConvCompetitor& competitor, Direction direction) {
  using Clock = std::chrono::steady_clock;
  constexpr double short_pass = 20e-3, sample_seconds = 1e-3;
  const auto passes = [&](int n) {
    const auto begin = Clock::now();
    for (int i = 0; i < n; ++i) competitor.execute(direction);
    return std::chrono::duration<double>(Clock::now() - begin).count() / n;
  };
  const int repetitions = last_ == 0 ? 1 : static_cast<int>(std::ceil(sample_seconds / last_));
  if (last_ != 0 && last_ < short_pass) passes(1);
  return last_ = passes(repetitions);
}

ConvProblem with_layout(ConvProblem problem, Layout layout) {
  const auto choose = [layout](index_t channels) { return layout == Layout::plain ? layout : usual_layout(channels); };
  problem.x_layout = choose(problem.in_channels);
  problem.y_layout = choose(problem.out_channels);
  return problem;
}

Layout layout_of(const ConvProblem& problem) {
  return problem.x_layout == Layout::blocked || problem.y_layout == Layout::blocked ? Layout::blocked : Layout::plain;
}

std::string refusal(const Unsupported& error, Engine engine) {
  const std::string report = error.what();
  std::istringstream lines(report);
  const std::string mark = ": unsupported, ";
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find(mark);
    if (at == std::string::npos || !line.starts_with(fmt::format("  {}", name_of(engine)))) continue;
    const std::string reason = line.substr(at + mark.size());
    if (reason != conv::not_depthwise && reason != conv::depthwise_only) return reason;
  }
  return report;
}

}  // namespace convolume::bench
