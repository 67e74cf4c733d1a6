// Selects the nets of a contest, and checks that all competitors fit into memory together.
#pragma once

#include <vector>

#include "bench/net/net_side_by_side.hpp"
#include "nets/spec/net_spec.hpp"

namespace convolume::bench {

/// Returns the nets of the options' files, or W x D nets of the largest extent that the memory allows (at most 48). If
/// the memory does not suffice, throws InvalidArgument that says what to change.
std::vector<nets::NetSpec> make_nets(const NetContestOptions& options);

}  // namespace convolume::bench
