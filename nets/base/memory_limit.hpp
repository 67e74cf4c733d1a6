// How much memory a process may hold.
#pragma once

#include <cstddef>

namespace convolume::nets {

/// Bytes of the program, its libraries, threads and small objects.
inline constexpr std::size_t program_bytes = std::size_t{48} << 20;

/// Least bytes that a training leaves for volumes.
inline constexpr std::size_t least_volume_bytes = std::size_t{16} << 20;

/// Returns `asked`, or three quarters of what the machine or the control group allows if it is 0.
std::size_t memory_limit(std::size_t asked);

}  // namespace convolume::nets
