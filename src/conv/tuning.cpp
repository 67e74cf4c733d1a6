// Chooses by measurement (ConvPlan::tune): the candidates of the cost model compete in an autotuning run.
#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>

#include "conv/candidates.hpp"
#include "plan/autotune.hpp"
#include "plan/polyphase.hpp"

namespace convolume {
namespace {

using conv::Choice;
using Clock = std::chrono::steady_clock;

constexpr std::size_t most_candidates = 5;  // of each engine and direction
constexpr double most_seconds = 2;          // of a call
constexpr double measured_seconds = 1.8;    // of these; plans and tensors take the rest
constexpr std::size_t directions = plan::directions.size();

/// Tensors of a problem, all zero. Run times do not depend on the values, as long as no value is denormal.
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

/// A candidate with its plan, its caches and its graphs.
template <class T>
struct Measured {
  Measured(const ConvProblem& problem, const ConvOptions& conv, Tensors<T>& tensors, const Execution& run)
      : plan(ConvPlan::make(problem, conv)),
        options(conv),
        t(tensors),
        memory(run.memory),
        w(plan.prepared_weights(memory)),
        x_hat(plan.input_spectra(memory)),
        dy_hat(plan.gradient_spectra(memory)) {}

  /// Builds the graph of one direction alone.
  void build(std::size_t direction) {
    TaskGraph& graph = graphs[direction];
    if (direction == 0) append_forward(graph, nullptr);
    if (direction == 1) plan.append_backward(graph, {}, {.y = t.y, .dy = t.dy, .w = w, .dx = t.dx}, memory);
    if (direction == 2) plan.append_backward(graph, {}, {.x = t.x, .y = t.y, .dy = t.dy, .w = w, .dw = t.dw}, memory);
  }
  /// Builds the graph of all wanted directions, which share spectra. The gradients wait for y, because a net computes
  /// dy from y.
  void build_iteration() {
    TaskGraph& graph = graphs[directions];
    const auto [prepared, y] = append_forward(graph, &x_hat);
    BackwardBindings backward{.x = t.x, .y = t.y, .dy = t.dy, .w = w, .x_hat = &x_hat, .dy_hat = &dy_hat};
    if (options.want_dx) backward.dx = t.dx;
    if (options.want_dw) backward.dw = t.dw;
    if (options.want_dx || options.want_dw) plan.append_backward(graph, {.w = prepared, .dy = y}, backward, memory);
  }

  ConvPlan plan;
  ConvOptions options;
  Tensors<T>& t;
  std::pmr::memory_resource* memory;
  PreparedWeights w;
  Spectra x_hat, dy_hat;
  std::array<TaskGraph, directions + 1> graphs;  // one per direction, then one for a whole iteration

 private:
  std::pair<Ready, Ready> append_forward(TaskGraph& graph, Spectra* spectra) {
    const Ready prepared = plan.append_prepare(graph, {}, t.w, w);
    ForwardBindings forward{.x = t.x, .w = w, .y = t.y, .x_hat = spectra};
    if (plan.problem().epilogue.bias) forward.bias = t.bias;
    return {prepared, plan.append_forward(graph, {.w = prepared}, forward, memory)};
  }
};

bool wants(const ConvOptions& options, std::size_t direction) {
  return direction == 0 || (direction == 1 && options.want_dx) || (direction == 2 && options.want_dw);
}
double wanted_directions(const ConvOptions& options) { return 1 + options.want_dx + options.want_dw; }

/// Divides choices into groups. The parts of a group's directions are exchanged for one another. A choice whose parts
/// cannot be exchanged is a group of its own.
std::vector<std::vector<Choice>> by_engine(const std::vector<Choice>& choices) {
  std::vector<std::vector<Choice>> groups;
  for (const Choice& choice : choices) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const std::vector<Choice>& other) {
      return other[0].engine == choice.engine && other[0].has_separate_parts() && choice.has_separate_parts();
    });
    if (group == groups.end()) {
      groups.push_back({choice});
    } else {
      group->push_back(choice);
    }
  }
  return groups;
}

