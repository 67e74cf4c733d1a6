#include "nets/io/voxel_type.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::nets::io {
namespace {

/// Converts a number, and notes if it does not fit.
template <class To, class From>
To converted(From value, bool& fits) {
  using Limits = std::numeric_limits<To>;
  if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_floating_point_v<From>) {
    // 2^(bits) is exact as a float, while the largest integer may be rounded up to it.
    const From above = std::ldexp(From{1}, Limits::digits), below = static_cast<From>(Limits::min());
    const From nearest = std::nearbyint(value);
    if (nearest >= below && nearest < above) return static_cast<To>(nearest);
    fits = false;
    return std::isnan(value) ? To{0} : nearest < below ? Limits::min() : Limits::max();
  } else {
    if (std::in_range<To>(value)) return static_cast<To>(value);
    fits = false;
    return value < From{0} ? Limits::min() : Limits::max();
  }
}

}  // namespace

VoxelType parse_voxel_type(std::string_view name) {
  std::string names;
  for (int i = 0; i <= static_cast<int>(VoxelType::float64); ++i) {
    const auto type = static_cast<VoxelType>(i);
    if (name_of(type) == name) return type;
    names += fmt::format("{}{}", i == 0 ? "" : ", ", name_of(type));
  }
  throw InvalidArgument(fmt::format("'{}' is not a type of voxels; use one of {}", name, names));
}

std::size_t convert_voxels(const std::byte* from, VoxelType from_type, std::byte* to, VoxelType to_type,
                           std::size_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, count * size_of(to_type));
    return count;
  }
  std::size_t first = count;
  with_type(from_type, [&]<class From>(From) {
    with_type(to_type, [&]<class To>(To) {
      for (std::size_t i = 0; i < count; ++i) {
        From value;
        std::memcpy(&value, from + i * sizeof(From), sizeof(From));
        bool fits = true;
        const To result = converted<To>(value, fits);
        std::memcpy(to + i * sizeof(To), &result, sizeof(To));
        if (!fits) first = std::min(first, i);
      }
    });
  });
  return first;
}

std::string text_of(const std::byte* voxel, VoxelType type) {
  return with_type(type, [&]<class T>(T) {
    T value;
    std::memcpy(&value, voxel, sizeof(T));
    return fmt::format("{}", value);
  });
}

void swap_bytes(std::byte* voxels, std::size_t bytes, std::size_t count) {
  if (bytes == 1) return;
  for (std::size_t i = 0; i < count; ++i) std::reverse(voxels + i * bytes, voxels + (i + 1) * bytes);
}

}  // namespace convolume::nets::io
