// A kernel of one voxel on plain tensors: a matrix product with voxels in the lanes, so that nothing is transposed.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::conv {

/// For `results` channels and `voxels` voxels side by side:
///   target[r][v] = start + sum over terms k of source[k][v] * w(k, r),
/// where start is what target holds (`add`), or bias[r]. Weights lie as in WeightBlocks with one tap: w(k, r) at
/// r / channel_block * weights_column + k * channel_block + r % channel_block. A result has the bits that VoxelProduct
/// gives it with as many terms in one pass. target overlaps nothing.
template <class T>
struct LineProduct {
  const T* source;
  std::ptrdiff_t source_channel;  ///< between channels, in elements
  const T* weights;
  std::ptrdiff_t weights_column;
  T* target;
  std::ptrdiff_t target_channel;
  const T* bias;  ///< one per result
  index_t voxels, terms, results;
  bool add;
};

/// Thread-safe; allocates nothing. T is float or double.
template <class T>
void multiply(const LineProduct<T>& product);

}  // namespace convolume::conv
