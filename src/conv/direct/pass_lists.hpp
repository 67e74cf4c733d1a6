// Lists the passes of a region of a direct convolution: which steps sum which results.
#pragma once

#include <array>

#include "conv/caches/scratch.hpp"
#include "conv/direct/direct_region.hpp"
#include "conv/taps/tap_geometry.hpp"
#include "conv/taps/tap_steps.hpp"

namespace convolume::conv {

/// Iterations of a loop, from begin to before end.
struct LoopRange {
  index_t begin = 0, end = 0;
  index_t size() const noexcept { return end - begin; }
};

/// The iterations of all loops of a nest that are computed next.
struct LoopRanges {
  LoopRange& operator[](plan::Dim dim) noexcept { return of_dims[static_cast<std::size_t>(dim)]; }
  const LoopRange& operator[](plan::Dim dim) const noexcept { return of_dims[static_cast<std::size_t>(dim)]; }
  bool is_first_tap_tile() const noexcept {
    return (*this)[plan::Dim::kz].begin + (*this)[plan::Dim::ky].begin + (*this)[plan::Dim::kx].begin == 0;
  }
  std::array<LoopRange, plan::all_dims.size()> of_dims{};
};

/// Some taps of results that the same taps reach. Registers hold the sum over these taps before it is added to memory.
struct Pass {
  std::ptrdiff_t source, target;  ///< offsets of the first result, from the beginnings of both boxes
  Extent3 count;
  const DirectStep* steps;
  index_t step_count, neighbours, row_taps;  ///< as in VoxelProduct
  bool fully_padded = false;
  std::ptrdiff_t source_tap = 0, weights_tap = 0;
};

/// The passes of one tile of results and taps. They serve all blocks of lanes, and all groups of `blocks` term blocks
/// whose last block has `last_terms` channels.
struct PassList {
  Pass* passes = nullptr;
  DirectStep* steps = nullptr;
  index_t count = 0, blocks = 0, last_terms = 0;
};

/// The passes of all tiles of a region. A list is made when its tile is computed first. Not thread-safe.
template <class T>
class PassLists {
 public:
  /// Upper limits for the lists of a region.
  struct Count {
    index_t lists = 1, passes = 0, steps = 0;
  };
  static Count count(const VoxelDirection<T>& d, const Region& region);
  /// Throws Unsupported if the lists of a region would take too much memory.
  static void check(const VoxelDirection<T>& d, const Region& region);
  /// Returns the bytes that the lists take from the scratch.
  static std::size_t scratch_bytes(const VoxelDirection<T>& d, const Count& most);

  /// `source` is the extent of the tensor that the region reads. It is read `in_place` or staged. `reads_rows` says
  /// whether products read it as rows of its channels. `d` and `region` must outlive this object.
  PassLists(const VoxelDirection<T>& d, const Region& region, const Extent3& source, bool in_place, bool reads_rows,
            const Count& most, Scratch& scratch);

  /// Returns the passes of the tile of results and taps in `ranges`, for the term blocks in it. Offsets of the passes
  /// count from the beginnings of `source` and `target`; the calls for a region pass boxes with the same strides.
  const PassList& list(const LoopRanges& ranges, const BlockedBox<const T>& source, const BlockedBox<T>& target);

 private:
  static constexpr index_t block = fft::tile_lanes<T>;

  /// What the members below need to make one list.
  struct Tile {
    const LoopRanges& ranges;
    const BlockedBox<const T>& source;
    const BlockedBox<T>& target;
  };
  static std::size_t list_bytes(const Count& most);
  void make(PassList& list, const Tile& tile, index_t blocks, index_t last_terms);
  void add_run(PassList& list, const Tile& tile, const DirectPhase& phase, const std::vector<StepPlace>& order,
               const Extent3& begin, const Extent3& count, DirectStep*& step);
  bool make_step(DirectStep& step, const Tile& tile, const DirectPhase& phase, const StepPlace& place,
                 const Extent3& base, index_t count, index_t terms) const;
  std::size_t tile_index(const LoopRanges& ranges, std::size_t first, std::size_t last) const;
  bool is_padding(const DirectTap& tap, const Extent3& base, index_t result) const;
  bool reads_padding(const DirectPhase& phase, const Extent3& base, index_t count) const;
  bool is_fully_padded(const DirectPhase& phase, const Extent3& base, index_t count) const;
  /// Returns whether steps read taps of rows of a single channel.
  bool reads_single_row() const { return reads_rows_ && d_.weights.terms == 1; }

  const VoxelDirection<T>& d_;
  const Region& region_;
  index_t source_width_;
  bool in_place_, reads_rows_;
  PassList* lists_;
  Pass* passes_;       // of all lists, as they are made
  DirectStep* steps_;  // of all lists
  bool* read_;         // [term block][tap]: whether a step of the current list reads these weights already
  index_t pass_count_ = 0, step_count_ = 0;
};

}  // namespace convolume::conv
