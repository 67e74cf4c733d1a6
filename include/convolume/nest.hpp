// Loop nests: the order and the tiling of the loops of a convolution, as values. They are written down, checked, and
// counted: how many elements of each tensor a tile touches, and how often these are fetched. docs/planning.md explains
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convolume/conv_problem.hpp"

namespace convolume::plan {

/// A dimension of the iteration space. `k` counts channels of y and `c` channels of x, both within a group. `z`, `y`
/// and `x` count the voxels that are multiplied once per tap (of y; of x for backward data). `kz`, `ky` and `kx` count
/// taps of the kernel.
enum class Dim : std::uint8_t { n, k, c, z, y, x, kz, ky, kx };
inline constexpr std::array all_dims{Dim::n, Dim::k, Dim::c, Dim::z, Dim::y, Dim::x, Dim::kz, Dim::ky, Dim::kx};
using Extents = std::array<index_t, all_dims.size()>;  ///< indexed by Dim
CONVOLUME_API const char* name_of(Dim dim) noexcept;   ///< as in the text of a nest

/// A tensor of a convolution, or its gradient: x stands for dx too.
enum class Operand : std::uint8_t { x, w, y };
inline constexpr std::array operands{Operand::x, Operand::w, Operand::y};
CONVOLUME_API const char* name_of(Operand operand) noexcept;

/// The iterations of one direction, and the elements that an iteration reads and writes. An iteration is one
/// multiply-add. Of x and y one is windowed: its voxel depends on a result voxel and on a tap. Along every axis
///   windowed voxel = result * result_step + tap * tap_step - offset.
/// An iteration whose windowed voxel lies outside of the tensor reads padding and touches no element of it. The voxel
/// of the other tensor is result * target_step + target_first, and the voxel of the kernel is
/// tap * kernel_step + kernel_first.
struct NestSpace {
  Extents extent{};
  Operand written = Operand::y, windowed = Operand::x;
  Extent3 result_step{1, 1, 1}, tap_step{1, 1, 1}, offset{0, 0, 0};
  Extent3 source_extent{};  ///< voxels of the windowed tensor
  Extent3 target_step{1, 1, 1}, target_first{0, 0, 0}, target_extent{};
  Extent3 kernel_step{1, 1, 1}, kernel_first{0, 0, 0}, kernel_extent{};
  index_t groups = 1;
  index_t channel_block = 16;  ///< channels of a block of the blocked layout
  bool transposed = false;     ///< the weights are [c][k][taps], not [k][c][taps]

