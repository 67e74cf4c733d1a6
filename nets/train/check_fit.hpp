// Whether a net can be trained on a data set.
#pragma once

#include "nets/data/dataset.hpp"
#include "nets/spec/net_spec.hpp"

namespace convolume::nets {

/// Throws ConfigError that names the net, the data set and the remedy unless the net can be trained on the data: its
/// patch and input channels fit the volumes, and its outputs and its loss fit the labels or the classes.
void check_fit(const NetSpec& spec, const Dataset& data);

}  // namespace convolume::nets
