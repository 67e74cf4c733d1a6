// Fast exact counts for nests whose extents divide each other, as searches need them: of one tile, everything that a
// buffer costs is a product over axes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "convolume/energy.hpp"

namespace convolume::plan {

/// A loop outside of the datapath. It covers `extent` iterations.
struct BlockLoop {
  Dim dim = Dim::n;
  index_t extent = 1;
  friend bool operator==(const BlockLoop&, const BlockLoop&) = default;
};
/// Loops, the innermost first, as in a blocking string.
using BlockLoops = std::vector<BlockLoop>;

/// What the loops inside of a point cover, as indices into the sizes of each dimension.
using Tile = std::array<std::uint8_t, all_dims.size()>;

/// A buffer of one operand (see Buffer in nest.hpp).
struct BufferUse {
  double words = 0, reads = 0;
};

/// The buffers of an operand from the innermost to the outermost, and what the outermost one asks the DRAM for.
struct BufferChain {
  static constexpr std::size_t most = 32;
  std::array<BufferUse, most> buffers{};
  std::size_t count = 0;
  double dram = 0;
};
using BufferChains = std::array<BufferChain, 3>;  ///< by operand

class TileCounts {
 public:
  /// Throws InvalidArgument if a dimension has more sizes than an index counts.
  explicit TileCounts(const EnergyLayer& layer);

  const EnergyLayer& layer() const noexcept { return layer_; }
  /// Returns the divisors of an extent, rising. Sizes of c and k are multiples of the datapath's.
  const std::vector<index_t>& sizes(Dim dim) const noexcept { return sizes_[static_cast<std::size_t>(dim)]; }
  /// Returns the index of a size, or throws InvalidArgument that lists the sizes.
  std::uint8_t size_index(Dim dim, index_t size) const;
  Tile innermost() const noexcept { return {}; }

  /// Returns the elements that all iterations of the loops outside of a tile touch, each tile counted anew. Results
  /// are read and written, except that the first read of each is left out.
  double accesses(Operand operand, const Tile& tile) const noexcept;
  /// Returns the elements of the largest tile.
  double footprint(Operand operand, const Tile& tile) const noexcept;
  /// Returns how many words of an operand the datapath holds for one step.
  double latch_words(Operand operand) const noexcept;
  /// Returns whether a loop over `dim` reuses what the tile inside of it touches (section 3.2).
  bool reuses(Operand operand, Dim dim, const Tile& inside) const noexcept;

  /// Computes the buffers of all operands. Loops of one iteration are allowed. Buffers that the datapath's latches hold
  /// are returned too.
  void chains(const BlockLoops& loops, Counts counts, BufferChains& chains) const noexcept;

 private:
  double extent(Dim dim) const noexcept { return static_cast<double>(layer_.space.of(dim)); }
  double size(Dim dim, const Tile& tile) const noexcept {
    const auto d = static_cast<std::size_t>(dim);
    return static_cast<double>(sizes_[d][tile[d]]);
  }
  void set_table2(const BlockLoops& loops, BufferChains& chains) const noexcept;
  double table2_rate(Operand operand, const BlockLoops& loops, const Tile& inside, std::size_t begin,
                     std::size_t end) const noexcept;

  struct Window {
    double sum = 0, largest = 0;
  };
  const Window& window(std::size_t axis, const Tile& tile) const noexcept;

  EnergyLayer layer_;
  std::array<std::vector<index_t>, all_dims.size()> sizes_;
  std::array<std::vector<Window>, 3> windows_;  ///< by result size and tap size
};

/// Returns the loops of a nest outside of the datapath. Throws InvalidArgument as nest_energy() does.
BlockLoops block_loops(const LoopNest& nest, const TileCounts& counts);
/// Returns the nest of loops, with the datapath as its microkernel. Loops of one iteration are left out.
LoopNest nest_of(const BlockLoops& loops, const EnergyLayer& layer);

}  // namespace convolume::plan
