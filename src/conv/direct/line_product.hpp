// The product for a kernel of one voxel on channels whose voxels lie side by side: a matrix product whose lanes are
// voxels.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::conv {

/// Computes, for `results` channels and `voxels` voxels that lie side by side:
///   target[r][v] = start + sum over terms k of source[k][v] * w(k, r).
/// `start` is the contents of target (if `add`), or bias[r]. The weights have the layout of WeightBlocks with one tap:
/// w(k, r) is at r / channel_block * weights_column + k * channel_block + r % channel_block. A result has the same
/// bits as from a VoxelProduct with the same number of terms in one pass. target overlaps nothing.
template <class T>
struct LineProduct {
  const T* source;
  std::ptrdiff_t source_channel;  ///< between channels, or between channel blocks of a blocked source, in elements
  const T* weights;
  std::ptrdiff_t weights_column;
  T* target;
  std::ptrdiff_t target_channel;
  const T* bias;  ///< one value per result
  index_t voxels, terms, results;
  bool add;
  /// Uses non-temporal stores. Voxel 0 of every result is aligned to 64 bytes, and `add` is false.
  bool non_temporal = false;
};

/// The kernel of one SIMD target. Thread-safe. Allocates nothing. T is float or double.
template <class T>
struct LineProductKernels {
  void (*multiply)(const LineProduct<T>& product);
  /// The same for a blocked source, and for at most most_blocked_results results: voxels are transposed in registers.
  void (*multiply_blocked)(const LineProduct<T>& product);
  index_t tile;  ///< the voxels whose sums multiply() holds in registers
};

/// For more results, transposing costs more than lanes without a channel would.
inline constexpr index_t most_blocked_results = 6;

/// Returns the kernel of the current SIMD target. Plans call this when they are made.
template <class T>
LineProductKernels<T> line_product_kernels() noexcept;

}  // namespace convolume::conv
