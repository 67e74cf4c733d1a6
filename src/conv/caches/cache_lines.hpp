// Sizes in whole lines of the cache.
#pragma once

#include <cstddef>

namespace convolume::conv {

/// `bytes`, rounded up to lines of the cache.
constexpr std::size_t whole_lines(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

}  // namespace convolume::conv
