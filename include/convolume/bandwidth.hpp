// The speed of a convolution on a chip whose cores have scratch memories: the bandwidth that the convolution requires
// against the bandwidth that was measured, and the issue rate of its inner loop. Source: Zhao et al., "Optimizing
// Convolutional Neural Networks on the Sunway TaihuLight Supercomputer" (paper 003). docs/planning.md explains it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convolume/conv_problem.hpp"
#include "convolume/nest.hpp"

namespace convolume::plan {

/// Bandwidth between memory and the scratch memories of a core group, if each core moves stretches of `run_bytes`
/// neighbouring bytes. A get reads memory, and a put writes it.
struct DmaRate {
  double run_bytes = 0, get_gb_per_s = 0, put_gb_per_s = 0;
};

/// Issue slots of a kernel task, in cycles. A task is the piece of the inner loop that holds one register tile.
struct KernelTask {
  double multiply_adds = 0;            ///< vector multiply-adds of a task
  double reordered = 0;                ///< slots if loads run beside the multiply-adds of the task before
  std::optional<double> simple{};      ///< slots if all loads come first
  std::optional<double> single{};      ///< slots in single precision; files say `float`
  std::optional<double> cast_slots{};  ///< slots to cast a vector between single and double in the scratch memory
};

/// A chip of core groups. A core group is a square mesh of cores, which share data by registers, with a memory
/// controller of its own. All values are positive.
struct Chip {
  std::string name;
  double ghz = 0;
  index_t groups = 1;         ///< core groups
  index_t cores = 1;          ///< of a group; a square number
  index_t vector = 1;         ///< elements of a vector
  index_t scratch_bytes = 0;  ///< of each core; at most 2^53
  KernelTask task{};
  std::optional<double> gload_gb_per_s{};    ///< loads from memory into registers, of a group; without it: none
  std::optional<double> published_gflops{};  ///< peak that the maker states, for shares
  std::vector<DmaRate> dma{};                ///< by rising run_bytes

