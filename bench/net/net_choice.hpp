// Which nets a contest is about, and whether its contestants fit into memory together.
#pragma once

#include <vector>

#include "bench/net/net_side_by_side.hpp"
#include "nets/net_spec.hpp"

namespace convolume::bench {

/// The nets of the options' files, or W x D nets of the largest extent that memory allows, at most 48. Throws
/// InvalidArgument, with what to change, where memory does not suffice.
std::vector<nets::NetSpec> make_nets(const NetContestOptions& options);

}  // namespace convolume::bench
