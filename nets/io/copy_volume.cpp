#include "nets/io/copy_volume.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::nets::io {
namespace {

/// Reads boxes that suit both files, converts them and writes them.
class Conversion {
 public:
  Conversion(const VolumeSource& source, VolumeSink& sink, const VoxelBox& box, index_t first_channel,
             std::size_t bytes)
      : source_(source), sink_(sink), box_(box), first_channel_(first_channel), target_(static_cast<index_t>(bytes)) {}

  void run(const std::function<void(double)>& progress) {
    const Extent3 &e = box_.extent, step = steps();
    index_t done = 0;
    const index_t all = sink_.options().channels * e.volume();
    for (index_t c = 0; c < sink_.options().channels; ++c) {
      for (index_t z = 0; z < e.z; z += step.z) {
        for (index_t y = 0; y < e.y; y += step.y) {
          const VoxelBox part{{z, y, 0}, {std::min(step.z, e.z - z), std::min(step.y, e.y - y), e.x}};
          copy(c, part);
          done += part.extent.volume();
          if (progress) progress(static_cast<double>(done) / static_cast<double>(all));
        }
      }
    }
  }

 private:
  /// Returns the extent of a part: layers of chunks of the target, and parts of layers if these are too large.
  Extent3 steps() const {
    const Extent3& e = box_.extent;
    const auto bytes =
        static_cast<index_t>(std::max(source_.info().bytes_per_voxel(), std::uint64_t{size_of(sink_.options().type)}));
    const index_t chunk = std::min(e.z, sink_.options().chunk.z > 0 ? sink_.options().chunk.z : 64);
    const index_t plane = e.y * e.x * bytes;
    if (chunk * plane <= target_) return {std::min(e.z, target_ / plane / chunk * chunk), e.y, e.x};
    // Rows of chunks, so that each chunk is written once.
    const index_t rows = std::max<index_t>(1, target_ / (chunk * e.x * bytes) / 64) * 64;
    return {std::min(chunk, e.z), std::min(rows, e.y), e.x};
  }

  void copy(index_t c, const VoxelBox& part) {
    const VoxelType from = source_.info().type, to = sink_.options().type;
    const auto count = static_cast<std::size_t>(part.extent.volume());
    read_.resize(count * size_of(from));
    const VoxelBox box{box_.begin + part.begin, part.extent};
    source_.read({first_channel_ + c, 1}, box, read_);
    if (from == to) return sink_.write({c, 1}, part, read_);
    converted_.resize(count * size_of(to));
    const std::size_t wrong = convert_voxels(read_.data(), from, converted_.data(), to, count);
    if (wrong < count) {
      const auto i = static_cast<index_t>(wrong);
      const Extent3& e = part.extent;
      const std::string text = text_of(read_.data() + wrong * size_of(from), from);
      throw InvalidArgument(
          fmt::format("{}: voxel (z {}, y {}, x {}){} is {}, which {} cannot hold; {}", source_.path().text(),
                      box.begin.z + i / (e.y * e.x), box.begin.y + i / e.x % e.y, box.begin.x + i % e.x,
                      source_.info().turned ? turned_text : "", text, name_of(to),
                      text.ends_with("nan") ? "only floats hold it (--type float32), or replace it, for example by 0 "
                                              "(--nan 0)"
                                            : "use a wider type (--type)"));
    }
    sink_.write({c, 1}, part, converted_);
  }

  const VolumeSource& source_;
  VolumeSink& sink_;
  VoxelBox box_;
  index_t first_channel_, target_;
  std::vector<std::byte> read_, converted_;
};

}  // namespace

std::optional<Geometry> geometry_of_part(std::optional<Geometry> geometry, const Extent3& begin) {
  if (!geometry || begin == Extent3{0, 0, 0}) return geometry;
  const auto moved = [&](const std::array<double, 12>& m, std::size_t row) {
    return m[4 * row] * static_cast<double>(begin.x) + m[4 * row + 1] * static_cast<double>(begin.y) +
           m[4 * row + 2] * static_cast<double>(begin.z) + m[4 * row + 3];
  };
  Geometry qform = *geometry;
  qform.sform_code = 0;
  const auto q = qform.affine();
  for (std::size_t row = 0; row < 3; ++row) {
    if (geometry->qform_code > 0) geometry->offset[row] = moved(q, row);
    geometry->srow[4 * row + 3] = moved(qform.srow, row);
  }
  return geometry;
}

void copy_volume(const VolumeSource& source, VolumeSink& sink, const Extent3& begin, index_t first_channel,
                 const std::function<void(double)>& progress, std::size_t bytes) {
  Conversion(source, sink, {begin, sink.options().extent}, first_channel, bytes).run(progress);
}

}  // namespace convolume::nets::io
