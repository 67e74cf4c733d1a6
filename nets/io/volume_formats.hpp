// Functions that the formats behind volume.hpp implement and share. Private to this room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory_resource>
#include <string>
#include <string_view>

#include "nets/io/volume.hpp"

namespace convolume::nets::io::detail {

// Largest ratio of decoded to stored bytes of any lossless codec that we accept (Zstandard's run-length blocks come
// closest). A file that declares more has a false size.
inline constexpr std::uint64_t largest_compression_ratio = 65536;

VolumeInfo inspect_tiff(const std::filesystem::path& file);
Tensor<float> read_tiff(const std::filesystem::path& file, const ReadOptions& options,
                        std::pmr::memory_resource* memory);
void write_tiff(const std::filesystem::path& file, const View<const float>& volume, const WriteOptions& options);

std::string tiff_version();
std::string hdf5_version();

VolumeInfo inspect_hdf5(const std::filesystem::path& file, const std::string& dataset);
Tensor<float> read_hdf5(const std::filesystem::path& file, const ReadOptions& options,
                        std::pmr::memory_resource* memory);
void write_hdf5(const std::filesystem::path& file, const View<const float>& volume, const WriteOptions& options);

/// Throws FormatError if the float volume would take more than `max_bytes`.
void require_budget(const std::filesystem::path& file, const Extent3& extent, std::size_t max_bytes);
/// Throws FormatError naming the first voxel that is not finite.
void require_finite(const std::filesystem::path& file, const Tensor<float>& volume);
/// Maps 0..1 to 0..255, rounded and clamped. Throws NumericalError for NaN.
std::uint8_t to_byte(const std::filesystem::path& file, float value);

}  // namespace convolume::nets::io::detail
