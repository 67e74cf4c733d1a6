// Weights of a direct convolution in squares of channels, as its products read them.
#pragma once

#include "conv/tensor_io/block_view.hpp"

namespace convolume::conv {

/// [lane block][term block][tap][term][lane]: lanes are the channels of a product's result, terms those of its source.
/// Squares have channel_block of each; where there is no channel they hold zero. Taps are in the order of a kernel's
/// voxels.
template <class T>
struct WeightBlocks {
  static constexpr index_t block = fft::tile_lanes<T>, square = block * block;
  index_t terms = 1, lanes = 1, taps = 1;  ///< channels and voxels of the kernel

  index_t term_blocks() const noexcept { return (terms + block - 1) / block; }
  index_t lane_blocks() const noexcept { return (lanes + block - 1) / block; }
  index_t column_step() const noexcept { return term_blocks() * taps * square; }  ///< between lane blocks
  index_t elements() const noexcept { return lane_blocks() * column_step(); }
  index_t offset(index_t lane_block, index_t term_block, index_t tap) const noexcept {
    return lane_block * column_step() + (term_block * taps + tap) * square;
  }
};

/// The squares of one lane block and one term block: to[tap][c][o] = w(o, c, tap), with `past_caches` written past
/// them. `to` is aligned to 64 bytes. Takes scratch of pack_scratch_bytes().
template <class T>
void pack_weights(const View<const T>& w, const WeightBlocks<T>& layout, index_t lane_block, index_t term_block,
                  bool past_caches, T* to, T* scratch);
template <class T>
std::size_t pack_scratch_bytes(const WeightBlocks<T>& layout) noexcept {
  return 64 * static_cast<std::size_t>(layout.taps * (layout.block + 1));
}

/// The other way: w(o, c, tap) = from[tap][c][o], or += that. What is overwritten by whole lines of the cache goes past
/// them where so wanted. Scratch as of pack_weights().
template <class T>
void unpack_weights(const T* from, const WeightBlocks<T>& layout, index_t lane_block, index_t term_block, bool add,
                    bool past_caches, const View<T>& w, T* scratch);

/// Whether copies of the weights are so large that none would stay in the caches.
template <class T>
bool passes_caches(const WeightBlocks<T>& layout) {
  return static_cast<index_t>(sizeof(T)) * layout.elements() > 4 * past_caches_from();
}

/// to = from with terms and lanes exchanged, `count` squares; `to` as of pack_weights().
template <class T>
void transpose_squares(const T* from, index_t count, bool past_caches, T* to);

}  // namespace convolume::conv
