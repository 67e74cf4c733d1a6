// Choices by measurement, for those who ask for it (ConvPlan::tune): the candidates of the cost model take turns.
#include <algorithm>
#include <chrono>
#include <deque>

#include "conv/choice.hpp"
#include "plan/race.hpp"

namespace convolume {
namespace {

using conv::Choice;
using Clock = std::chrono::steady_clock;

constexpr std::size_t tiled_candidates = 5;
constexpr std::size_t directions = plan::directions.size();

/// Tensors of a problem, all zero: no time depends on what they hold, as long as no number is denormal.
template <class T>
struct Tensors {
  Tensors(const ConvProblem& p, std::pmr::memory_resource* memory)
      : x(p.x_shape(), p.x_layout, memory),
        y(p.y_shape(), p.y_layout, memory),
        dy(p.y_shape(), p.y_layout, memory),
        dx(p.x_shape(), p.x_layout, memory),
        w(p.w_shape(), memory),
        dw(p.w_shape(), memory),
        bias({1, p.out_channels, {1, 1, 1}}, memory) {
    for (Tensor<T>* tensor : {&x, &y, &dy, &dx, &w, &dw, &bias}) tensor->fill(T{0});
  }
  Tensor<T> x, y, dy, dx, w, dw, bias;
};

/// A candidate and the graph of each direction.
template <class T>
struct Measured {
  Measured(const ConvProblem& problem, const ConvOptions& options, Tensors<T>& t, const Execution& run)
      : plan(ConvPlan::make(problem, options)), w(plan.prepared_weights(run.memory)) {
    const Ready ready = plan.append_prepare(graphs[0], {}, t.w, w);
    ForwardBindings forward{.x = t.x, .w = w, .y = t.y};
    if (problem.epilogue.bias) forward.bias = t.bias;
    plan.append_forward(graphs[0], {.w = ready}, forward, run.memory);
    plan.append_backward(graphs[1], {}, {.y = t.y, .dy = t.dy, .w = w, .dx = t.dx}, run.memory);
    plan.append_backward(graphs[2], {}, {.x = t.x, .y = t.y, .dy = t.dy, .w = w, .dw = t.dw}, run.memory);
  }
  ConvPlan plan;
  PreparedWeights w;
  std::array<TaskGraph, directions> graphs;
};

/// A candidate's tiles may be the best in one direction and not in another one.
std::string fastest(const std::vector<Choice>& choices, const std::array<std::vector<double>, directions>& seconds) {
  std::vector<Choice> ways;
  std::vector<double> sums;
  std::optional<std::size_t> tiled;  // in ways
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].tiles && tiled) continue;
    if (choices[i].tiles) tiled = ways.size();
    ways.push_back(choices[i]);
    sums.push_back(0);
    for (std::size_t d = 0; d < directions; ++d) {
      std::vector<std::size_t> rivals{i};
      for (std::size_t j = i + 1; j < choices.size() && choices[i].tiles; ++j) {
        if (choices[j].tiles) rivals.push_back(j);
      }
      std::vector<double> times;
      for (const std::size_t j : rivals) times.push_back(seconds[d][j]);
      const std::size_t best = plan::winner(times);
      if (choices[i].tiles) (*ways.back().tiles)[d] = (*choices[rivals[best]].tiles)[d];
      sums.back() += times[best];
    }
  }
  return to_string(ways[plan::winner(sums)]);
}

template <class T>
std::string tune(const ConvProblem& problem, const ConvOptions& options, const Execution& run) {
  const std::vector<Choice> choices = conv::candidates(problem, options, tiled_candidates);
  if (choices.size() == 1) return to_string(choices[0]);
  Tensors<T> tensors(problem, run.memory);
  std::deque<Measured<T>> measured;
  for (const Choice& choice : choices) {
    ConvOptions chosen = options;
    chosen.choice = to_string(choice);
    measured.emplace_back(problem, chosen, tensors, run);
  }
  std::array<std::vector<double>, directions> seconds;
  for (std::size_t d = 0; d < directions; ++d) {
    seconds[d] = plan::race(measured.size(), {}, [&](std::size_t i) {
      // A later direction reads weights that the first one prepared, of every candidate.
      const auto begin = Clock::now();
      measured[i].graphs[d].run(run.scheduler);
      return std::chrono::duration<double>(Clock::now() - begin).count();
    });
  }
  return fastest(choices, seconds);
}

}  // namespace

std::string ConvPlan::tune(const ConvProblem& problem, const ConvOptions& options, const Execution& run) {
  problem.validate();
  return problem.type == DataType::f32 ? convolume::tune<float>(problem, options, run)
                                       : convolume::tune<double>(problem, options, run);
}

}  // namespace convolume
