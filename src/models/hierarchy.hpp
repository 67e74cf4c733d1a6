// Where the buffers of a nest lie in a memory hierarchy.
#pragma once

#include <array>

#include "models/energy_counts.hpp"

namespace convolume::plan {

/// The memory of each buffer, as an index into the levels of the hierarchy.
using Placement = std::array<std::array<std::size_t, BufferChain::most>, 3>;

/// Returns whether a memory holds elements of an operand.
bool serves(const MemoryLevel& level, Operand operand);

/// Returns whether no memory serves two operands, so that none takes room from another one.
bool is_separate(const Hierarchy& hierarchy);

/// Packs buffers into a fixed hierarchy by the rule of paper 000, section 3.5. Buffers before `first` of an operand are
/// left out.
void pack(const BufferChains& chains, const std::array<std::size_t, 3>& first, const Hierarchy& hierarchy,
          Placement& placement);

}  // namespace convolume::plan
