// A net for one extent of input: its plans and tensors, and how its passes become tasks.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "convolume/conv.hpp"
#include "core/numerics_record.hpp"
#include "core/random.hpp"
#include "nets/lifetimes.hpp"
#include "nets/net_shapes.hpp"
#include "nets/parameters.hpp"

namespace convolume::nets {

struct NetworkOptions {
  index_t batch = 1;
  bool training = false;
  Engine engine = Engine::automatic;
  /// Bytes that all kept spectra may hold; shared out by seconds saved per byte, ties in layer order. 0: no
  /// limit.
  std::size_t memory_budget = std::size_t{4} << 30;
  fft::Options fft{};         ///< who transforms
  bool cache_spectra = true;  ///< keep x_hat and w_hat from forward to backward, and share dy_hat; see ConvOptions
  /// Measures choices of convolutions (ConvPlan::tune) on it; part of the numerics record then, as tuned choices.
  Scheduler* tune_on = nullptr;
  /// Choices that were tuned before, by node: they are taken without measuring.
  std::map<std::string, std::string> tuned{};
  /// Unless apart, the passes are appended to a draft first; see append_planned().
  MemoryMode memory_mode = MemoryMode::arena;
  bool poison_freed = false;  ///< what is freed within a run becomes NaN: a test of the plan
};

/// The tuned choices that a run's record holds, by node; none where it was not tuned.
std::map<std::string, std::string> tuned_choices(const NumericsRecord& record);

/// When the parameters of a net are up to date, by name; those not named are from the start.
using ParameterReady = std::map<std::string, Ready>;

/// What a loss compares with, and where it goes.
struct Labels {
  View<const float> target{}, mask{};  ///< mask: none where every voxel counts
  double* loss = nullptr;
};

class Network {
 public:
  Network(const NetSpec& spec, const Extent3& patch, Parameters& parameters, const NetworkOptions& options,
          std::pmr::memory_resource* memory);

  const NetShapes& shapes() const { return shapes_; }
  const NetSpec& spec() const { return spec_; }
  /// What the net reads: batch x channels x patch.
  Tensor<float>& input() { return input_; }
  const Tensor<float>& logits() const { return logits_; }
  /// The gradient of the loss, that the backward pass reads.
  Tensor<float>& logits_gradient() { return logits_gradient_; }

  /// append(graphs...) adds passes of this network, and whatever else, to graphs. Unless all memory is apart that is
  /// done twice: first with drafts, which never run and show the lifetimes by which is decided where tensors and
  /// spectra live. Between runs the input, the logits, their gradient and, for inference, prepared weights keep what
  /// they hold.
  template <class Append, class... Graphs>
  void append_planned(const Append& append, Graphs&... graphs) {
    if (lifetimes_->planned()) {
      std::tuple<Graphs...> drafts;
      std::apply(append, drafts);
      lifetimes_->plan();
    }
    append(graphs...);
  }
  /// Takes the memory that was planned; before the first run.
  void place_memory() { lifetimes_->place(); }
  const Lifetimes& lifetimes() const { return *lifetimes_; }

  /// Refreshes the prepared weights of every node; `ready` says when parameters are new. The result belongs to `graph`.
  std::vector<Ready> append_prepare(TaskGraph& graph, const ParameterReady& ready);
  /// `prepared` is what append_prepare returned for the same graph; empty where the weights are prepared already.
  Ready append_forward(TaskGraph& graph, const Ready& input, std::vector<Ready> prepared, const ParameterReady& ready);
  /// All parameter gradients (overwritten), from logits_gradient(). Returns when each is complete.
  ParameterReady append_backward(TaskGraph& graph, const Ready& logits_gradient);
  /// All of these with the net's loss between the passes. `updated` says when parameters are new, `patches` when input
  /// and labels are.
  ParameterReady append_training(TaskGraph& graph, const ParameterReady& updated, const Ready& patches,
                                 const Labels& labels);

