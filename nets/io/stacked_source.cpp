#include "nets/io/stacked_source.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::nets::io {
namespace {

bool fits_float32(VoxelType type) { return type == VoxelType::float32 || (!is_floating(type) && size_of(type) <= 2); }

void require_alike(const VolumeSource& a, const VolumeSource& b) {
  const VolumeInfo &first = a.info(), &other = b.info();
  if (first.extent != other.extent) {
    throw ShapeMismatch(fmt::format("{} has {} voxels, but {} has {}; channels must have equal extents",
                                    b.path().text(), to_string(other.extent), a.path().text(),
                                    to_string(first.extent)));
  }
  if (!first.geometry || !other.geometry) return;
  constexpr double most = 1e-3;  // voxels
  const double distance = distance_in_voxels(*first.geometry, *other.geometry, first.extent);
  if (distance <= most) return;
  throw ShapeMismatch(
      fmt::format("{} lies up to {:.3g} voxels away from {}, by the geometries of the files; resample it, or correct "
                  "its header",
                  b.path().text(), distance, a.path().text()));
}

class StackedSource final : public VolumeSource {
 public:
  explicit StackedSource(std::vector<std::unique_ptr<VolumeSource>> parts)
      : VolumeSource(parts.front()->path()), parts_(std::move(parts)) {
    info_ = parts_.front()->info();
    info_.chunk_channels = 1;
    for (std::size_t i = 1; i < parts_.size(); ++i) {
      require_alike(*parts_.front(), *parts_[i]);
      const VolumeInfo& other = parts_[i]->info();
      info_.channels += other.channels;
      info_.stored_bytes += other.stored_bytes;
      if (info_.type == other.type) continue;
      info_.type = fits_float32(info_.type) && fits_float32(other.type) ? VoxelType::float32 : VoxelType::float64;
    }
    info_.element_type = name_of(info_.type);
  }

  std::uint64_t stored_bytes() const override {
    std::uint64_t bytes = 0;
    for (const auto& part : parts_) bytes += part->stored_bytes();
    return bytes;
  }

 private:
  void do_read(ChannelRange channels, const VoxelBox& box, std::byte* voxels) const override {
    const auto channel = static_cast<std::size_t>(box.extent.volume());
    index_t first = 0;  // of the current part
    for (const auto& part : parts_) {
      const index_t begin = std::max(channels.begin, first);
      const index_t end = std::min(channels.begin + channels.count, first + part->info().channels);
      if (begin < end) {
        const std::size_t count = static_cast<std::size_t>(end - begin) * channel;
        std::byte* const to = voxels + static_cast<std::size_t>(begin - channels.begin) * channel * size_of(info_.type);
        read_part(*part, {begin - first, end - begin}, box, to, count);
      }
      first += part->info().channels;
    }
  }

  void read_part(const VolumeSource& part, ChannelRange channels, const VoxelBox& box, std::byte* to,
                 std::size_t count) const {
    const VoxelType type = part.info().type;
    if (type == info_.type) return part.read(channels, box, {to, count * size_of(type)});
    std::vector<std::byte> own(count * size_of(type));
    part.read(channels, box, own);
    convert_voxels(own.data(), type, to, info_.type, count);
  }

  std::vector<std::unique_ptr<VolumeSource>> parts_;
};

}  // namespace

std::unique_ptr<VolumeSource> stack_channels(std::vector<std::unique_ptr<VolumeSource>> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<StackedSource>(std::move(parts));
}

}  // namespace convolume::nets::io
