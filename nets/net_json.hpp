// A net as JSON, for other implementations of it.
#pragma once

#include <string>

#include "nets/net_spec.hpp"

namespace convolume::nets {

/// The description with all that follows from it written out: generators expanded to nodes, defaults and inputs named,
/// shapes of weights, what joins crop. Keys are those of the TOML file; nodes have further ones: "extent" of the
/// output, "weight_shape" (convolutions), "channels" (norms), "crop": the first voxel that is taken of each input
/// (concat, add). Throws ConfigError where shapes do not work out.
std::string to_json(const NetSpec& spec);

}  // namespace convolume::nets