  /// Keys of dropout for an iteration; between runs only.
  void set_iteration(std::uint64_t seed, std::uint64_t iteration);
  /// The first node in order whose output holds NaN or infinity; between runs only, of a network whose tensors are
  /// apart.
  std::optional<std::string> first_non_finite() const;

  void add_numerics(NumericsRecord& record) const;
  /// How the output of a node lies in memory, and its gradient.
  Layout layout_of(std::size_t node) const { return layouts_[node + 1]; }
  const ConvPlan* plan_of(std::size_t node) const { return nodes_[node].plan ? &*nodes_[node].plan : nullptr; }

 private:
  using Buffer = Lifetimes::Buffer;
  static constexpr Buffer no_buffer = Lifetimes::no_buffer;
  struct Node {
    View<float> y, dy;
    Buffer y_buffer = no_buffer, dy_buffer = no_buffer;
    // Convolution.
    std::optional<ConvPlan> plan;
    PreparedWeights weights;
    Spectra x_hat;
    Buffer weights_buffer = no_buffer, x_hat_buffer = no_buffer;
    Ready weights_ready;          // in the graph that is being built
    Parameter* weight = nullptr;  // or gamma
    Parameter* bias = nullptr;    // or beta
    // Max-pooling: one byte per output.
    Address<std::uint8_t> taps;
    Buffer taps_buffer = no_buffer;
    // Group norm.
    std::vector<double> mean, rstd;
    RandomKey dropout_key;
    // The backward pass: when all contributions so far are in, and whether there is one.
    Ready dy_ready;
    bool dy_written = false;
  };

  ConvProblem problem_of(std::size_t index, Layout x, Layout y) const;
  ConvOptions conv_options(std::size_t index, std::size_t weight_budget) const;
  ConvPlan plan_of_node(std::size_t index, Layout x, Layout y, std::size_t weight_budget) const;
  /// Whether a convolution belongs on blocked tensors: a plain way has to be so much faster that its neighbours'
  /// transpositions pay.
  bool better_blocked(std::size_t index) const;
  void choose_layouts();
  void tune();
  void make_plans();
  void make_tensors(Parameters& parameters);
  /// A buffer of the shape, and the view of it.
  std::pair<View<float>, Buffer> make_tensor(const Shape5& shape, Layout layout);
  View<const float> output_of(std::size_t reference) const;
  Buffer buffer_of(std::size_t reference) const { return reference == 0 ? no_buffer : nodes_[reference - 1].y_buffer; }
  bool keeps_x_hat() const { return options_.training && options_.cache_spectra; }
  std::vector<Buffer> forward_buffers(std::size_t index) const;
  std::vector<Buffer> backward_buffers(std::size_t index);
  /// The node whose gradient an input's is, or nothing where none is needed.
  Node* gradient_target(std::size_t reference);
  Ready forward_node(TaskGraph& graph, std::size_t index, const Ready& gate);
  Ready forward_join(TaskGraph& graph, std::size_t index, const Ready& gate);
  void backward_node(TaskGraph& graph, std::size_t index, const Ready& gate, ParameterReady& done);
  void backward_conv(TaskGraph& graph, std::size_t index, ParameterReady& done);
  void backward_join(TaskGraph& graph, std::size_t index, const Ready& gate);
  /// Notes that a task group has written or added to a node's gradient.
  static void written(Node& target, Ready ready);
  Ready ready_of(std::size_t reference) const { return reference == 0 ? input_ready_ : forward_ready_[reference - 1]; }

  NetSpec spec_;
  NetShapes shapes_;
  NetworkOptions options_;
  std::pmr::memory_resource* memory_;
  std::vector<Layout> layouts_;                     // of the input, then of the nodes' outputs
  Tensor<float> input_, logits_, logits_gradient_;  // used between runs, so no plan's
  std::deque<Node> nodes_;
  std::unique_ptr<Lifetimes> lifetimes_;
  Ready input_ready_;
  std::vector<Ready> forward_ready_;
  ParameterReady parameter_ready_;
};

}  // namespace convolume::nets
