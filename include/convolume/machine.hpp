// What the cost models know of a machine: caches, rates and bandwidths.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "convolume/version.hpp"

namespace convolume {

/// What a core issues. A register tile is a set of sums in registers that one call of a kernel computes.
struct IssueTable {
  double multiply_adds;  ///< of vectors, per cycle
  double loads;          ///< of vectors, or of one value into all lanes, per cycle
  double latency;        ///< cycles of a multiply-add, for which the next one in the same register waits
  double tile;           ///< cycles to begin and end a register tile, beside the loads and stores of its sums
};

/// The price of a transfer (paper 001, equation 1): start + jumps * jump + words * element. A jump leads to the next
/// stretch of neighbouring addresses. The unit may be any one. Machine rows and streamed convolutions use seconds and
/// words of 4 bytes.
struct TransferPrice {
  double start = 0;    ///< C: per transfer
  double jump = 0;     ///< p: per stretch
  double element = 0;  ///< t: per word

  double of(double calls, double jumps, double words) const noexcept {
    return calls * start + jumps * jump + words * element;
  }
  /// Throws InvalidArgument that names the price if one is not positive and finite.
  CONVOLUME_API void validate() const;
  friend bool operator==(const TransferPrice&, const TransferPrice&) = default;
};

/// What the cost models know of a machine, for one SIMD target. It comes from a row of a table (see docs/machines.md),
/// and reads neither the clock nor the load. Shares are fractions of the FMA peak of a core.
struct MachineModel {
  std::string row;  ///< name of the row and of the SIMD target, e.g. "zen4/AVX3"
  /// Bytes of the data caches that a core can use. The sizes are this machine's. If a size is unknown here, or if the
  /// row was selected by name, it is the row's.
  long long l1_bytes, l2_bytes, l3_bytes;
  /// Bytes of the L2 and of the L3 that the cost models and the limits of non-temporal stores count on. A row states
  /// less than the sizes if the L2 is slow before it is full, or if other programs use the L3. Otherwise these are
  /// l2_bytes and l3_bytes.
  long long usable_l2_bytes, usable_l3_bytes;
  /// Cores of the machine that are not efficiency cores, whether this process may use them or not. The models assume
  /// that all of them compute. If the row was selected by name, they are the two cores of the machines on which the
  /// constants of the models were fitted.
  int cores;
  int l3_cores;                            ///< how many of these cores share an L3
  double ghz;                              ///< nominal frequency; all rates are at this frequency
  double gflops_per_core;                  ///< peak of fused multiply-adds in single precision
  double l1_gb_per_s;                      ///< bandwidth of loads from the L1, one core
  double l2_gb_per_s, l3_gb_per_s;         ///< bandwidth of loads, one core
  double dram_gb_per_s;                    ///< bandwidth of loads from memory that each of `cores` gets
  double dram_gb_per_s_of_all;             ///< bandwidth of loads from memory, all cores together
  std::array<double, 4> latency_ns;        ///< of a load from the L1, the L2, the L3 and memory
  double tile_transform_share;             ///< transforms of tiles whose spectra take little of the L2
  double spilled_tile_transform_share;     ///< transforms of tiles whose spectra take much of the L2
  double tile_product_share;               ///< products of complex matrices with many rows
  double window_transform_share;           ///< transforms of the windows of `toom_cook` that take little of the L2
  double window_product_share;             ///< products of windows and channels of `toom_cook`
  double direct_share;                     ///< sums over taps, with channels in the lanes
  double depthwise_share;                  ///< the same for depthwise convolutions
  double volume_transform_share;           ///< transforms of whole volumes
  IssueTable issue;                        ///< for `direct`
  std::array<TransferPrice, 3> transfers;  ///< from the L2, from the L3 and from memory
  double task_s;                           ///< seconds to begin and end a task
  double transpose_s;  ///< seconds to transpose 64 bytes of channels between a plain tensor and scratch memory
};

/// Returns the model of this machine, or of the machine that was selected, for the current SIMD target. The environment
/// variable CONVOLUME_MACHINE selects one at program start; if its value is wrong, this function throws. Deterministic.
CONVOLUME_API const MachineModel& machine_model();

/// Selects a machine: the name of a built-in row, which may be of another processor, or a file that `convolume machine
/// --save` wrote on this kind of processor. An empty text selects this machine again. Throws InvalidArgument that
/// lists the rows, FormatError that names the file and the field, or IoError. References that machine_model() returned
/// stay valid. Plans that exist keep their choices. Not thread-safe; call it while nothing runs.
CONVOLUME_API void select_machine(const std::string& name_or_file);

/// Returns the names of the built-in rows, sorted.
CONVOLUME_API std::vector<std::string> machine_rows();

/// A value of the row in use, and where it comes from.
struct MachineValue {
  std::string name;  ///< e.g. "l2_load"
  double value;
  std::string unit;    ///< e.g. "bytes/cycle"
  std::string origin;  ///< "measured", "public", "estimated" or "inherited"
  std::string source;  ///< command, document or row
};

/// Returns the values of the row in use for the current SIMD target, in the order of docs/machines.md.
CONVOLUME_API std::vector<MachineValue> machine_values();
/// Returns the row in use as the text of a file, for this processor, with all values for all SIMD targets of this
/// machine. select_machine() accepts it.
CONVOLUME_API std::string machine_row_text();
/// Returns 16 hexadecimal digits that change if a value of the row in use, a cache size or the number of cores changes.
CONVOLUME_API std::string machine_digest();
/// Returns why this row is used, e.g. "row of this processor" or "relative of GenuineIntel family 0x6 model 0xad".
CONVOLUME_API std::string machine_reason();

}  // namespace convolume
