// Computes what follows from a net and its input extent: shapes, fields of view, and the alignment of nodes.
#pragma once

#include <optional>
#include <vector>

#include "convolume/conv.hpp"
#include "nets/base/node_shape.hpp"
#include "nets/spec/net_spec.hpp"

namespace convolume::nets {

struct NetShapes {
  NodeShape input;
  std::vector<NodeShape> nodes;

  const NodeShape& output() const { return nodes.back(); }
  const NodeShape& of(std::size_t reference) const { return reference == 0 ? input : nodes[reference - 1]; }
  InputShapes inputs_of(const NodeSpec& node) const;
  /// Returns the input voxel at the centre of the field of view of output voxel 0. It is moved as little as needed so
  /// that the output, shifted by it, lies within the input.
  Extent3 offset() const;
  /// Return how many voxels before and behind the centre an output voxel depends on.
  Extent3 reach_before() const, reach_behind() const;
  Extent3 field_of_view() const { return reach_before() + reach_behind() + Extent3::all(1); }
  /// Returns whether an output voxel stands for one voxel of the input, along each axis. If not, the net can only be a
  /// classifier.
  bool keeps_resolution() const;
  bool one_voxel() const { return output().extent == Extent3::all(1); }
  /// Returns the period of the pooling grid: input positions that are multiples of it see the same grid.
  Extent3 alignment() const;
};

/// Throws ConfigError naming line and node if shapes do not fit together, if the output's resolution differs from the
/// input's, or if the output is larger than the input. An output of one voxel at the training patch may have any
/// resolution: the net can be a classifier.
NetShapes infer_shapes(const NetSpec& spec, const Extent3& patch);

/// Sets the keys that layers take from the extents at the training patch (Layer::resolved). Throws ConfigError naming
/// line and node if shapes do not fit together.
void resolve_layers(NetSpec& spec);

/// Throws InvalidArgument if the net can only be a classifier, because its output of one voxel at the training patch
/// has another resolution than the input. Such a net reads no other patch. `option` is what requests one.
void refuse_patch_of_classifier(const NetSpec& spec, const std::string& option);

/// Throws ConfigError that names the first node whose tensors alone, with those of a batch of the training patch, take
/// more than `most` bytes. Planning such a net would take as long as the net is large.
void require_memory_of_nodes(const NetSpec& spec, std::size_t most);

/// Returns the engine of a layer if `requested` is requested for the whole net; see takes_layer().
Engine engine_for(Engine requested, const ConvProblem& problem);

/// Returns the convolution of a node whose first input has the given shape, if its layer is one. Throws ConfigError
/// that names the node.
std::optional<ConvProblem> conv_problem(const NetSpec& spec, const NodeSpec& node, index_t batch,
                                        const NodeShape& input);

}  // namespace convolume::nets
