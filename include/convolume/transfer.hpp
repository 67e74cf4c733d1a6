// Tiles of convolutions whose tensors lie in a large, slow memory: which tiles a small memory with two halves should
// hold, so that transfers cost least. Source: Cecconi et al., "Optimal Tiling Strategy for Memory Bandwidth Reduction
// for CNNs" (paper 001). docs/planning.md explains it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "convolume/machine.hpp"
#include "convolume/nest.hpp"

namespace convolume::plan {

/// Prices for which the best tiles of FlowNet-S fill the memory about as Table 1 of paper 001 says. They are a fit: the
/// paper does not print its prices. The unit is the price of an element.
inline constexpr TransferPrice paper_001_price{.start = 5000, .jump = 20, .element = 1};

/// What a tile of x takes in the small memory.
enum class TransferFootprint {
  halo,  ///< (sigma + kernel - 1) voxels along each axis
  paper  ///< sigma voxels along each axis: section 4.2 of paper 001 to the letter
};
/// Returns "halo" or "paper".
CONVOLUME_API const char* name_of(TransferFootprint footprint) noexcept;

/// How transfers are counted.
enum class TransferCounts {
  equations,  ///< by tile_cost()
  exact       ///< by exact_cost(), which takes longer
};
/// Returns "equations" or "exact".
CONVOLUME_API const char* name_of(TransferCounts counts) noexcept;

/// A forward convolution, and the memories between which its tiles move.
struct TransferProblem {
  ConvProblem problem;
  TransferPrice price = paper_001_price;
  index_t capacity_bytes = 256 * 1024;  ///< of the small memory, both halves together
  index_t element_bytes = 4;
  /// Loops over tiles, the outermost first: the letters z, y, x, c and k in any order. A letter may be left out if its
  /// dimension has one iteration. The batch, and then the group, are outside of all. Paper 001 has s = y, t = x, k = c
  /// and z = k, so its Listing 1.1 is "yxck".
  std::string order = "zyxck";
  TransferFootprint footprint = TransferFootprint::halo;
  TransferCounts counts = TransferCounts::equations;  ///< of plan_transfers()

  /// Throws InvalidArgument that names the field, its value and the valid values; Unsupported for a transposed problem.
  CONVOLUME_API void validate() const;
};

/// Extents of a tile: z, y and x in voxels of y, c in channels of x, k in channels of y. Sigma of paper 001, in voxels
/// of x, is the extent times the stride.
struct TransferTile {
  index_t z = 1, y = 1, x = 1, c = 1, k = 1;
  friend auto operator<=>(const TransferTile&, const TransferTile&) = default;
};
CONVOLUME_API std::string to_string(const TransferTile& tile);  ///< for example "z1 y8 x16 c4 k32"

/// Transfers of an operand during a whole convolution. A tile of y is read and written: its calls, jumps and words are
/// those of both directions, which is the factor 2 of equation 3.
struct TransferCost {
  double calls = 0, jumps = 0, words = 0;
  double cost = 0;  ///< in the unit of the price
};

/// The transfers of a convolution that is computed in tiles.
struct TileCost {
  TransferTile tile;
  std::array<TransferCost, operands.size()> transfers{};  ///< indexed by Operand
  double total = 0;                                       ///< T_tot, in the unit of the price
  double held_words = 0;                                  ///< of one half: tiles of x, w and y, and biases
  double usage = 0;                                       ///< share of a half that the tiles fill
  bool feasible = false;                                  ///< usage is at most 1