  index_t of(Dim dim) const noexcept { return extent[static_cast<std::size_t>(dim)]; }
  /// Returns the number of multiply-adds, those with padding included.
  CONVOLUME_API double macs() const noexcept;
};

/// Returns the spaces of one group. Forward and backward weights have one space. Backward data has one space per phase
/// of the stride, because each phase of dx is reached by other taps; phases that no tap reaches are left out (all of
/// them, if every window lies in the padding). For a transposed convolution the forward direction has the phases. The
/// space of the most multiply-adds is the first. Throws InvalidArgument for an invalid problem, and Unsupported for a
/// depthwise one, whose channels are not summed.
CONVOLUME_API std::vector<NestSpace> spaces(const ConvProblem& problem, Direction direction);

/// A loop over a dimension. It covers `extent` iterations of it (X_i in paper 000), in steps of the extent of the next
/// loop over the same dimension further in (X_{i-1}), or of 1 if there is none.
struct Loop {
  static constexpr index_t all = 0;  ///< the extent of the space
  Dim dim = Dim::n;
  index_t extent = all;
  bool parallel = false;  ///< iterations are tasks
  bool separate = false;  ///< iterations have sums of their own, which are added in order at the end
  friend bool operator==(const Loop&, const Loop&) = default;
};
CONVOLUME_API std::string to_string(const Loop& loop);  ///< for example "k32*" or "z+*"

/// An ordered list of loops, the outermost first. Loops from `microkernel` on are one call of a kernel. Two nests are
/// equal if their texts are.
struct LoopNest {
  std::vector<Loop> loops;
  std::size_t microkernel = 0;
  friend bool operator==(const LoopNest&, const LoopNest&) = default;
};

/// Reads a nest, for example "n* k* y* c x | kz ky kx c16 x14 k32". Tokens are a dimension, an extent (without one: all
/// of it), "+" for loops with separate sums, and "*" for parallel loops, which are the outermost. "|" stands before the
/// microkernel. Throws InvalidArgument that shows the text, names the token and its position, and says what is valid.
CONVOLUME_API LoopNest parse_nest(std::string_view text);
CONVOLUME_API std::string to_string(const LoopNest& nest);

/// Reads a blocking string of paper 000, section 3.1, for example "FwFhX0(8)Y0(8)C0(16)K0(16)C1K1X1Y1": the innermost
/// loop first, the level behind the name, the extent in brackets. Without brackets a loop covers all of its dimension.
/// Names are X Y Z C K Fw Fh Fd N. "|" stands behind the microkernel. Without it, the microkernel is the innermost
/// loops over taps, or the innermost loop if that is none over taps. Throws InvalidArgument as parse_nest() does.
CONVOLUME_API LoopNest parse_blocking_string(std::string_view text);
/// Writes a nest as a blocking string. Parallel loops are not marked.
CONVOLUME_API std::string blocking_string(const LoopNest& nest);

/// Checks that a nest covers the spaces of a direction: each dimension of more than one iteration has a loop, its
/// outermost loop covers all of it (in the space that has the most), and extents fall from one loop to the next.
/// Parallel loops are the outermost, in the order n, k, c, z, y, and not over a dimension that is summed over. Only
/// backward weights may have loops with separate sums. These are the outermost loops, over n, z and y in this order,
/// and they may be parallel too, before k and c. Throws InvalidArgument that names the loop, the value and the remedy.
CONVOLUME_API void validate(const LoopNest& nest, std::span<const NestSpace> spaces);

/// A loop of a nest in one space.
struct BoundLoop {
  Dim dim = Dim::n;
  index_t extent = 1, step = 1;
  /// Returns the iterations, if the loop is not in a tile that is cut at the end of the space.
  index_t trips() const noexcept { return (extent + step - 1) / step; }
};
/// Returns the extents and steps of all loops. Extents beyond the space are clipped, so that one nest serves all spaces
/// of a direction. Throws InvalidArgument if the nest does not cover the space.
CONVOLUME_API std::vector<BoundLoop> bind(const LoopNest& nest, const NestSpace& space);

/// Calls body(begin, end) for each iteration of the loops outside of `depth`, in order. begin and end say which
/// iterations of each dimension the loops from `depth` on cover. Throws InvalidArgument as bind() does.
CONVOLUME_API void for_each_tile(const LoopNest& nest, const NestSpace& space, std::size_t depth,
                                 const std::function<void(const Extents& begin, const Extents& end)>& body);

// Counting. Every number is exact: tails and borders are clipped. Elements are those of one group, without padding.
// Functions throw InvalidArgument as bind() does. They are thread-safe.

/// Distinct elements of a tensor, and the stretches of neighbouring addresses that they form. In the blocked layout a
/// stretch goes on over lanes without a channel. Blocked weights are squares of channels (the packed weights of the
/// `direct` engine).
struct Footprint {
  index_t words = 0, runs = 0;
};
/// Returns the footprint of the iterations from `begin` to before `end`.
CONVOLUME_API Footprint footprint(const NestSpace& space, const Extents& begin, const Extents& end, Operand operand,
                                  Layout layout);

/// What a memory that holds one footprint of the loops from a depth on fetches while the whole nest runs. The memory is
/// filled again whenever a loop outside moves the footprint. Loops that leave it unchanged, just outside, cause no
/// fetch. A loop of one iteration moves nothing.
struct Fetch {
  double words = 0, runs = 0;  ///< of all loads together
  double loads = 0;
  index_t held = 0;  ///< words of the largest load
};
CONVOLUME_API Fetch fetch(const LoopNest& nest, const NestSpace& space, std::size_t depth, Operand operand,
                          Layout layout);

/// A place where a memory pays (paper 000, section 3.2): loops from `depth` on run again and again on the same elements
/// of an operand, because the loops just outside of them do not move its footprint. A loop over taps around a loop over
/// the same axis's results counts as such a loop of the windowed operand. Neighbouring loops of this kind share one
/// buffer.
struct Buffer {
  Operand operand = Operand::x;
  std::size_t depth = 0;    ///< the buffer holds the footprint of the loops from here on
  index_t words = 0;        ///< elements that the buffer holds
  double loads = 0;         ///< how often it is filled
  double passes = 0;        ///< how often its contents are used per load
  double reads_exact = 0;   ///< elements read: once per pass. Written operands: read and written, less the first reads
  double reads_table2 = 0;  ///< equation 1 with the rates of Table 2, to the letter
  double reads_plain = 0;   ///< elements that the next buffer inside, or the microkernel, loads from this one
};
/// Returns the buffers of all operands: x, w, y, each from the innermost to the outermost.
CONVOLUME_API std::vector<Buffer> buffers(const LoopNest& nest, const NestSpace& space);

/// Distinct elements of each operand.
struct Words {
  index_t x = 0, w = 0, y = 0;
  index_t all() const noexcept { return x + w + y; }
};
/// Returns the distinct elements that the iterations from `first` to `last`, both included, touch (the working set of
/// paper 004, algorithm 1). An iteration is given by the positions of all loops, in trips, the outermost first. Throws
/// InvalidArgument if a position lies outside of its loop or if `last` comes before `first`.
CONVOLUME_API Words working_set(const LoopNest& nest, const NestSpace& space, std::span<const index_t> first,
                                std::span<const index_t> last);

}  // namespace convolume::plan
