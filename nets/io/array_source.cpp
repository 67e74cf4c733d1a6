#include "nets/io/array_source.hpp"

#include <cstring>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "core/fork.hpp"
#include "core/lazy.hpp"
#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io {
namespace {

constexpr std::string_view prefix = "array:";

/// The registered arrays by path. ForkLock::arrays guards it.
struct Arrays {
  std::map<std::string, ArrayVoxels> by_path;
  std::uint64_t last = 0;
};

Arrays& arrays() {
  static constinit Lazy<Arrays> all;
  return all.get([] { return Arrays(); });
}

class ArraySource final : public VolumeSource {
 public:
  ArraySource(const ArrayVoxels& voxels, VolumePath path) : VolumeSource(std::move(path)), array_(voxels) {
    info_.format = "array";
    info_.channels = voxels.channels;
    info_.extent = voxels.extent;
    info_.type = voxels.type;
    info_.element_type = name_of(voxels.type);
    info_.spacing = voxels.spacing;
    info_.chunk = {1, 1, voxels.extent.x};  // rows are copied one by one
    info_.planes_of_chunks = true;
    detail::check_extent(this->path().text(), info_);
    info_.stored_bytes = static_cast<std::uint64_t>(info_.channels * info_.extent.volume()) * info_.bytes_per_voxel();
  }

 private:
  void do_read(ChannelRange channels, const VoxelBox& box, std::byte* to) const override {
    const auto bytes = static_cast<std::ptrdiff_t>(info_.bytes_per_voxel());
    const auto& [of_channel, of_plane, of_row, of_voxel] = array_.stride;
    for (index_t c = channels.begin; c < channels.begin + channels.count; ++c) {
      for (index_t z = box.begin.z; z < box.end().z; ++z) {
        for (index_t y = box.begin.y; y < box.end().y; ++y) {
          const std::byte* from = array_.voxels + c * of_channel + z * of_plane + y * of_row + box.begin.x * of_voxel;
          if (of_voxel == bytes) {
            std::memcpy(to, from, static_cast<std::size_t>(box.extent.x * bytes));
            to += box.extent.x * bytes;
            continue;
          }
          for (index_t x = 0; x < box.extent.x; ++x, from += of_voxel, to += bytes) {
            std::memcpy(to, from, static_cast<std::size_t>(bytes));
          }
        }
      }
    }
  }

  ArrayVoxels array_;
};

}  // namespace

std::array<std::ptrdiff_t, 4> dense_strides(VoxelType type, const Extent3& extent) {
  const auto voxel = static_cast<std::ptrdiff_t>(size_of(type));
  return {extent.volume() * voxel, extent.y * extent.x * voxel, extent.x * voxel, voxel};
}

std::unique_ptr<VolumeSource> array_source(const ArrayVoxels& voxels, VolumePath path) {
  return std::make_unique<ArraySource>(voxels, std::move(path));
}

std::string register_array(const ArrayVoxels& voxels) {
  const std::lock_guard lock(fork_lock(ForkLock::arrays));
  std::string path = fmt::format("{}{}", prefix, ++arrays().last);
  arrays().by_path.emplace(path, voxels);
  return path;
}

void forget_array(const std::string& path) noexcept {
  const std::lock_guard lock(fork_lock(ForkLock::arrays));
  arrays().by_path.erase(path);
}

bool is_array_path(std::string_view path) {
  if (!path.starts_with(prefix)) return false;
  const std::lock_guard lock(fork_lock(ForkLock::arrays));
  return arrays().by_path.contains(std::string(path));
}

ArrayVoxels array_at(const VolumePath& path) {
  const std::lock_guard lock(fork_lock(ForkLock::arrays));
  const auto found = arrays().by_path.find(path.text());
  if (found != arrays().by_path.end()) return found->second;
  throw IoError(
      fmt::format("{}: there is no such array, or it has ended; keep its ArrayVolume while it is read", path.text()));
}

}  // namespace convolume::nets::io
