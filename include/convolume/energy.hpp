// The energy of a loop nest in a memory hierarchy that exists or is to be built (Yang et al., "A Systematic Approach to
// Blocking Convolutional Neural Networks", paper 000), and the search for the nest and the memories that need least of
// it. Words are 16 bits, as in the paper, and energies are in pJ. Everything is deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convolume/conv_problem.hpp"
#include "convolume/nest.hpp"

namespace convolume::plan {

inline constexpr double energy_word_bytes = 2;       ///< all tensors have words of 16 bits
inline constexpr double dram_pj_per_word = 320;      ///< paper 000, Table 3
inline constexpr double most_sram_bytes = 16 << 20;  ///< larger memories are DRAM (Table 3)
inline constexpr double most_register_bytes = 256;   ///< smaller memories are register files (caption of Table 3)
inline constexpr double least_register_pj = 0.03;    ///< floor of the extrapolation to small register files

/// Returns the energy of an access of a memory, per word. Between the 44 values of Table 3 it is interpolated on
/// logarithmic scales. Beyond the table it goes on with the slope of the nearest doubling, down to least_register_pj,
/// and more than 16 MiB are DRAM. Throws InvalidArgument for other widths than 64, 128, 256 and 512 bits.
CONVOLUME_API double access_pj(double bytes, int word_bits);

/// Returns the area of a chip with DianNao's datapath, in mm2: 0.8 mm2 + 5.5 mm2 per MiB of memory. This is our fit to
/// the two points of section 5.2 (6 times DianNao's area with 1 MB, 45 times with 8 MB).
CONVOLUME_API double chip_area_mm2(double sram_bytes);

/// A memory. The last one of a hierarchy is the DRAM, which has no size.
struct MemoryLevel {
  std::string name;
  double bytes = 0;                     ///< 0 for the DRAM
  std::optional<double> pj_per_word{};  ///< without a value: by access_pj()
  bool shared = false;                  ///< by all cores
  std::string operands = "xwy";         ///< which tensors it holds
};

/// Memories, the innermost first. In a free hierarchy each buffer of a nest is a memory of its own size: memories and
/// nest are designed together.
struct Hierarchy {
  std::string name;
  bool free = false;
  std::vector<MemoryLevel> levels{};
};
/// Returns `free`, `diannao` (three separate memories: x 2 KiB, w 32 KiB, y 2 KiB) or `x86` (the caches of paper 000's
/// Xeon E5645: 32 KiB, 256 KiB, 12 MiB). Throws InvalidArgument that lists these names.
CONVOLUME_API Hierarchy named_hierarchy(std::string_view name);
/// Throws InvalidArgument that names the level and the field: a missing or repeated name, a size or an energy that is
/// not positive, sizes or energies that fall from a level to the next level of the same tensor, a tensor without a
/// level, or a last level that is not the DRAM.
CONVOLUME_API void validate(const Hierarchy& hierarchy);

/// Channels of x and of y that the hardware multiplies at once.
struct Datapath {
  index_t c = 16, k = 16;
};

/// What is computed. Channels are padded to multiples of the datapath's, and pads count as words and accesses.
struct EnergyLayer {
  std::string name;
  NestSpace space;
  Datapath datapath;
  double macs = 0;      ///< without pads
  bool weights = true;  ///< pooling and normalisation have none
};
/// Returns the forward direction of a problem. Throws InvalidArgument for a datapath without channels, and Unsupported
/// for transposed, grouped and depthwise problems.
CONVOLUME_API EnergyLayer energy_layer(ConvProblem problem, Datapath datapath, std::string name = {});
/// The layers of paper 000, Table 4: conv1 to conv5, fc1, fc2, pool, lrn.
CONVOLUME_API const std::vector<std::string>& table4_layers();
/// Returns a layer of Table 4. Without a batch, layers fc have 64 samples and the others one. Windows of convolutions
/// read no padding: the source is as much larger. Pooling (stride 2) and normalisation (over 5 channels, our
/// assumption) compute one channel at a time on one lane. Throws InvalidArgument that lists the names.
CONVOLUME_API EnergyLayer table4_layer(std::string_view name, std::optional<index_t> batch = {},
                                       Datapath datapath = {});

/// How reads of a buffer are counted: each word of the buffer once per pass (y is also written), or Table 2 and
/// equation 1 to the letter.
enum class Counts { exact, table2 };

struct EnergyOptions {
  Counts counts = Counts::exact;
  double mac_pj = 1.0;                  ///< unpublished; an assumption
  std::optional<double> register_pj{};  ///< of memories up to most_register_bytes or the latches; else by access_pj()
  int word_bits = 0;                    ///< width of all memories; 0: 256 bits for x and y, 512 for w
  /// A latch is what the datapath holds of an operand for one step. Free latches cost no access; others are buffers.
  bool free_latches = true;
  double limit_bytes = 0;  ///< of all memories of a free hierarchy together; 0: none
};

/// The accesses of a memory.
struct MemoryUse {
  std::string name;
  double bytes = 0;     ///< 0 for the DRAM
  bool shared = false;  ///< by all cores
  std::array<double, 3> pj_per_word{};
  std::array<double, 3> accesses{};  ///< of words, by operand
  std::array<double, 3> held{};      ///< words of each operand
};

struct EnergyReport {
  LoopNest nest;
  std::string string;                          ///< the blocking string of the nest
  std::array<double, 3> sram_pj{}, dram_pj{};  ///< by operand: x, w, y
  double mac_pj = 0, broadcast_pj = 0, shuffle_pj = 0;
  double macs = 0;
  std::vector<MemoryUse> memories;  ///< the DRAM is the last
  double sram_bytes = 0, area_mm2 = 0;
  CONVOLUME_API double memory_pj() const noexcept;  ///< of all accesses, without the multiply-adds
  double total_pj() const noexcept { return memory_pj() + mac_pj; }
  double pj_per_mac() const noexcept { return total_pj() / macs; }
};

/// Returns the energy of a nest. Its loops lie outside of the datapath, which is the microkernel; if the nest ends with
/// the datapath's loops over channels, these are not counted again. Buffers go into a hierarchy by the rule of section
/// 3.5: always the buffer with most accesses goes into the innermost memory that has room, and the first one that does
/// not fit closes that memory. A buffer whose inner neighbour lies in the same memory replaces it. In a free hierarchy
/// buffers are memories of their own, and from the outermost inwards as many are left to the DRAM as saves energy or
/// as the limit demands. Throws InvalidArgument if the nest does not cover the layer, or if an extent is no divisor of
/// the next one.
CONVOLUME_API EnergyReport nest_energy(const LoopNest& nest, const EnergyLayer& layer, const Hierarchy& hierarchy,
                                       const EnergyOptions& options = {});

/// Returns what the numbers of a report take for granted, as sentences.
CONVOLUME_API std::vector<std::string> energy_assumptions(const EnergyLayer& layer, const Hierarchy& hierarchy,
                                                          const EnergyOptions& options);

struct SearchOptions {
  int levels = 2;            ///< loops over each dimension at most, 1 to 5; loops over taps are not split
  int top = 1;               ///< nests to return
  int seeds = 128;           ///< iterative: best nests that are kept, and perturbed nests that are added
  std::uint64_t seed = 1;    ///< of perturbations
  double most_labels = 4e6;  ///< exhaustive: partial nests before the search gives up its proof
};

struct SearchResult {
  std::vector<EnergyReport> best;  ///< the best first
  double tried = 0;                ///< nests (iterative) or partial nests (exhaustive) that were evaluated
  bool proven = false;             ///< no nest with these levels needs less
  double bound_pj = 0;             ///< exhaustive: no nest has memories that need less than this
};

/// Searches all orders of loops and all sizes that divide the extents by branch and bound (paper 000, section 3.5).
/// Partial nests are extended from the inside outwards, the one with the least bound first. The bound of a partial nest
/// is its energy so far plus the least energy of any completion: exact for a free hierarchy without a limit and for
/// separate memories, and otherwise what remains if each buffer had a memory for itself alone. Throws InvalidArgument
/// for options out of range, for Counts::table2, whose energies do not add up from the inside, and for a space of more
/// than about 10^8 states.
CONVOLUME_API SearchResult search_exhaustive(const EnergyLayer& layer, const Hierarchy& hierarchy,
                                             const EnergyOptions& options, const SearchOptions& search);

/// Searches as the paper does: optimises two levels, keeps the best nests, adds as many that are perturbed at random
/// (sizes, and neighbouring loops exchanged), gives each dimension one more loop, and optimises all loops again. Works
/// for any hierarchy and any number of levels. The same seed gives the same nests.
CONVOLUME_API SearchResult search_iterative(const EnergyLayer& layer, const Hierarchy& hierarchy,
                                            const EnergyOptions& options, const SearchOptions& search);

/// Which loop the cores share out (section 3.3): output channels, so that the outermost memory of x is shared, or
/// voxels of the result, so that the outermost memory of w is shared.
enum class CoreSplit { k, xy };

/// The energy of several cores with one shared memory, in the parts of Figure 9.
struct CoreEnergy {
  int cores = 1;
  double private_pj = 0;               ///< of the memories inside of cores
  std::array<double, 3> last_pj{};     ///< of the outermost or shared memories of x, w, y, without broadcasts
  double broadcast_pj = 0;             ///< of the shared memory, whose reads go to all cores
  double dram_pj = 0, shuffle_pj = 0;  ///< shuffle: results that other cores need in the next layer
  double total_pj() const noexcept {
    return private_pj + last_pj[0] + last_pj[1] + last_pj[2] + broadcast_pj + dram_pj + shuffle_pj;
  }
};

/// Returns the energy of a nest that has been reported for one core, on `cores` cores. In a free hierarchy, the
/// outermost memories of the tensors that are split become `cores` memories of a part of the size, and the other one is
/// shared. In a fixed hierarchy, each core has memories of its own, except for shared levels. The shared memory of the
/// tensor that is not split is read once for all cores, and such a read costs what a memory as large as all memories of
/// the chip costs (section 3.4). Throws InvalidArgument if the dimension that is split is no multiple of the cores.
CONVOLUME_API CoreEnergy core_energy(const EnergyReport& report, const EnergyLayer& layer, const Hierarchy& hierarchy,
                                     const EnergyOptions& options, int cores, CoreSplit split);

/// Memories for several layers.
struct SystemDesign {
  Hierarchy hierarchy;  ///< separate memories of x, w and y
  double sram_bytes = 0, area_mm2 = 0;
  std::vector<EnergyReport> layers{};  ///< the best nest of each layer on it
  double total_pj = 0;                 ///< of all layers
};
struct SystemResult {
  std::vector<SystemDesign> best;   ///< the best first
  std::vector<EnergyReport> alone;  ///< the best nest of each layer with memories of its own
  double tried = 0;                 ///< nests that were evaluated
};
/// Designs memories within options.limit_bytes for several layers (section 3.6): takes the memories of the ten best
/// nests of each layer, and unions of these; computes the best nest of every layer on each of them; and returns the
/// designs of the least energy of all layers. Throws InvalidArgument without layers and without a limit.
CONVOLUME_API SystemResult design_system(const std::vector<EnergyLayer>& layers, const EnergyOptions& options,
                                         const SearchOptions& search);

}  // namespace convolume::plan