  /// Returns the peak of a core group by its clock, cores and vectors (equation 1).
  double group_gflops() const noexcept { return 2 * static_cast<double>(vector) * ghz * static_cast<double>(cores); }
  /// Returns the peak of all core groups.
  double gflops() const noexcept { return group_gflops() * static_cast<double>(groups); }
};
/// Returns the built-in chip `sw26010`: section 2.2 of paper 003 with Table 2 and the peak of Table 3. Throws
/// InvalidArgument that lists the names.
CONVOLUME_API Chip named_chip(std::string_view name);
/// Throws InvalidArgument that names the chip, the field, its value and the valid values.
CONVOLUME_API void validate(const Chip& chip);

enum class DmaDirection { get, put };
/// Returns "get" or "put".
CONVOLUME_API const char* name_of(DmaDirection direction) noexcept;
/// Returns the bandwidth of stretches of `run_bytes` in GB/s: linear between the rows of the table, proportional to the
/// length below the first row, and that of the last row beyond.
CONVOLUME_API double dma_gb_per_s(const Chip& chip, double run_bytes, DmaDirection direction);

/// How data reach the registers.
enum class AccessPattern {
  gload,  ///< from memory, one element at a time
  ldm     ///< by DMA into the scratch memory, and from there in vectors
};
/// Returns "gload" or "ldm".
CONVOLUME_API const char* name_of(AccessPattern pattern) noexcept;

/// The instructions of a kernel task: sections 3.5 and 3.7 of paper 003.
enum class IssueOrder {
  simple,       ///< Figure 5 (a): loads, then multiply-adds; double
  reordered,    ///< Figure 5 (b): loads beside the multiply-adds of the task before; double
  single,       ///< single precision with loads that nothing overlaps
  float2double  ///< single precision in memory, cast to double in the scratch memory
};
/// Returns "simple", "reordered", "float" or "float2double".
CONVOLUME_API const char* name_of(IssueOrder order) noexcept;

struct BandwidthOptions {
  DataType type = DataType::f64;
  AccessPattern pattern = AccessPattern::ldm;
  IssueOrder issue = IssueOrder::reordered;
  /// Half of the scratch memory is filled while the other half is computed on. Otherwise all of it holds one tile, and
  /// the moves wait for the computation.
  bool double_buffer = true;
};

/// A place that data come from. The computation waits for the level if it needs more than there is.
struct BandwidthLevel {
  std::string name;  ///< "memory" of a core group; "scratch" or "loads" (gload instructions) of a core
  double needed_gb_per_s = 0, available_gb_per_s = 0;
};

/// What DMA moves of an operand for one tile.
struct DmaStream {
  Operand operand = Operand::x;
  DmaDirection direction = DmaDirection::get;
  double run_bytes = 0;  ///< neighbouring bytes that a core moves
  double bytes = 0;      ///< of all cores of a group
  double gb_per_s = 0;   ///< by dma_gb_per_s()
};

/// The forward direction of a convolution on a chip.
struct BandwidthReport {
  double cdr_one_column = 0;    ///< multiply-adds per load instruction for one column of y (equation 2)
  double cdr = 0;               ///< the same for `columns` (equation 4)
  double cdr_needed = 0;        ///< below this, registers wait for their loads (section 3.1)
  double ee = 0;                ///< execution efficiency: multiply-adds per issue slot
  index_t columns = 1;          ///< b_C: columns of y of a tile
  double core_bytes = 0;        ///< of the scratch memory of a core, for one column (equation 3 over the cores)
  double tile_bytes = 0;        ///< the same for `columns`
  double tile_limit_bytes = 0;  ///< what a tile may take
  std::vector<BandwidthLevel> levels{};
  std::vector<DmaStream> streams{};  ///< of a tile; empty for gload
  double seconds = 0;
  double gflops = 0;      ///< useful operations only
  double efficiency = 0;  ///< gflops over the peak of the chip
  std::string bound{};    ///< "computation", or the name of the level that all wait for most
};

/// Returns the cost of a forward convolution by Algorithm 4 and Figure 2 of paper 003. A core group computes a share of
/// the rows of y. A tile is b_C columns of y, all channels and all samples. For each tap W, and the columns of x that
/// meet it, are fetched. Speed falls in proportion where a level needs more bandwidth than it has. Channels and samples
/// are padded to multiples of the mesh. Padding of x counts as voxels. Throws InvalidArgument if the chip or the
/// problem is invalid, or if type, pattern and issue do not fit each other or the chip. Throws Unsupported for groups
/// of channels, volumes and transposed problems, and if one column does not fit into the scratch memory. The message
/// then names the least size.
CONVOLUME_API BandwidthReport plan_bandwidth(const ConvProblem& problem, const Chip& chip,
                                             const BandwidthOptions& options = {});

/// Returns the implementation that Table 4 of paper 003 takes: "direct" if both numbers of channels are at least 64,
/// else "im2col"; "gemm" for fully connected layers, whose kernel covers all of x.
CONVOLUME_API const char* table4_way(const ConvProblem& problem);

/// The problems of one of the test sets 1 to 4 of Algorithm 5 of paper 003. Sets 2, 3 and 4 share a problem.
struct BandwidthTestSet {
  int number = 1;
  std::vector<ConvProblem> problems{};
};
/// Returns the four sets, 51 problems in all. The algorithm states "K = 128" for set 4. This is the batch, and K is 3.
CONVOLUME_API std::vector<BandwidthTestSet> bandwidth_test_sets();

/// A row of Table 3 of paper 003.
struct PublishedProcessor {
  const char* name;
  double memory_gb_per_s, single_gflops, double_gflops;
};
/// Returns the rows of Table 3: the SW26010, the K40m and the K80m.
CONVOLUME_API const std::vector<PublishedProcessor>& published_processors();

}  // namespace convolume::plan
