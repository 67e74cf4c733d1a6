// The weights' gradient of a direct convolution: sums over voxels in a fixed order, whatever the threads.
#pragma once

#include "conv/engine.hpp"
#include "conv/taps/tap_geometry.hpp"
#include "conv/taps/tap_tensors.hpp"
#include "conv/weights/weight_blocks.hpp"

namespace convolume::conv {

/// The work of one task: a part's pieces for some channel blocks of x and of dy.
struct PairGroup {
  index_t part = 0;
  index_t first_in = 0, last_in = 1, first_out = 0, last_out = 1;
};

/// Sums lie as [part][weights in squares: lanes are channels of dy, terms those of x]. Where one piece holds all voxels
/// each pair of channel blocks is done at once, and nothing lies between tasks.
template <class T>
class WeightGradient {
 public:
  explicit WeightGradient(const ConvProblem& problem);

  const WeightPieces& pieces() const noexcept { return pieces_; }
  bool at_once() const noexcept { return pieces_.pieces == 1; }
  index_t elements() const noexcept { return pieces_.parts * layout_.elements(); }
  index_t pairs() const noexcept { return layout_.lane_blocks() * layout_.term_blocks(); }
  PairGroup group(index_t part, index_t in_group, index_t out_group) const noexcept;

  /// Fills a group's sums. Thread-safe for distinct groups.
  void sum(const PieceTensors<T>& tensors, const PairGroup& group, T* sums) const;
  /// Of the only part: sums up a group's pairs of channel blocks and writes dw. Thread-safe for distinct groups.
  void write(const BackwardArguments& arguments, const PieceTensors<T>& tensors, const PairGroup& group) const;
  /// Bytes of scratch that sum() takes, or write() where all is done at once.
  std::size_t scratch_bytes(const PieceTensors<T>& tensors, const PairGroup& group) const;
  /// Adds up the parts of one pair of channel blocks and writes dw. Thread-safe for distinct pairs.
  void finish(const BackwardArguments& arguments, index_t pair, T* sums) const;
  /// Bytes of scratch that finish() takes.
  std::size_t finish_scratch_bytes() const noexcept { return pack_scratch_bytes(layout_); }

 private:
  std::size_t pair_bytes() const noexcept {
    return 2 * sizeof(T) * static_cast<std::size_t>(layout_.taps * layout_.square);
  }

  ConvProblem problem_;
  WeightBlocks<T> layout_;
  bool past_caches_;  ///< where gradients go
  WeightPieces pieces_;
};

}  // namespace convolume::conv