  const TransferCost& of(Operand operand) const noexcept { return transfers[static_cast<std::size_t>(operand)]; }
};

/// Returns the cost of a tile by equations 1 to 6 of paper 001. Their planar layers are the case of one plane. An
/// operand is transferred once per iteration of the innermost loop that moves it, whether or not it has moved:
///   x: c sigma_z sigma_y words of rows with sigma_x words each;
///   w: k + 1 stretches, with k (c taps + 1) words, biases included;
///   y: twice k z y rows of x words.
/// Equations count neither the halo of x nor the border that padding saves. exact_cost() counts both.
/// Throws InvalidArgument if the problem is invalid, or if an extent does not divide the extent of its dimension.
CONVOLUME_API TileCost tile_cost(const TransferProblem& problem, const TransferTile& tile);

/// Returns the cost of the same tiles with the exact counts of fetch(). It differs from tile_cost() as follows.
/// - Tiles of x have their halo, and are clipped to the tensor.
/// - A tile that has not moved is not transferred again.
/// - A tile of y is read only if it has been written before.
/// - Rows that touch in memory are one stretch.
/// - Biases are not counted.
/// Throws as tile_cost(), and Unsupported for depthwise problems.
CONVOLUME_API TileCost exact_cost(const TransferProblem& problem, const TransferTile& tile);

/// Returns the nest that the tiles are: loops over tiles, "|", and the loops of a tile.
CONVOLUME_API LoopNest transfer_nest(const TransferProblem& problem, const TransferTile& tile);

/// Returns the bytes of the smallest memory that holds the smallest tile twice.
CONVOLUME_API index_t least_capacity(const TransferProblem& problem);

/// Tiles that an exhaustive search found.
struct TransferPlan {
  TileCost best;                  ///< least total; of equal ones that of fewest words held, then of least extents
  TileCost fullest;               ///< largest usage; of equal ones the cheapest
  std::optional<TileCost> naive;  ///< median by total of all tiles that use at least 80 %, the lower one of two
  double feasible_tiles = 0, naive_tiles = 0;

  /// Returns the total of the naive tile over that of the best; 0 without a naive tile.
  double ratio() const noexcept { return naive ? naive->total / best.total : 0; }
};

/// Tries all tiles whose extents divide those of their dimensions (paper 001, section 4.3). Costs are by
/// TransferProblem::counts. Deterministic. Throws InvalidArgument if the problem is invalid, if the capacity is below
/// least_capacity(), or if there are more than 2^26 tiles; Unsupported for exact counts of a depthwise problem.
CONVOLUME_API TransferPlan plan_transfers(const TransferProblem& problem);

/// What moving the tiles of a plan took, without any computation. Medians of all passes, in seconds.
struct TransferRun {
  double seconds = 0;           ///< of a pass, with the waits at each change of halves
  double transfer_seconds = 0;  ///< of the copies alone
  double words = 0;             ///< that a pass moves, in both directions
  int passes = 0;
};

/// Moves all tiles of a convolution between tensors in memory and two halves of a small buffer, as Listing 1.1 of paper
/// 001 does. A helper thread copies the tiles of the next computation, while the caller releases the half before. Tiles
/// of x have their halo and are clipped to the tensor. Passes go on for about `budget` seconds, and there are at least
/// three. Throws as tile_cost(), and InvalidArgument if the tensors have more than 8 GiB. Nothing else should run
/// meanwhile.
CONVOLUME_API TransferRun run_transfers(const TransferProblem& problem, const TransferTile& tile, double budget = 0.5);

/// The price of reading a file, in seconds, for elements of 4 bytes.
struct FilePrice {
  TransferPrice price;
  bool direct = false;  ///< read past the page cache (O_DIRECT)
};
/// Measures the price of reads from a file in `folder`, into half of a small memory. It writes a nameless temporary
/// file of 256 MiB and reads stretches of 4, 16 and 64 KiB at random places, 1, 4 or 16 in a transfer, for about
/// `budget` seconds. The price has the least relative error (root mean square) over these transfers. If the file system
/// has no O_DIRECT, reads come from the page cache. Throws IoError that names the folder.
CONVOLUME_API FilePrice measure_file_price(const std::string& folder, double budget = 3);

/// A problem with a name.
struct NamedProblem {
  std::string name;
  ConvProblem problem;
};
/// Returns the contracting layers of FlowNet-S for two images of 384 x 512, "conv_1" to "conv_6.1", which paper 001
/// measures.
CONVOLUME_API std::vector<NamedProblem> flownet_s_layers();

}  // namespace convolume::plan
