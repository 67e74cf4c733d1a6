// Describes a net: nodes in topological order, loss, optimiser and training defaults.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "convolume/conv.hpp"
#include "nets/layers/layer.hpp"
#include "ops/losses.hpp"
#include "ops/optimizer.hpp"

namespace convolume::nets {

struct NodeSpec {
  std::string name;
  std::vector<std::size_t> inputs;  ///< index of the node + 1; 0 is the net's input
  std::shared_ptr<const Layer> layer;
  int line = 0;  ///< line in the file; 0 for generated nodes
};

enum class OptimizerKind { sgd, adam };

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::adam;
  ops::SgdOptions sgd{};
  ops::AdamOptions adam{};
  double learning_rate = 1e-3;
  double clip_norm = 0;     ///< largest L2 norm of all gradients together; 0: no clipping
  index_t warmup = 0;       ///< iterations over which the learning rate rises from 0
  index_t decay_every = 0;  ///< the rate is multiplied by decay_factor after each so many iterations; 0: never
  double decay_factor = 0.5;

  /// Returns the learning rate of iteration `step`, counted from 1. It does not depend on the run's total number of
  /// iterations, so a run may be extended.
  double rate_at(index_t step) const;
};

struct TrainingSpec {
  index_t batch = 1;
  index_t iterations = 1000, validate_every = 200, checkpoint_every = 200;
  std::string best;        ///< score of the validation whose best checkpoint is kept; empty: none
  index_t early_stop = 0;  ///< validations without a better one that end the training; 0: it never ends early
};

struct NetSpec {
  std::string name, origin;  ///< origin: the file name for error messages
  index_t in_channels = 1;
  Extent3 patch{};  ///< input extent of a training iteration
  std::vector<NodeSpec> nodes;
  ops::LossOptions loss{};
  OptimizerSpec optimizer{};
  TrainingSpec training{};
  std::string source;  ///< the TOML text followed by the overrides; parse_net reads it back

  /// Returns whether the loss makes probabilities a softmax over channels.
  bool softmax() const { return loss.kind == ops::LossKind::softmax_cross_entropy; }
  /// Returns whether the loss makes probabilities a sigmoid per channel. The loss `square` has neither.
  bool sigmoid() const { return !softmax() && loss.kind != ops::LossKind::square; }
  /// Returns the nodes as text. Nets with equal text compute the same function of equal parameters.
  std::string architecture() const;
  /// Returns as text everything that decides what an iteration does to the parameters.
  std::string recipe() const;
};

/// Reads a description. `overrides` are "table.key=value" with TOML values. Throws IoError, ConfigError.
NetSpec load_net(const std::filesystem::path& file, const std::vector<std::string>& overrides = {});
NetSpec parse_net(const std::string& text, const std::string& origin, std::vector<std::string> overrides = {});

/// Returns the nodes of the paper's nets: `depth` valid convolutions with `width` channels each; the last one has
/// `out_channels` instead.
std::vector<NodeSpec> width_depth_nodes(index_t width, index_t depth, const Extent3& kernel,
                                        const Activation& activation, index_t out_channels);

struct UnetOptions {
  index_t width = 8, depth = 3, out_channels = 1;
  index_t convs = 2;             ///< convolutions per level and direction
  std::vector<Extent3> kernels;  ///< one per level; the last one repeats
  std::vector<Extent3> pools;    ///< one between two levels; the last one repeats
  std::string norm = "none";     ///< none, group, instance, layer
  index_t groups = 8;
  bool transposed = true;  ///< decoder: transposed convolution; otherwise nearest-neighbour upsampling and a
                           ///< convolution
  bool residual = false;
  double dropout = 0;
  Activation activation{Activation::Kind::relu, 0.01};
};
/// Returns an encoder and a decoder of `depth` levels with skip connections and same padding. The width doubles per
/// level.
std::vector<NodeSpec> unet_nodes(const UnetOptions& options);

}  // namespace convolume::nets
