// A net for one input extent: its convolution plans and tensors, and the tasks of its passes.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <tuple>

#include "convolume/conv.hpp"
#include "core/numerics_record.hpp"
#include "nets/base/lifetimes.hpp"
#include "nets/layers/layer_step.hpp"
#include "nets/spec/net_shapes.hpp"
#include "nets/spec/parameters.hpp"

namespace convolume::nets {

/// The choices and the layouts of an earlier run's convolutions and tensors, by node name. With them a run has the same
/// bits on a machine whose cost model would choose otherwise.
struct RecordedPlans {
  std::map<std::string, std::string> choices{}, layouts{};
};

/// Reads them from a run's numerics record.
RecordedPlans recorded_plans(const NumericsRecord& record);

/// Limit of the bytes of kept spectra if NetworkOptions has none.
inline constexpr std::size_t usual_memory_budget = std::size_t{4} << 30;

struct NetworkOptions {
  index_t batch = 1;
  bool training = false;
  Engine engine = Engine::automatic;  ///< for every layer that it supports; see engine_for()
  bool low_error = false;             ///< see ConvOptions
  /// Limit of the bytes of all kept spectra. It is distributed by seconds saved per byte; ties are broken by layer
  /// order. 0: no limit. Without a value, it is usual_memory_budget; a Trainer takes the default
  /// plan instead (nets/graph/memory_plan.hpp).
  std::optional<std::size_t> memory_budget{};
  Slack slack{};              ///< how soon buffers take over the memory of others
  fft::Options fft{};         ///< FFT backend, for engines that use FFTs
  bool cache_spectra = true;  ///< keep x_hat and w_hat from forward to backward, and share dy_hat; see ConvOptions
  /// If set, convolution choices are measured on this scheduler (ConvPlan::tune). They then join the numerics record as
  /// tuned choices.
  Scheduler* tune_on = nullptr;
  std::function<void(const std::string& layer, double seconds)> on_tune{};  ///< see TrainOptions
  /// Choices that were tuned before, by node name. They are used without measuring.
  std::map<std::string, std::string> tuned{};
  /// Choices and layouts of the run that is continued. They replace those of the cost model.
  RecordedPlans recorded{};
  /// In every mode except `separate`, the passes are first appended to a draft; see append_planned().
  MemoryMode memory_mode = MemoryMode::arena;
  bool poison_freed = false;  ///< fill buffers that are freed within a run with NaN: a test of the memory plan
  std::stop_token stop{};     ///< a stop request ends the planning of layers with StopRequested
};

/// Returns the tuned choices in a run's record, by node name. The result is empty if the run was not tuned.
std::map<std::string, std::string> tuned_choices(const NumericsRecord& record);

/// Inputs of the loss besides the logits, and the place of its result.
struct Labels {
  View<const float> target{}, mask{};  ///< mask: empty if every voxel counts
  double* loss = nullptr;
};

class Network {
 public:
  Network(const NetSpec& spec, const Extent3& patch, Parameters& parameters, const NetworkOptions& options,
          std::pmr::memory_resource* memory);

  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const NetShapes& shapes() const { return shapes_; }
  const NetSpec& spec() const { return spec_; }
  /// The net's input: batch x channels x patch.
  Tensor<float>& input() { return input_; }
  const Tensor<float>& logits() const { return logits_; }
  Tensor<float>& logits() { return logits_; }
  /// Makes later runs read the input and write the logits at other addresses, which hold as much as input() and
  /// logits(). So one group of patches can be loaded, and another one read, while a third one is computed. Call it
  /// between runs only.
  void use_buffers(float* input, float* logits) {
    input_slot_ = input;
    logits_slot_ = logits;
  }
  /// The gradient of the loss with respect to the logits. The backward pass reads it.
  Tensor<float>& logits_gradient() { return logits_gradient_; }

  /// Calls append(graphs...), which adds passes of this network and possibly other tasks to `graphs`. Unless all memory
  /// is separate, it calls `append` twice. The first call gets drafts, which never run; their lifetimes decide where
  /// tensors and spectra live. The input, the logits and their gradient keep their contents between runs; for inference
  /// the prepared weights do too.
  template <class Append, class... Graphs>
  void append_planned(const Append& append, Graphs&... graphs) {
    if (lifetimes_->planned()) {
      std::tuple<Graphs...> drafts;
      std::apply(append, drafts);
      lifetimes_->plan();
    }
    append(graphs...);
  }
  /// Allocates the planned memory. Call it before the first run.
  void place_memory() { lifetimes_->place(); }
  const Lifetimes& lifetimes() const { return *lifetimes_; }

