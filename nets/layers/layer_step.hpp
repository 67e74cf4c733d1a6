// The passes of a layer in one network: what its tasks read and write, and when.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <vector>

#include "convolume/conv.hpp"
#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "nets/base/lifetimes.hpp"
#include "nets/base/parameter.hpp"
#include "nets/layers/layer.hpp"

namespace convolume::nets {

/// The output of a node in a network, and the gradient of the loss with respect to the output.
struct NodeTensors {
  View<float> y, dy;  ///< dy is empty if nobody needs it
  Lifetimes::Buffer y_buffer = Lifetimes::no_buffer, dy_buffer = Lifetimes::no_buffer;
  Ready y_ready;            ///< in the graph that is being built
  Ready dy_ready;           ///< when all contributions to dy so far are complete
  bool dy_written = false;  ///< whether there is a contribution
};

/// One pass of a layer, while its tasks are appended.
///
/// A tensor or a buffer is registered by the function that binds it: its memory is given to no other buffer while tasks
/// of this pass use it. gate() ends the bindings, and tasks are appended after it. A binding after gate() throws
/// std::logic_error. Bindings that are named unread do not extend the life of the tensor: tasks must not use the
/// voxels.
class LayerStep {
 public:
  LayerStep(Lifetimes::Step& step, NodeTensors& node, const std::vector<NodeTensors*>& inputs,
            const ParameterReady& parameters)
      : step_(step), node_(node), inputs_(inputs), parameters_(parameters) {}
  LayerStep(const LayerStep&) = delete;
  LayerStep& operator=(const LayerStep&) = delete;

  TaskGraph& graph() const { return step_.graph(); }
  std::size_t inputs() const { return inputs_.size(); }

  View<const float> x(std::size_t input = 0);
  View<const float> unread_x(std::size_t input = 0) const { return inputs_[input]->y; }
  /// Registers a buffer of the layer's own.
  void use(Lifetimes::Buffer buffer) { step_.use(buffer); }

  /// Returns what every task must wait for that writes to a buffer whose first user is this pass.
  const Ready& gate() { return step_.gate(); }
  const Ready& x_ready(std::size_t input = 0) const { return inputs_[input]->y_ready; }
  /// Returns when the values of a parameter are up to date.
  Ready parameter_ready(const Parameter* parameter) const;

 protected:
  Lifetimes::Step& step_;
  NodeTensors& node_;
  const std::vector<NodeTensors*>& inputs_;
  const ParameterReady& parameters_;
};

/// A forward pass.
class ForwardStep : public LayerStep {
 public:
  ForwardStep(Lifetimes::Step& step, NodeTensors& node, const std::vector<NodeTensors*>& inputs,
              const ParameterReady& parameters, Ready prepared)
      : LayerStep(step, node, inputs, parameters), prepared_(std::move(prepared)) {}

  View<float> y();
  /// Returns what LayerTasks::append_prepare() returned for this graph.
  const Ready& prepared() const { return prepared_; }

 private:
  Ready prepared_;
};

/// A backward pass. The gradient of an input is written by one node after the other. `adds_dx` says whether this pass
/// adds to it.
class BackwardStep : public LayerStep {
 public:
  BackwardStep(Lifetimes::Step& step, NodeTensors& node, const std::vector<NodeTensors*>& inputs,
               const ParameterReady& parameters, const Layer& layer, ParameterReady& done)
      : LayerStep(step, node, inputs, parameters), layer_(layer), done_(done) {}

  View<const float> x(std::size_t input = 0);
  View<const float> y();
  View<const float> unread_y() const { return node_.y; }
  View<const float> dy();
  /// Returns the gradient of an input; empty if nobody needs it.
  View<float> dx(std::size_t input = 0);
  bool wants_dx(std::size_t input = 0) const { return inputs_[input]->dy.data.bound(); }
  bool adds_dx(std::size_t input = 0) const { return inputs_[input]->dy_written; }

  /// Return when dy is complete and gate() is open, and when y is complete. dy alone does not imply y: parts of dy
  /// whose voxels no later node reads are cleared at once.
  Ready dy_ready() { return node_.dy_ready & gate(); }
  const Ready& y_ready() const { return node_.y_ready; }
  /// Returns when earlier contributions to the gradient of an input are complete.
  const Ready& dx_ready(std::size_t input = 0) const { return inputs_[input]->dy_ready; }
  /// Returns all of these three for one input.
  Ready all_ready(std::size_t input = 0) { return dy_ready() & y_ready() & dx_ready(input); }

  /// Records that tasks have written or added to the gradient of an input, or have written that of a parameter.
  void wrote_dx(std::size_t input, Ready ready);
  void wrote_gradient(const Parameter& parameter, const Ready& ready) { done_[parameter.name] = ready; }

 private:
  const Layer& layer_;
  ParameterReady& done_;
};

/// What a layer needs to set up its tasks in a network. Everything that is pointed to outlives the tasks.
struct LayerSetup {
  index_t batch = 1;
  bool training = false;
  bool keep_x_hat = false;  ///< whether spectra of x are kept from the forward to the backward pass
  InputShapes inputs;
  const NodeShape* output = nullptr;
  Layout layout = Layout::plain;       ///< of y
  std::vector<Parameter*> parameters;  ///< in the order of Layer::parameters()
  std::optional<Activation> fused{};   ///< activation of the next node, which this layer applies to y
  const ConvPlan* plan = nullptr;      ///< of Layer::convolution()
  Lifetimes* lifetimes = nullptr;
  std::pmr::memory_resource* memory = nullptr;
};

/// A layer in one network: it holds what its passes share, and appends their tasks. Building is single-threaded.
class LayerTasks {
 public:
  LayerTasks() = default;
  LayerTasks(const LayerTasks&) = delete;
  LayerTasks& operator=(const LayerTasks&) = delete;
  virtual ~LayerTasks() = default;

  /// Appends what depends on the parameters only, and returns when it is complete. `ready` says when parameters are up
  /// to date.
  virtual Ready append_prepare(TaskGraph& graph, const ParameterReady& ready);
  /// Appends the forward pass, and returns when y is complete.
  virtual Ready append_forward(ForwardStep& step) = 0;
  /// Appends the backward pass. Gradients of inputs and parameters are recorded in the step.
  virtual void append_backward(BackwardStep& step) = 0;
  /// Sets the random numbers of an iteration. `node` is the number of the node. Called between runs only.
  virtual void set_iteration(std::uint64_t seed, std::uint32_t iteration, std::uint32_t node);
};

/// Returns the tasks of a node whose values and gradients the node before it computes, because it fuses the activation:
/// there are none.
std::unique_ptr<LayerTasks> no_tasks();

/// Returns when a parameter is up to date. Parameters that `ready` does not name, and null, are from the start.
Ready ready_of(const ParameterReady& ready, const Parameter* parameter);

}  // namespace convolume::nets
