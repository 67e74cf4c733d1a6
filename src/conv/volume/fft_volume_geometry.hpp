// Describes what fft_volume transforms: the padded volume, the places of both tensors in it, and the plans of both
// sides.
#pragma once

#include <memory>

#include "conv/tensor_io/volume_map.hpp"
#include "convolume/fft.hpp"
#include "core/checked.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {

/// The geometry of a problem, independent of the direction; see Side.
struct FftVolumeGeometry {
  explicit FftVolumeGeometry(const ConvProblem& problem);

  const Side& x_side() const noexcept { return sides.x(high_res, low_res); }
  const Side& y_side() const noexcept { return sides.y(high_res, low_res); }

  plan::Sides sides;
  Side high_res, low_res;
  bool planar;         ///< the kernel has one plane and relates equal planes, so nothing is transformed along Z
  Extent3 transform;   ///< extent of one transform
  index_t transforms;  ///< transforms per feature map
  VolumeGeometry volume;
  fft::Order order;
};

/// The transforms of one side: forward and backward plans for its extent.
struct Transforms {
  Transforms(const FftVolumeGeometry& geometry, const Side& side, DataType type, const fft::Options& options);

  /// Returns options with which other plans get the same FFT backend, even if these plans selected it by measuring.
  const fft::Options& options() const { return options_; }

  index_t planes;  ///< planes of the volume that are loaded
  std::unique_ptr<fft::Plan> forward, inverse;

 private:
  fft::Options options_;
};

}  // namespace convolume::conv
