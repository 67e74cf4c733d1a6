#include "bench/conv_contestant.hpp"

#include <chrono>
#include <cmath>

#include <fmt/format.h>

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

PlannedConvolution::PlannedConvolution(const ConvProblem& problem, const ConvData& data, const Options& options)
    : options_(options),
      scheduler_(options.threads),
      run_{scheduler_, &memory_},
      plan_(make_plan(problem)),
      x_(tensor_like(data.x, problem.x_layout)),
      w_(tensor_like(data.w, Layout::plain)),
      dy_(tensor_like(data.dy, problem.y_layout)),
      y_(problem.type, problem.y_shape(), problem.y_layout, &memory_),
      dx_(problem.type, problem.x_shape(), problem.x_layout, &memory_),
      dw_(problem.type, problem.w_shape(), Layout::plain, &memory_),
      prepared_(plan_.prepare(run_, w_.view())),
      x_hat_(plan_.input_spectra(&memory_)),
      dy_hat_(plan_.gradient_spectra(&memory_)) {}

ConvPlan PlannedConvolution::make_plan(const ConvProblem& problem) {
  ConvOptions conv = options_.conv;
  if (options_.tune) conv.choice = ConvPlan::tune(problem, conv, run_);
  return ConvPlan::make(problem, conv);
}

ConvTensor PlannedConvolution::tensor_like(const ConvTensor& plain, Layout layout) {
  ConvTensor tensor(plain.type(), plain.shape(), layout, &memory_);
  tensor.load(plain);
  return tensor;
}

ConvTensor& PlannedConvolution::tensor(Output output) {
  return output == Output::y ? y_ : output == Output::dx ? dx_ : dw_;
}

void PlannedConvolution::execute(Direction direction) {
  TaskGraph& graph = graphs_[static_cast<std::size_t>(direction)];
  if (graph.size() == 0) build(direction, graph);
  graph.run(scheduler_);
}

void PlannedConvolution::build(Direction direction, TaskGraph& graph) {
  const bool prepares = direction == Direction::training ||
                        (direction == Direction::forward && options_.prepare_forward) ||
                        (direction == Direction::backward_data && options_.prepare_backward);
  const Ready w = prepares ? plan_.append_prepare(graph, {}, w_.view(), prepared_) : Ready();
  switch (direction) {
    case Direction::forward:
      plan_.append_forward(graph, {.w = w}, {.x = x_.view(), .w = prepared_, .y = y_.view()}, &memory_);
      return;
    case Direction::backward_data:
      plan_.append_backward(graph, {.w = w}, {.dy = dy_.view(), .w = prepared_, .dx = dx_.view()}, &memory_);
      return;
    case Direction::backward_weights:
      plan_.append_backward(graph, {}, {.x = x_.view(), .dy = dy_.view(), .w = prepared_, .dw = dw_.view()}, &memory_);
      return;
    case Direction::training:
      break;
  }
  // dy follows from y in a net, so that no gradient starts before the whole of y is there.
  const Ready y = plan_.append_forward(graph, {.w = w},
                                       {.x = x_.view(), .w = prepared_, .y = y_.view(), .x_hat = &x_hat_}, &memory_);
  plan_.append_backward(graph, {.w = w, .dy = y},
                        {.x = x_.view(),
                         .y = y_.view(),
                         .dy = dy_.view(),
                         .w = prepared_,
                         .x_hat = &x_hat_,
                         .dy_hat = &dy_hat_,
                         .dx = dx_.view(),
                         .dw = dw_.view()},
                        &memory_);
}

double PassTimer::seconds(ConvContestant& contestant, Direction direction) {
  using Clock = std::chrono::steady_clock;
  constexpr double short_pass = 20e-3, sample_seconds = 1e-3;
  const auto passes = [&](int n) {
    const auto begin = Clock::now();
    for (int i = 0; i < n; ++i) contestant.execute(direction);
    return std::chrono::duration<double>(Clock::now() - begin).count() / n;
  };
  const int repetitions = last_ == 0 ? 1 : static_cast<int>(std::ceil(sample_seconds / last_));
  if (last_ != 0 && last_ < short_pass) passes(1);
  return last_ = passes(repetitions);
}

ConvProblem with_layout(ConvProblem problem, Layout layout) {
  const auto choose = [layout](index_t channels) { return blockable(channels) ? layout : Layout::plain; };
  problem.x_layout = choose(problem.in_channels);
  problem.y_layout = choose(problem.out_channels);
  return problem;
}

Layout layout_of(const ConvProblem& problem) {
  return problem.x_layout == Layout::blocked || problem.y_layout == Layout::blocked ? Layout::blocked : Layout::plain;
}

std::string refusal(const Unsupported& error, Engine engine) {
  const std::string story = error.what();
  const std::string mark = fmt::format("{}: refuses, ", name_of(engine));
  const std::size_t begin = story.find(mark);
  if (begin == std::string::npos) return story;
  const std::size_t from = begin + mark.size();
  return story.substr(from, story.find('\n', from) - from);
}

}  // namespace convolume::bench
