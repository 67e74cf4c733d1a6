// Rounds sizes up to whole cache lines.
#pragma once

#include <cstddef>

namespace convolume::conv {

/// Returns `bytes`, rounded up to whole cache lines of 64 bytes.
constexpr std::size_t whole_lines(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

}  // namespace convolume::conv
