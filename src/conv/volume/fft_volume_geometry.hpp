// What fft_volume transforms: the padded volume, where both tensors lie in it, and the plans of their ends.
#pragma once

#include <memory>

#include "conv/tensor_io/volume_map.hpp"
#include "convolume/fft.hpp"
#include "core/checked.hpp"

namespace convolume::conv {

/// The geometry of a problem seen without direction; see Side.
struct FftVolumeGeometry {
  explicit FftVolumeGeometry(const ConvProblem& problem);

  Side fine, coarse;
  bool planar;         ///< a kernel of one plane relates equal planes: nothing is transformed along Z
  Extent3 transform;   ///< what one transform covers
  index_t transforms;  ///< transforms per feature map
  VolumeGeometry volume;
  fft::Order order;
};

/// What crosses between space and frequencies on one side: forward and backward plans for its extent.
struct Transforms {
  Transforms(const FftVolumeGeometry& geometry, const Side& side, DataType type, const fft::Options& options);

  /// Options under which other plans get the backend of these, also where it was to be found by measuring.
  const fft::Options& options() const { return options_; }

  index_t planes;  ///< of the volume, that are loaded
  std::unique_ptr<fft::Plan> forward, inverse;

 private:
  fft::Options options_;
};

}  // namespace convolume::conv
