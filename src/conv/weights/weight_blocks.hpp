// The packed weights of a direct convolution: squares of channels, in the order in which products read them.
#pragma once

#include "conv/tensor_io/block_view.hpp"
#include "convolume/machine.hpp"

namespace convolume::conv {

/// The layout [lane block][term block][tap][term][lane]. Lanes are the channels of a product's result. Terms are the
/// channels of its source (the reduction channels). A square has channel_block lanes and as many terms, with zeros
/// where there is no channel. If there are fewer terms altogether, it has only those, and is called a square even then.
/// Taps that lie close together do not displace each other in the L1. Taps are in the order of the kernel's voxels.
template <class T>
struct WeightBlocks {
  static constexpr index_t block = fft::tile_lanes<T>;
  index_t terms = 1, lanes = 1, taps = 1;  ///< channels of both sides, and voxels of the kernel

  index_t square_terms() const noexcept { return terms < block ? terms : block; }
  index_t square() const noexcept { return square_terms() * block; }

  index_t term_blocks() const noexcept { return (terms + block - 1) / block; }
  index_t lane_blocks() const noexcept { return (lanes + block - 1) / block; }
  index_t column_step() const noexcept { return term_blocks() * taps * square(); }  ///< between lane blocks
  index_t elements() const noexcept { return lane_blocks() * column_step(); }
  index_t offset(index_t lane_block, index_t term_block, index_t tap) const noexcept {
    return lane_block * column_step() + (term_block * taps + tap) * square();
  }
};

/// Returns the bytes of scratch that WeightKernels::pack() and unpack() take.
template <class T>
std::size_t pack_scratch_bytes(const WeightBlocks<T>& layout) noexcept {
  return 64 * static_cast<std::size_t>(layout.taps * (layout.block + 1));
}

/// The kernels of one SIMD target. All are thread-safe and allocate nothing.
template <class T>
struct WeightKernels {
  /// Writes the squares of one lane block and one term block: to[tap][c][o] = w(o, c, tap). If `non_temporal`,
  /// non-temporal stores are used. `to` is aligned to 64 bytes. `scratch` holds pack_scratch_bytes().
  void (*pack)(const View<const T>& w, const WeightBlocks<T>& layout, index_t lane_block, index_t term_block,
               bool non_temporal, T* to, T* scratch);
  /// Does the inverse: w(o, c, tap) = from[tap][c][o], or adds it to w. If `non_temporal`, non-temporal stores are used
  /// for results that overwrite whole cache lines. `scratch` holds pack_scratch_bytes().
  void (*unpack)(const T* from, const WeightBlocks<T>& layout, index_t lane_block, index_t term_block, bool add,
                 bool non_temporal, const View<T>& w, T* scratch);
  /// Copies `count` squares of `terms` terms to squares of `lanes` terms, with terms and lanes transposed.
  /// `non_temporal` and the alignment of `to` are as in pack().
  void (*transpose)(const T* from, index_t terms, index_t lanes, index_t count, bool non_temporal, T* to);
};

/// Returns the kernels of the current SIMD target. Plans call this when they are made.
template <class T>
WeightKernels<T> weight_kernels() noexcept;

/// Returns whether a copy of the weights is so large that none of it would stay in the caches. Copies are read again
/// soon, unlike results, so this counts on the whole L3.
template <class T>
bool writes_copies_non_temporal(const WeightBlocks<T>& layout) {
  return static_cast<index_t>(sizeof(T)) * layout.elements() > machine_model().l3_bytes / 2;
}
/// Returns whether the gradient of the weights is so large that little of it would stay in the part of the L3 that the
/// cores count on.
template <class T>
bool writes_gradient_non_temporal(const WeightBlocks<T>& layout) {
  return static_cast<index_t>(sizeof(T)) * layout.elements() > machine_model().usable_l3_bytes / 2;
}

}  // namespace convolume::conv
