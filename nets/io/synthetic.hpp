// Makes a built-in volume that looks like electron microscopy of neural tissue, for examples, tests and benchmarks.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "convolume/tensor.hpp"

namespace convolume::nets {

struct SyntheticOptions {
  Extent3 extent{32, 128, 128};
  std::uint64_t seed = 1;
  double cell_diameter = 24;  ///< mean distance between cells, in voxels along x and y; at least 2
  double anisotropy = 4;      ///< distance of slices divided by distance of pixels; at least 0.01
  double membrane_width = 2;  ///< in voxels along x and y, >= 0; the default labels about a fifth of the voxels
  double noise = 0.06;        ///< standard deviation of the noise, as a share of the brightness range
  double blur = 0.7;          ///< standard deviation of the blur within a slice, in voxels; 0 to 8
};

/// Two tensors {1, 1, Z, Y, X}. The image holds brightness around 0..1, not clamped. The label is 1 on membranes, 0
/// elsewhere.
struct SyntheticVolume {
  Tensor<float> image;
  Tensor<float> label;
};

/// Makes a synthetic volume. Cells are the Voronoi regions of jittered grid points in an anisotropic metric; dark
/// membranes lie along their walls. Interiors differ in brightness from cell to cell and hold dark round bodies that
/// are not labelled. Blur, noise and a brightness offset and gain per slice are applied last.
///
/// The bits are a pure function of the options on every machine, because only + - * / and sqrt compute the values.
/// Throws InvalidArgument (options out of range, empty extent), OverflowError.
SyntheticVolume make_synthetic_volume(const SyntheticOptions& options = {},
                                      std::pmr::memory_resource* memory = std::pmr::get_default_resource());

}  // namespace convolume::nets
