// The types in which voxels are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace convolume::nets::io {

enum class VoxelType : std::uint8_t { uint8, int8, uint16, int16, uint32, int32, uint64, int64, float32, float64 };

/// Calls f(T{}) with the C++ type of a voxel type, and returns its result.
template <class F>
constexpr decltype(auto) with_type(VoxelType type, F&& f) {
  switch (type) {
    case VoxelType::uint8:
      return f(std::uint8_t{});
    case VoxelType::int8:
      return f(std::int8_t{});
    case VoxelType::uint16:
      return f(std::uint16_t{});
    case VoxelType::int16:
      return f(std::int16_t{});
    case VoxelType::uint32:
      return f(std::uint32_t{});
    case VoxelType::int32:
      return f(std::int32_t{});
    case VoxelType::uint64:
      return f(std::uint64_t{});
    case VoxelType::int64:
      return f(std::int64_t{});
    case VoxelType::float32:
      return f(float{});
    case VoxelType::float64:
      break;
  }
  return f(double{});
}

/// Returns the voxel type of integers or floats of `bytes` bytes each. `bytes` is 1, 2, 4 or 8; floats have 4 or 8.
constexpr VoxelType voxel_type(bool floating, bool is_signed, std::size_t bytes) noexcept {
  if (floating) return bytes == 4 ? VoxelType::float32 : VoxelType::float64;
  switch (bytes) {
    case 1:
      return is_signed ? VoxelType::int8 : VoxelType::uint8;
    case 2:
      return is_signed ? VoxelType::int16 : VoxelType::uint16;
    case 4:
      return is_signed ? VoxelType::int32 : VoxelType::uint32;
    default:
      return is_signed ? VoxelType::int64 : VoxelType::uint64;
  }
}

constexpr std::size_t size_of(VoxelType type) noexcept {
  return with_type(type, [](auto value) { return sizeof(value); });
}
constexpr bool is_floating(VoxelType type) noexcept { return type >= VoxelType::float32; }
constexpr bool is_signed(VoxelType type) noexcept {
  return with_type(type, [](auto value) { return std::is_signed_v<decltype(value)>; });
}

/// Returns "uint8", "float32", ...
constexpr std::string_view name_of(VoxelType type) noexcept {
  constexpr std::string_view names[] = {"uint8", "int8",   "uint16", "int16",   "uint32",
                                        "int32", "uint64", "int64",  "float32", "float64"};
  return names[static_cast<std::size_t>(type)];
}

/// Returns the type with this name. Throws InvalidArgument that lists the names.
VoxelType parse_voxel_type(std::string_view name);

/// Converts `count` voxels. Floats are rounded to the nearest integer, and integers to the nearest float. A number that
/// an integer type cannot hold becomes the nearest one that it can, and NaN becomes 0. Returns the number of the first
/// voxel that does not fit its new type, or `count`. Buffers may be unaligned, and must not overlap.
std::size_t convert_voxels(const std::byte* from, VoxelType from_type, std::byte* to, VoxelType to_type,
                           std::size_t count);

/// Returns a voxel as text.
std::string text_of(const std::byte* voxel, VoxelType type);

/// Reverses the bytes of each voxel in place.
void swap_bytes(std::byte* voxels, std::size_t bytes_per_voxel, std::size_t count);
inline void swap_bytes(std::byte* voxels, VoxelType type, std::size_t count) {
  swap_bytes(voxels, size_of(type), count);
}

}  // namespace convolume::nets::io
