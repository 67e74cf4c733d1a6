#include "nets/io/volume.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "core/checked.hpp"
#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io {
namespace {

void require_budget(const VolumeSource& source, std::size_t max_bytes) {
  const VolumeInfo& info = source.info();
  const auto too_large = [&](const std::string& bytes) {
    throw FormatError(fmt::format(
        "{}: {} channels of {} voxels take {} bytes as float, but at most {} are allowed; crop the volume or "
        "raise max_bytes",
        source.path().text(), info.channels, to_string(info.extent), bytes, max_bytes));
  };
  index_t bytes = 0;
  try {
    bytes = checked_mul(checked_mul(info.extent.volume(), info.channels), index_t{sizeof(float)});
  } catch (const OverflowError&) {
    too_large("more than 2^63");
  }
  if (std::cmp_greater(bytes, max_bytes)) too_large(std::to_string(bytes));
  // Only a Zarr may have fewer bytes than its size needs, because absent chunks have the fill value.
  constexpr std::uint64_t free = std::uint64_t{64} << 20;
  const auto most = free + detail::largest_compression_ratio * source.stored_bytes();
  if (std::cmp_less_equal(bytes, most)) return;
  throw FormatError(
      fmt::format("{}: {} voxels are declared, but only {} bytes are stored; read it box by box, or crop it "
                  "with convolume convert",
                  source.path().text(), to_string(info.extent), source.stored_bytes()));
}

void require_finite(const std::string& file, const Tensor<float>& volume) {
  const float* const data = volume.data();
  for (index_t i = 0; i < volume.elements(); ++i) {
    if (std::isfinite(data[i])) continue;
    const Extent3 extent = volume.shape().extent;
    throw FormatError(
        fmt::format("{}: voxel (z {}, y {}, x {}) is {} as float; replace such values, or read without "
                    "require_finite",
                    file, i / (extent.y * extent.x) % extent.z, i / extent.x % extent.y, i % extent.x, data[i]));
  }
}

/// Returns a number of planes that takes a few MiB.
index_t planes_at_a_time(const Extent3& extent, std::size_t bytes_per_voxel, index_t chunk) {
  constexpr index_t target = index_t{16} << 20;
  const index_t plane = std::max<index_t>(1, extent.y * extent.x * static_cast<index_t>(bytes_per_voxel));
  const index_t planes = std::max<index_t>(1, target / plane);
  return std::min(extent.z, std::max(chunk, planes / std::max<index_t>(1, chunk) * chunk));
}

std::uint8_t to_byte(const std::string& file, float value) {
  if (std::isnan(value)) {
    throw NumericalError(fmt::format("{}: a voxel is NaN, which uint8 cannot hold; write float32", file));
  }
  return static_cast<std::uint8_t>(std::clamp(value, 0.0f, 1.0f) * 255.0f + 0.5f);
}

}  // namespace

VolumeInfo inspect_volume(const VolumePath& path) {
  const auto source = open_volume(path);
  VolumeInfo info = source->info();
  info.stored_bytes = source->stored_bytes();
  return info;
}

Tensor<float> read_volume(const VolumePath& path, const ReadOptions& options, std::pmr::memory_resource* memory) {
  const auto source = open_volume(path);
  const VolumeInfo& info = source->info();
  require_budget(*source, options.max_bytes);
  Tensor<float> volume({.n = 1, .c = info.channels, .extent = info.extent}, memory);
  const Extent3& e = info.extent;
  const index_t planes = planes_at_a_time(e, info.bytes_per_voxel(), info.chunk.z);
  std::vector<std::byte> buffer;
  for (index_t c = 0; c < info.channels; ++c) {
    for (index_t z = 0; z < e.z; z += planes) {
      const VoxelBox box{{z, 0, 0}, {std::min(planes, e.z - z), e.y, e.x}};
      const auto count = static_cast<std::size_t>(box.extent.volume());
      float* const target = volume.data() + (c * e.z + z) * e.y * e.x;
      const std::span<std::byte> bytes{reinterpret_cast<std::byte*>(target), count * sizeof(float)};
      if (info.type == VoxelType::float32) {
        source->read({c, 1}, box, bytes);
        continue;
      }
      buffer.resize(count * info.bytes_per_voxel());
      source->read({c, 1}, box, buffer);
      convert_voxels(buffer.data(), info.type, bytes.data(), VoxelType::float32, count);
    }
  }
  if (options.require_finite) require_finite(path.text(), volume);
  return volume;
}

void write_volume(const VolumePath& path, const View<const float>& volume, const WriteOptions& options) {
  const Shape5& shape = volume.shape;
  if (!volume || shape.n != 1 || shape.c < 1 || shape.extent.z < 1 || shape.extent.y < 1 || shape.extent.x < 1) {
    throw InvalidArgument(fmt::format("{}: a view of shape {} cannot be written; pass one volume with voxels (N = 1)",
                                      path.text(), to_string(shape)));
  }
  const Extent3& e = shape.extent;
  const bool bytes_only = options.element_type == ElementType::uint8;
  const VoxelType type = bytes_only ? VoxelType::uint8 : VoxelType::float32;
  const auto sink = create_volume(path, {.channels = shape.c, .extent = e, .type = type});
  constexpr index_t chunk_planes = 64;  // no format has chunks of more planes by default
  const index_t planes = planes_at_a_time(e, size_of(type), std::min(e.z, chunk_planes));
  std::vector<std::byte> buffer;
  for (index_t c = 0; c < shape.c; ++c) {
    for (index_t z0 = 0; z0 < e.z; z0 += planes) {
      const VoxelBox box{{z0, 0, 0}, {std::min(planes, e.z - z0), e.y, e.x}};
      buffer.resize(static_cast<std::size_t>(box.extent.volume()) * size_of(type));
      std::byte* to = buffer.data();
      for (index_t z = z0; z < box.end().z; ++z) {
        for (index_t y = 0; y < e.y; ++y) {
          for (index_t x = 0; x < e.x; ++x, to += size_of(type)) {
            const float value = volume(0, c, z, y, x);
            if (bytes_only) {
              *to = std::byte{to_byte(path.text(), value)};
            } else {
              std::memcpy(to, &value, sizeof value);
            }
          }
        }
      }
      sink->write({c, 1}, box, buffer);
    }
  }
  sink->finish();
}

std::string format_versions() {
  std::string all;
  for (const detail::VolumeFormat& format : detail::volume_formats()) {
    if (!all.empty()) all += '\n';
    all += format.version();
  }
  return all;
}

}  // namespace convolume::nets::io
