#include "nets/infer/stored_voxels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::nets {
namespace {

constexpr index_t most_classes_of_a_byte = 256;

std::uint16_t most_probable(const float* values, index_t stride, index_t channels) {
  index_t best = 0;
  for (index_t c = 1; c < channels; ++c) {
    if (values[c * stride] > values[best * stride]) best = c;
  }
  return static_cast<std::uint16_t>(best);
}

std::uint16_t byte_of(float probability) {
  return static_cast<std::uint16_t>(std::clamp(probability, 0.0f, 1.0f) * 255.0f + 0.5f);
}

}  // namespace

io::SinkOptions stored_as(Stored stored, index_t channels, const Extent3& extent) {
  io::SinkOptions options{.channels = stored == Stored::classes ? 1 : channels, .extent = extent};
  if (stored == Stored::bytes || stored == Stored::binary) options.type = io::VoxelType::uint8;
  if (stored == Stored::classes) {
    options.type = channels <= most_classes_of_a_byte ? io::VoxelType::uint8 : io::VoxelType::uint16;
  }
  return options;
}

index_t store_row(const ProbabilityRow& row, index_t channel, Stored stored, io::VoxelType type, std::byte* to) {
  const std::size_t voxel = io::size_of(type);
  const float* const from = row.values + channel * row.stride;
  if (stored == Stored::probabilities) {
    std::memcpy(to, from, static_cast<std::size_t>(row.count) * voxel);
    return row.count;
  }
  for (index_t v = 0; v < row.count; ++v) {
    if (std::isnan(from[v])) return v;
    const std::uint16_t number = stored == Stored::bytes    ? byte_of(from[v])
                                 : stored == Stored::binary ? static_cast<std::uint16_t>(from[v] >= 0.5f)
                                                            : most_probable(from + v, row.stride, row.channels);
    std::memcpy(to + static_cast<std::size_t>(v) * voxel, &number, voxel);  // the low bytes come first
  }
  return row.count;
}

void fail_nan(const std::string& name, const Extent3& voxel, io::VoxelType type) {
  throw NumericalError(
      fmt::format("{}: voxel (z {}, y {}, x {}) is NaN, which {} cannot hold; check the checkpoint, or write float32",
                  name, voxel.z, voxel.y, voxel.x, io::name_of(type)));
}

}  // namespace convolume::nets
