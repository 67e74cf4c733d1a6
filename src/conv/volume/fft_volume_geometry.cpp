#include "conv/volume/fft_volume_geometry.hpp"

#include <algorithm>

namespace convolume::conv {

FftVolumeGeometry::FftVolumeGeometry(const ConvProblem& problem) : sides(problem) {
  const ConvProblem& p = sides.convolution();
  high_res = {.channels = p.in_channels, .extent = p.input, .offset = p.pad_before};
  low_res = {.channels = p.out_channels, .extent = p.output(), .offset = {0, 0, 0}, .step = p.stride};
  // A kernel of one plane relates equal planes. Then nothing is transformed along Z, and the spectrum of the kernel is
  // one plane.
  planar = p.kernel.z == 1 && p.stride.z == 1 && p.pad_before.z == 0 && high_res.extent.z == low_res.extent.z;
  const Extent3 padded = high_res.extent + p.pad_before + p.pad_after;
  const Extent3 full{planar ? 1 : fft::good_size(padded.z), fft::good_size(padded.y), fft::good_size(padded.x)};
  transform = full;
  transforms = planar ? high_res.extent.z : 1;
  const index_t unit = planar ? static_cast<index_t>(64 / size_of(p.type)) : 1;
  volume = {.extent = {planar ? high_res.extent.z : full.z, full.y, full.x},
            .plane_stride = round_up(full.y * full.x, unit)};
  // The rotated order pads its inner axis Z. If this costs more than the order saves, the natural order is used.
  const auto z_unit = static_cast<index_t>(64 / (2 * size_of(p.type)));
  const bool rotated = !planar && 4 * round_up(full.z, z_unit) <= 5 * full.z;
  order = rotated ? fft::Order::rotated : fft::Order::natural;
}

Transforms::Transforms(const FftVolumeGeometry& g, const Side& side, DataType type, const fft::Options& options)
    : options_(options) {
  options_.z_first = false;
  fft::Problem problem{.type = type, .kind = fft::Kind::r2c, .extent = g.transform, .order = g.order};
  planes = g.planar ? side.extent.z : g.transform.z;
  // Only the rotated order can skip planes that are zero.
  if (g.order == fft::Order::rotated) planes = problem.support.z = std::min(side.last_plane(), g.transform.z);
  forward = std::make_unique<fft::Plan>(fft::Plan::make(problem, options_));
  options_.backend = forward->backend();
  problem.kind = fft::Kind::c2r;
  inverse = std::make_unique<fft::Plan>(fft::Plan::make(problem, options_));
}

}  // namespace convolume::conv
