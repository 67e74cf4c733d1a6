// Offsets in one arena for buffers that do not all exist at the same time.
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

/// Places buffers so that two buffers that conflict share no byte. This colours a weighted interference graph greedily:
/// each buffer gets the lowest offset that fits (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
/// Inference", 2020). Several orders are tried, largest buffer first among them. Each order is tried again with the
/// buffers that end highest nearer to the front. The smallest arena wins. Buffers of zero bytes get offset 0 and
/// conflict with none. `conflict` must be symmetric. The result depends on the arguments only.
ArenaPlan plan_arena(std::span<const std::size_t> bytes, const std::function<bool(std::size_t, std::size_t)>& conflict);

}  // namespace convolume::allocator
