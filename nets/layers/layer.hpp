// What a node of a net computes. A kind of layer is one class in one file of this folder: its keys, its texts, its
// shape, its parameters and its tasks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "convolume/conv_problem.hpp"
#include "convolume/tensor.hpp"
#include "nets/base/node_shape.hpp"

namespace convolume::nets {

class LayerTasks;
struct LayerSetup;

/// Shapes of a node's inputs, in the order of its `from`.
using InputShapes = std::vector<const NodeShape*>;

/// A parameter that a layer has.
struct ParameterSpec {
  std::string name;      ///< "weight" for the parameter "node.weight"
  Shape5 shape{};        ///< as in a checkpoint
  float start = 0;       ///< value of every element before training
  double deviation = 0;  ///< if not 0, start values are random: normal, around 0, with this standard deviation
};

/// A layer: an immutable value that does not know where in a net it stands. Functions may be called from any thread.
class Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  /// Returns the layer as text. Layers with equal text compute the same function of equal parameters.
  virtual std::string text() const = 0;
  /// Returns what people read in `convolume info`.
  virtual std::string title() const = 0;
  /// Adds the keys of a TOML file, and what follows from the shapes of the first input and of the output.
  virtual void add_keys(nlohmann::ordered_json& json, const NodeShape& x, const NodeShape& y) const = 0;

  /// Returns whether the layer takes two or more inputs. All others take one.
  virtual bool joins() const { return false; }
  /// Returns the shape of the output. Throws Error that says what does not fit; the caller adds the node. The default
  /// is the shape of the input.
  virtual NodeShape shape(const InputShapes& inputs) const;
  /// Returns whether the layer takes a key from the extent of its input at the training patch.
  virtual bool takes_extent() const { return false; }
  /// Returns the layer with the keys that it takes from the extent of its input, for layers with takes_extent(). Such a
  /// layer is resolved when the net is read, and computes nothing before. Others return null.
  virtual std::shared_ptr<const Layer> resolved(const Extent3& input) const;
  /// Returns the parameters for an input. `behind` is the activation that follows the layer in the net.
  virtual std::vector<ParameterSpec> parameters(const NodeShape& x, const Activation& behind) const;
  /// Returns the convolution that a plan computes for this layer, for plain tensors, if there is one. Throws Error that
  /// says what does not fit.
  virtual std::optional<ConvProblem> convolution(index_t batch, const NodeShape& x) const;

  /// Returns the activation that the layer applies to its output, or null.
  virtual const Activation* activation() const { return nullptr; }
  /// Returns whether the layer applies activation() and does nothing else.
  virtual bool only_activates() const { return false; }
  /// Returns whether the layer can apply the activation of the next node to its own output; see LayerSetup::fused.
  virtual bool fuses_activation() const { return false; }
  /// Returns whether the layer stands between a convolution and its activation, as norms do, or is the activation. The
  /// start values of the convolution are then chosen for the activation that follows. Otherwise they are chosen for
  /// none.
  virtual bool keeps_scale() const { return false; }

  /// Returns whether the input and the output must have the same layout.
  virtual bool keeps_layout() const { return true; }
  /// Returns whether the tasks are right if y is x. The network makes it so only if no other node reads x, layouts are
  /// equal, and no backward pass reads the old values (reads_x_backward() here, reads_y_backward() of the node before).
  virtual bool computes_in_place() const { return false; }
  /// Returns whether the tasks are right if dx is dy. The network makes it so only if no other node reads x.
  virtual bool backpropagates_in_place() const { return false; }
  /// Return whether tasks of the backward pass read x, and y. A step refuses to bind what its layer does not read.
  virtual bool reads_x_backward() const { return true; }
  virtual bool reads_y_backward() const { return true; }

  /// Returns what appends the tasks of the layer in one network. The layer must outlive it.
  virtual std::unique_ptr<LayerTasks> make_tasks(const LayerSetup& setup) const = 0;
};

/// The extents of a kernel in the order of a file.
nlohmann::ordered_json json_of(const Extent3& extent);

}  // namespace convolume::nets
