// Chooses by measurement (ConvPlan::tune): the candidates of the cost model compete in an autotuning run.
#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>

#include "conv/candidates.hpp"
#include "plan/autotune.hpp"

namespace convolume {
namespace {

using conv::Choice;
using Clock = std::chrono::steady_clock;

constexpr std::size_t tiled_candidates = 5;
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

/// The candidates of one problem, which are measured on the same tensors.
template <class T>
class Field {
 public:
  Field(const ConvProblem& problem, const ConvOptions& options, const Execution& run)
      : problem_(problem), options_(options), run_(run), tensors_(problem, run.memory) {}

  /// Returns a choice with the fastest tile of each direction. Separate tiles can be the fastest in one direction and
  /// not in another.
  Choice best_tiles(const std::vector<Choice>& choices) {
    if (choices.size() == 1) return choices[0];
    auto measured = measure_all(choices);
    Choice best = choices[0];
    for (std::size_t d = 0; d < directions; ++d) {
      if ((d == 1 && !options_.want_dx) || (d == 2 && !options_.want_dw)) continue;
      // Directions 1 and 2 read the weights w. The run of direction 0 has prepared them for every candidate.
      for (auto& one : measured) one.build(d);
      (*best.tiles)[d] = (*choices[fastest(measured, d)].tiles)[d];
    }
    return best;
  }
  /// Returns the choice with the fastest whole iteration.
  const Choice& best(const std::vector<Choice>& choices) {
    auto measured = measure_all(choices);
    for (auto& one : measured) one.build_iteration();
    return choices[fastest(measured, directions)];
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
  std::size_t fastest(std::deque<Measured<T>>& measured, std::size_t graph) {
    return plan::winner(plan::autotune(measured.size(), {}, [&](std::size_t i) {
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
  const std::vector<Choice> choices = conv::candidates(problem, options, tiled_candidates);
  if (choices.size() == 1) return to_string(choices[0]);
  Field<T> field(problem, options, run);
  std::vector<Choice> separate, finalists;
  std::copy_if(choices.begin(), choices.end(), std::back_inserter(separate),
               [](const Choice& choice) { return choice.has_separate_tiles(); });
  for (const Choice& choice : choices) {
    if (!choice.has_separate_tiles()) {
      finalists.push_back(choice);
    } else if (choice == separate.front()) {
      finalists.push_back(field.best_tiles(separate));
    }
  }
  return to_string(field.best(finalists));
}

}  // namespace

std::string ConvPlan::tune(const ConvProblem& problem, const ConvOptions& options, const Execution& run) {
  problem.validate();
  return problem.type == DataType::f32 ? convolume::tune<float>(problem, options, run)
                                       : convolume::tune<double>(problem, options, run);
}

}  // namespace convolume