  /// Appends the refresh of every node's prepared weights. `ready` says when parameters are new. The result belongs to
  /// `graph`.
  std::vector<Ready> append_prepare(TaskGraph& graph, const ParameterReady& ready);
  /// Appends the forward pass. `prepared` is the result of append_prepare for the same graph; it is empty if the
  /// weights are already prepared.
  Ready append_forward(TaskGraph& graph, const Ready& input, std::vector<Ready> prepared, const ParameterReady& ready);
  /// Appends the computation of all parameter gradients from logits_gradient(); old gradients are overwritten. Returns
  /// when each gradient is complete.
  ParameterReady append_backward(TaskGraph& graph, const Ready& logits_gradient);
  /// Appends prepare, forward, the net's loss, and backward. `updated` says when parameters are new, `patches` says
  /// when input and labels are.
  ParameterReady append_training(TaskGraph& graph, const ParameterReady& updated, const Ready& patches,
                                 const Labels& labels);

  /// Sets the random keys of dropout for an iteration. Call it between runs only.
  void set_iteration(std::uint64_t seed, std::uint64_t iteration);
  /// Returns the first node, in topological order, whose output holds NaN or infinity. Call it between runs only, and
  /// only if the network's tensors are separate.
  std::optional<std::string> first_non_finite() const;

  void add_numerics(NumericsRecord& record) const;
  /// Returns the memory layout of a node's output and of its gradient.
  Layout layout_of(std::size_t node) const { return layouts_[node + 1]; }
  const ConvPlan* plan_of(std::size_t node) const { return nodes_[node].plan ? &*nodes_[node].plan : nullptr; }

 private:
  using Buffer = Lifetimes::Buffer;
  struct Node {
    NodeTensors tensors{};
    std::vector<NodeTensors*> inputs{};
    std::optional<ConvPlan> plan{};  ///< of Layer::convolution()
    std::unique_ptr<LayerTasks> tasks{};
  };

  const Layer& layer(std::size_t index) const { return *spec_.nodes[index].layer; }
  /// Returns the convolution of a node, for plain tensors, if there is one.
  std::optional<ConvProblem> problem_of(std::size_t index) const;
  /// Returns it for the layouts of the node's input and output.
  std::optional<ConvProblem> laid_out_problem_of(std::size_t index) const;
  ConvOptions conv_options(std::size_t index, std::size_t weight_budget) const;
  ConvPlan plan_of_node(std::size_t index, std::size_t weight_budget) const;
  /// Returns whether a convolution should use blocked tensors. If another engine is faster on plain ones, it must be so
  /// much faster that the layout conversions of its neighbours pay off (ADR 11).
  bool uses_blocked(std::size_t index) const;
  void choose_layouts();
  void take_recorded_layouts();
  void tune();
  void make_plans();
  void make_tensors(Parameters& parameters);
  void make_gradients();
  void make_tasks(std::size_t index, Parameters& parameters);
  /// Return whether a node computes its output in the memory of its input, and whether the gradient of a node's output
  /// lies in the memory of the gradient of the only node that reads it. The bits are the same.
  bool output_in_place(std::size_t index) const;
  bool gradient_in_place(std::size_t index) const;
  /// Returns whether a node is an activation that the node before it computes, in one sweep over the tensor. Then its
  /// own passes have no tasks.
  bool fused_into_input(std::size_t index) const;
  /// Returns the number of the only node that reads a node's output, if there is exactly one.
  std::optional<std::size_t> only_reader(std::size_t index) const;
  /// Returns a new buffer for the shape, and a view of it.
  std::pair<View<float>, Buffer> make_tensor(const Shape5& shape, Layout layout);
  bool keeps_x_hat() const { return options_.training && options_.cache_spectra; }

  NetSpec spec_;
  NetShapes shapes_;
  NetworkOptions options_;
  std::pmr::memory_resource* memory_;
  std::vector<Layout> layouts_;                          // of the input, then of the nodes' outputs
  Tensor<float> input_, logits_, logits_gradient_;       // used between runs, so they lie outside the memory plan
  void *input_slot_ = nullptr, *logits_slot_ = nullptr;  // the graphs read and write here
  NodeTensors source_;                                   // the net's input
  std::deque<Node> nodes_;
  std::unique_ptr<Lifetimes> lifetimes_;
  ParameterReady parameter_ready_;
};

}  // namespace convolume::nets
