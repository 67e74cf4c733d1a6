// A net as it is described: nodes in topological order, loss, optimiser and training defaults.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "convolume/conv.hpp"
#include "ops/group_norm.hpp"
#include "ops/losses.hpp"
#include "ops/optimizer.hpp"
#include "ops/pooling.hpp"

namespace convolume::nets {

struct ConvNode {
  index_t out_channels = 1, groups = 1;
  Extent3 kernel{}, stride{1, 1, 1}, dilation{1, 1, 1}, padding{0, 0, 0}, output_padding{0, 0, 0};
  bool same = false;  ///< padding keeps the extent (stride 1)
  bool transposed = false, bias = true;
  Activation activation{};
};
struct ActivationNode {
  Activation activation{};
};
struct MaxPoolNode {
  ops::MaxPool pool{};
};
struct UpsampleNode {
  Extent3 factor{};
};
struct ConcatNode {};  ///< inputs of different extent are cropped to the smallest, aligned by what they see
struct AddNode {};     ///< likewise
struct CropNode {
  Extent3 before{}, after{};
};
struct DropoutNode {
  double rate = 0.5;
};
struct GroupNormNode {
  index_t groups = 1;  ///< 0: as many as channels (instance norm)
  double epsilon = 1e-5;
};

using NodeKind = std::variant<ConvNode, ActivationNode, MaxPoolNode, UpsampleNode, ConcatNode, AddNode, CropNode,
                              DropoutNode, GroupNormNode>;

struct NodeSpec {
  std::string name;
  std::vector<std::size_t> inputs;  ///< indices of nodes + 1; 0 is the net's input
  NodeKind kind;
  int line = 0;  ///< in the file; 0 for generated nodes
};

enum class OptimizerKind { sgd, adam };

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::adam;
  ops::SgdOptions sgd{};
  ops::AdamOptions adam{};
  double learning_rate = 1e-3;
  double clip_norm = 0;     ///< largest norm of all gradients together; 0 means no clipping
  index_t warmup = 0;       ///< iterations over which the learning rate rises from 0
  index_t decay_every = 0;  ///< iterations after which it is multiplied by decay_factor, again and again; 0: never
  double decay_factor = 0.5;

  /// The learning rate of iteration `step`, counted from 1. Independent of a run's total, so that a run may be
  /// extended.
  double rate_at(index_t step) const;
};

struct TrainingSpec {
  index_t batch = 1;
  index_t iterations = 1000, validate_every = 200, checkpoint_every = 200;
};

struct NetSpec {
  std::string name, origin;  ///< origin: the file, for errors
  index_t in_channels = 1;
  Extent3 patch{};  ///< input of a training iteration
  std::vector<NodeSpec> nodes;
  ops::LossOptions loss{};
  OptimizerSpec optimizer{};
  TrainingSpec training{};
  std::string source;  ///< the TOML text and the overrides behind it; parse_net reads it back

  /// What follows from the loss: whether a probability is a softmax over channels or a sigmoid per channel.
  bool softmax() const { return loss.kind == ops::LossKind::softmax_cross_entropy; }
  /// The nodes as text: equal for nets that compute the same function of equal parameters.
  std::string architecture() const;
  /// Everything that decides what an iteration does to the parameters.
  std::string recipe() const;
};

/// Reads a description; `overrides` are "table.key=value" with TOML values. Throws IoError, ConfigError.
NetSpec load_net(const std::filesystem::path& file, const std::vector<std::string>& overrides = {});
NetSpec parse_net(const std::string& text, const std::string& origin, std::vector<std::string> overrides = {});

/// Nodes of the paper's nets: `depth` valid convolutions of `width` feature maps, and one that maps to `out_channels`.
std::vector<NodeSpec> width_depth_nodes(index_t width, index_t depth, const Extent3& kernel,
                                        const Activation& activation, index_t out_channels);

struct UnetOptions {
  index_t width = 8, depth = 3, out_channels = 1;
  index_t convs = 2;             ///< per level and direction
  std::vector<Extent3> kernels;  ///< per level; the last repeats
  std::vector<Extent3> pools;    ///< between levels; the last repeats
  std::string norm = "none";     ///< none, group, instance, layer
  index_t groups = 8;
  bool transposed = true;  ///< transposed convolution upwards, else nearest upsampling and a convolution
  bool residual = false;
  double dropout = 0;
  Activation activation{Activation::Kind::relu, 0.01};
};
/// Encoder and decoder of `depth` levels with skip connections, same padding; width doubles per level.
std::vector<NodeSpec> unet_nodes(const UnetOptions& options);

}  // namespace convolume::nets
