#include "nets/data/resampling.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convolume/error.hpp"
#include "nets/data/stored_volume.hpp"

namespace convolume::nets {
namespace {

/// The two voxels between which a place lies, and the weight of the second one.
struct Between {
  index_t low = 0, high = 0;
  float weight = 0;
};

Between between(const Resampling& how, int axis, index_t t) {
  const index_t last = how.from.extent[axis] - 1;
  const double place = std::clamp(how.place(axis, t), 0.0, static_cast<double>(last));
  if (how.nearest || how.nearest_axis == axis) {
    const auto at = std::min(last, static_cast<index_t>(std::floor(place + 0.5)));
    return {at, at, 0};
  }
  const auto low = static_cast<index_t>(std::floor(place));
  return {low, std::min(last, low + 1), static_cast<float>(place - static_cast<double>(low))};
}

/// The four voxels around a place, and their weights in a cubic convolution with a = -0.5.
struct Taps {
  std::array<index_t, 4> at{};
  std::array<float, 4> weight{0, 1, 0, 0};
};

Taps taps(const Resampling& how, int axis, index_t t) {
  const Between cell = between(how, axis, t);
  Taps result;
  result.at.fill(cell.low);
  if (how.nearest || how.nearest_axis == axis) return result;
  const index_t last = how.from.extent[axis] - 1;
  result.at = {std::max<index_t>(0, cell.low - 1), cell.low, cell.high, std::min(last, cell.low + 2)};
  const auto u = static_cast<double>(cell.weight);
  const double weights[4] = {u * (u * (1 - u / 2) - 0.5), u * u * (1.5 * u - 2.5) + 1, u * (u * (2 - 1.5 * u) + 0.5),
                             u * u * (u - 1) / 2};
  for (std::size_t k = 0; k < 4; ++k) result.weight[k] = static_cast<float>(weights[k]);
  return result;
}

/// Returns the first and the last voxel that voxel t is made of.
std::pair<index_t, index_t> reach(const Resampling& how, int axis, index_t t) {
  const Between cell = between(how, axis, t);
  if (!how.cubic) return {cell.low, cell.high};
  const Taps all = taps(how, axis, t);
  return {all.at.front(), all.at.back()};
}

float mix(float a, float b, float weight) { return weight == 0 ? a : a + (b - a) * weight; }

void resample_cubic(const Resampling& how, const float* from, const io::VoxelBox& from_box, float* to,
                    const io::VoxelBox& box) {
  std::vector<Taps> columns;
  for (index_t x = 0; x < box.extent.x; ++x) {
    columns.push_back(taps(how, 2, box.begin.x + x));
    for (index_t& at : columns.back().at) at -= from_box.begin.x;
  }
  std::vector<float> line(static_cast<std::size_t>(from_box.extent.x));  // interpolated along Z and Y
  for (index_t z = 0; z < box.extent.z; ++z) {
    const Taps at_z = taps(how, 0, box.begin.z + z);
    for (index_t y = 0; y < box.extent.y; ++y) {
      const Taps at_y = taps(how, 1, box.begin.y + y);
      std::fill(line.begin(), line.end(), 0.0f);
      for (std::size_t i = 0; i < 16; ++i) {
        const float weight = at_z.weight[i / 4] * at_y.weight[i % 4];
        if (weight == 0) continue;
        const index_t row_z = at_z.at[i / 4] - from_box.begin.z, row_y = at_y.at[i % 4] - from_box.begin.y;
        const float* const row = from + (row_z * from_box.extent.y + row_y) * from_box.extent.x;
        for (std::size_t x = 0; x < line.size(); ++x) line[x] += weight * row[x];
      }
      for (const Taps& at_x : columns) {
        float sum = 0;
        for (std::size_t k = 0; k < 4; ++k) sum += at_x.weight[k] * line[static_cast<std::size_t>(at_x.at[k])];
        *to++ = sum;
      }
    }
  }
}

class ResampledSource final : public io::VolumeSource {
 public:
  ResampledSource(std::shared_ptr<const io::VolumeSource> source, const Resampling& how, bool as_floats)
      : VolumeSource(source->path()), source_(std::move(source)), how_(how) {
    info_ = source_->info();
    info_.extent = how.to.extent;
    for (int axis = 0; axis < 3; ++axis) {
      const double zoom = how.zoom[static_cast<std::size_t>(axis)];
      const auto chunk = static_cast<index_t>(std::lround(static_cast<double>(info_.chunk[axis]) / zoom));
      info_.chunk[axis] = std::clamp<index_t>(chunk, 1, how.to.extent[axis]);
      if (info_.spacing) info_.spacing->zyx[static_cast<std::size_t>(axis)] *= zoom;
    }
    info_.geometry.reset();
    if (as_floats) info_.type = io::VoxelType::float32;
    info_.element_type = name_of(info_.type);
  }

