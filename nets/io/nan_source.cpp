#include "nets/io/nan_source.hpp"

#include <cmath>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::nets::io {
namespace {

class NanSource final : public VolumeSource {
 public:
  NanSource(std::unique_ptr<VolumeSource> source, double value)
      : VolumeSource(source->path()), source_(std::move(source)), value_(value) {
    info_ = source_->info();
  }

  std::uint64_t stored_bytes() const override { return source_->stored_bytes(); }

 private:
  void do_read(ChannelRange channels, const VoxelBox& box, std::byte* voxels) const override {
    const auto count = static_cast<std::size_t>(channels.count * box.extent.volume());
    source_->read(channels, box, {voxels, count * info_.bytes_per_voxel()});
    with_type(info_.type, [&]<class T>(T) {
      if constexpr (std::is_floating_point_v<T>) {
        const T replacement = static_cast<T>(value_);
        for (std::size_t i = 0; i < count; ++i) {
          T voxel;
          std::memcpy(&voxel, voxels + i * sizeof(T), sizeof(T));
          if (std::isnan(voxel)) std::memcpy(voxels + i * sizeof(T), &replacement, sizeof(T));
        }
      }
    });
  }

  std::unique_ptr<VolumeSource> source_;
  double value_;
};

}  // namespace

std::unique_ptr<VolumeSource> replace_nan(std::unique_ptr<VolumeSource> source, double value) {
  if (!is_floating(source->info().type)) return source;
  if (source->info().type == VoxelType::float32 && !std::isfinite(static_cast<float>(value))) {
    throw InvalidArgument(fmt::format("{}: NaN cannot become {}, which float32 cannot hold; use a smaller number",
                                      source->path().text(), value));
  }
  return std::make_unique<NanSource>(std::move(source), value);
}

}  // namespace convolume::nets::io