bool has_rivals(const std::vector<Choice>& group) { return group.size() > 1; }

/// The candidates of one problem, which are measured on the same tensors.
template <class T>
class Field {
 public:
  Field(const ConvProblem& problem, const ConvOptions& options, const Execution& run)
      : problem_(problem), options_(options), run_(run), tensors_(problem, run.memory) {}

  /// Returns a choice of one engine with the fastest part of each direction. It can be the fastest in one direction and
  /// not in another.
  Choice best_parts(const std::vector<Choice>& choices, double seconds) {
    if (choices.size() == 1) return choices[0];
    auto measured = measure_all(choices);
    Choice best = choices[0];
    for (std::size_t d = 0; d < directions; ++d) {
      if (!wants(options_, d)) continue;
      // Directions 1 and 2 read the weights w. The run of direction 0 has prepared them for every candidate.
      for (auto& one : measured) one.build(d);
      const Choice& fastest_one = choices[fastest(measured, d, seconds / wanted_directions(options_))];
      best.parts = best.parts->with(plan::directions[d], *fastest_one.parts);
    }
    return best;
  }
  /// Returns the choice with the fastest whole iteration.
  const Choice& best(const std::vector<Choice>& choices, double seconds) {
    auto measured = measure_all(choices);
    for (auto& one : measured) one.build_iteration();
    return choices[fastest(measured, directions, seconds)];
  }

 private:
  std::deque<Measured<T>> measure_all(const std::vector<Choice>& choices) {
    std::deque<Measured<T>> measured;
    for (const Choice& choice : choices) {
      ConvOptions chosen = options_;
      chosen.choice = to_string(choice);
      measured.emplace_back(problem_, chosen, tensors_, run_);
    }
    return measured;
  }
  std::size_t fastest(std::deque<Measured<T>>& measured, std::size_t graph, double seconds) {
    return plan::winner(
        plan::autotune(measured.size(), {.least_rounds = 1, .max_seconds = seconds}, [&](std::size_t i) {
          const auto begin = Clock::now();
          measured[i].graphs[graph].run(run_.scheduler);
          return std::chrono::duration<double>(Clock::now() - begin).count();
        }));
  }

  const ConvProblem& problem_;
  const ConvOptions& options_;
  const Execution& run_;
  Tensors<T> tensors_;
};

template <class T>
std::string tune(const ConvProblem& problem, const ConvOptions& options, const Execution& run) {
  const std::vector<Choice> choices = conv::candidates(problem, options, most_candidates);
  if (choices.size() == 1) return to_string(choices[0]);
  Field<T> field(problem, options, run);
  const auto groups = by_engine(choices);
  const auto runs = static_cast<double>(std::count_if(groups.begin(), groups.end(), has_rivals)) + 1;
  std::vector<Choice> finalists;
  for (const auto& group : groups) finalists.push_back(field.best_parts(group, measured_seconds / runs));
  return to_string(field.best(finalists, measured_seconds / runs));
}

}  // namespace

std::string ConvPlan::tune(const ConvProblem& wanted, const ConvOptions& options, const Execution& run) {
  wanted.validate();
  const ConvProblem problem = plan::with_short_strides(wanted);
  return problem.type == DataType::f32 ? convolume::tune<float>(problem, options, run)
                                       : convolume::tune<double>(problem, options, run);
}

double ConvPlan::tuning_seconds(const ConvProblem& problem, const ConvOptions& options) {
  constexpr int executions = 3;
  double seconds = 0;
  for (const auto& group : by_engine(conv::candidates(problem, options, most_candidates))) {
    for (const Choice& choice : group) {
      ConvOptions chosen = options;
      chosen.choice = to_string(choice);
      seconds += executions * make(problem, chosen).seconds() * (has_rivals(group) ? 1 : 0);
      // The finalist of each group is about as fast as its first candidate.
      if (&choice == &group.front()) seconds += executions * make(problem, chosen).seconds();
    }
  }
  return std::max(seconds, most_seconds);
}

}  // namespace convolume