  std::uint64_t stored_bytes() const override { return source_->stored_bytes(); }

 private:
  static constexpr std::size_t most_bytes = std::size_t{32} << 20;

  void do_read(io::ChannelRange channels, const io::VoxelBox& box, std::byte* voxels) const override {
    const io::VoxelBox all = how_.needed(box);
    // As many planes are read at once as fit into most_bytes, or as many rows of the planes of one slice.
    const std::size_t row =
        static_cast<std::size_t>(all.extent.x) * (sizeof(float) + io::size_of(source_->info().type));
    const auto rows = static_cast<index_t>(most_bytes / row);
    const index_t planes = how_.cubic ? 4 : 2;  // of a slice
    const auto step_of = [&](index_t from, double zoom) {
      return std::max<index_t>(1, static_cast<index_t>(static_cast<double>(from - planes) / zoom));
    };
    const index_t step = step_of(rows / all.extent.y, how_.zoom[0]);
    const index_t step_y = rows / planes >= all.extent.y ? box.extent.y : step_of(rows / planes, how_.zoom[1]);
    const std::size_t size = io::size_of(info_.type);
    const index_t slice = box.extent.y * box.extent.x;
    std::vector<float> values;
    for (index_t c = 0; c < channels.count; ++c) {
      for (index_t z = 0, y = 0; z < box.extent.z; y + step_y < box.extent.y ? y += step_y : (y = 0, z += step)) {
        const io::VoxelBox part{box.begin + Extent3{z, y, 0},
                                {std::min(step, box.extent.z - z), std::min(step_y, box.extent.y - y), box.extent.x}};
        const auto from =
            StoredVolume::read(*source_, {channels.begin + c, 1}, how_.needed(part), std::pmr::get_default_resource())
                .floats(std::pmr::get_default_resource());
        values.resize(static_cast<std::size_t>(part.extent.volume()));
        resample(how_, from.data(), how_.needed(part), values.data(), part);
        std::byte* const to =
            voxels + static_cast<std::size_t>((c * box.extent.z + z) * slice + y * box.extent.x) * size;
        if (!io::is_floating(info_.type)) {
          for (float& value : values) value = std::floor(value + 0.5f);
        }
        io::convert_voxels(reinterpret_cast<const std::byte*>(values.data()), io::VoxelType::float32, to, info_.type,
                           values.size());
      }
    }
  }

  std::shared_ptr<const io::VolumeSource> source_;
  Resampling how_;
};

}  // namespace

int coarse_axis(const VoxelLengths& spacing) {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double a = spacing[(axis + 1) % 3], b = spacing[(axis + 2) % 3];
    if (spacing[axis] > 3 * std::max(a, b)) return static_cast<int>(axis);
  }
  return -1;
}

Resampling Resampling::inverse() const {
  Resampling back = *this;
  std::swap(back.from, back.to);
  for (double& z : back.zoom) z = 1 / z;
  back.cubic = false;
  return back;
}

