#include "nets/io/reopened_source.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::nets::io {
namespace {

class ReopenedSource final : public VolumeSource {
 public:
  explicit ReopenedSource(const VolumeSource& source) : VolumeSource(source.path()), stored_(source.stored_bytes()) {
    info_ = source.info();
  }

  std::uint64_t stored_bytes() const override { return stored_; }

 private:
  void do_read(ChannelRange channels, const VoxelBox& box, std::byte* voxels) const override {
    const auto source = open_volume(path());
    const VolumeInfo& now = source->info();
    if (now.extent != info_.extent || now.type != info_.type || now.channels != info_.channels) {
      throw IoError(fmt::format("{}: changed while it was read; begin again", path().text()));
    }
    source->read(channels, box,
                 {voxels, static_cast<std::size_t>(channels.count * box.extent.volume()) * now.bytes_per_voxel()});
  }

  std::uint64_t stored_;
};

}  // namespace

std::unique_ptr<VolumeSource> open_for_each_read(const VolumePath& path) {
  return std::make_unique<ReopenedSource>(*open_volume(path));
}

}  // namespace convolume::nets::io
