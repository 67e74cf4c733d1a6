// Writes a net as JSON, for other implementations of the same net.
#pragma once

#include <string>

#include "nets/spec/net_spec.hpp"

namespace convolume::nets {

/// Returns the description with everything that follows from it written out: generators are expanded to nodes, and
/// defaults, inputs, weight shapes and crops are named. Keys are the keys of the TOML file. Nodes have further keys:
/// "extent" of the output, "weight_shape" (convolutions), "channels" (norms), and "crop" (concat, add): the first voxel
/// that is taken of each input. Throws ConfigError if the shapes do not fit together.
std::string to_json(const NetSpec& spec);

}  // namespace convolume::nets