Resampling Resampling::cut(const io::VoxelBox& box) const {
  const io::VoxelBox all = needed(box);
  Resampling part = *this;
  part.from = {from.begin + all.begin, all.extent};
  part.to = {to.begin + box.begin, box.extent};
  return part;
}

io::VoxelBox Resampling::needed(const io::VoxelBox& box) const {
  io::VoxelBox all;
  for (int axis = 0; axis < 3; ++axis) {
    all.begin[axis] = reach(*this, axis, box.begin[axis]).first;
    all.extent[axis] = reach(*this, axis, box.end()[axis] - 1).second - all.begin[axis] + 1;
  }
  return all;
}

std::optional<Resampling> resampling_of(const Extent3& extent, const VoxelLengths& spacing,
                                        const VoxelLengths& target) {
  constexpr double most = 16;
  if (spacing == target) return std::nullopt;
  Resampling how{.from = {{0, 0, 0}, extent}, .to = {}, .nearest_axis = coarse_axis(spacing)};
  for (int axis = 0; axis < 3; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    how.zoom[a] = target[a] / spacing[a];
    if (!(how.zoom[a] >= 1 / most) || !(how.zoom[a] <= most)) {
      throw InvalidArgument(fmt::format(
          "the spacing is {}, but the net gets voxels of {}; state both in the same unit, and at most {} times as long "
          "or as short",
          fmt::join(spacing, " x "), fmt::join(target, " x "), most));
    }
    how.to.extent[axis] = std::max<index_t>(1, std::llround(static_cast<double>(extent[axis]) / how.zoom[a]));
  }
  return how;
}

void resample(const Resampling& how, const float* from, const io::VoxelBox& from_box, float* to,
              const io::VoxelBox& box) {
  if (how.cubic) return resample_cubic(how, from, from_box, to, box);
  std::vector<Between> columns;
  for (index_t x = 0; x < box.extent.x; ++x) {
    columns.push_back(between(how, 2, box.begin.x + x));
    columns.back().low -= from_box.begin.x;
    columns.back().high -= from_box.begin.x;
  }
  const auto row = [&](index_t z, index_t y) {
    return from + ((z - from_box.begin.z) * from_box.extent.y + y - from_box.begin.y) * from_box.extent.x;
  };
  for (index_t z = 0; z < box.extent.z; ++z) {
    const Between at_z = between(how, 0, box.begin.z + z);
    for (index_t y = 0; y < box.extent.y; ++y) {
      const Between at_y = between(how, 1, box.begin.y + y);
      const float* const rows[4] = {row(at_z.low, at_y.low), row(at_z.low, at_y.high), row(at_z.high, at_y.low),
                                    row(at_z.high, at_y.high)};
      for (const Between& at_x : columns) {
        float along_x[4];
        for (std::size_t i = 0; i < 4; ++i) along_x[i] = mix(rows[i][at_x.low], rows[i][at_x.high], at_x.weight);
        *to++ = mix(mix(along_x[0], along_x[1], at_y.weight), mix(along_x[2], along_x[3], at_y.weight), at_z.weight);
      }
    }
  }
}

Tensor<float> resample(const Resampling& how, const View<const float>& from, std::pmr::memory_resource* memory) {
  const index_t channels = from.shape.c;
  Tensor<float> to({1, channels, how.to.extent}, memory);
  for (index_t c = 0; c < channels; ++c) {
    resample(how, from.channel(0, c), {{0, 0, 0}, how.from.extent}, to.data() + c * how.to.extent.volume(),
             {{0, 0, 0}, how.to.extent});
  }
  return to;
}

std::unique_ptr<io::VolumeSource> resampled(std::shared_ptr<const io::VolumeSource> source, const Resampling& how,
                                            bool as_floats) {
  return std::make_unique<ResampledSource>(std::move(source), how, as_floats);
}

}  // namespace convolume::nets
