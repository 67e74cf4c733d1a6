// Offsets in one arena for buffers that need not all exist at once.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace convolume::allocator {

struct ArenaPlan {
  std::vector<std::size_t> offsets;  ///< of each buffer, multiples of 64
  std::size_t bytes = 0;             ///< of the arena
};

/// Places buffers so that no two that conflict share a byte: an interference graph with weights, coloured greedily,
/// each buffer at the lowest offset that serves (as in Pisarchyk and Lee, "Efficient Memory Management for Deep Neural
/// Net Inference", 2020), in several orders, the largest first among them. Buffers without bytes get offset 0 and
/// conflict with none. `conflict` is symmetric. A function of its arguments alone.
ArenaPlan plan_arena(std::span<const std::size_t> bytes, const std::function<bool(std::size_t, std::size_t)>& conflict);

}  // namespace convolume::allocator
