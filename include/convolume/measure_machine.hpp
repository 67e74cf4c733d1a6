// Measures what a machine row holds.
#pragma once

#include <functional>
#include <string>

#include "convolume/machine.hpp"

namespace convolume {

/// Settings of measure_machine().
struct MeasureOptions {
  std::string name = "measured";              ///< name of the row
  int threads = 0;                            ///< threads that load together; 0 means default_threads()
  double seconds = 1;                         ///< seconds per value and SIMD target; about a minute in all with 1
  std::function<void(double)> on_progress{};  ///< called with the share that is done, from 0 to 1
};

/// Measures what a row holds: the peak, loads and stores of each cache, bandwidths, latencies, transfer prices, the
/// issue table, and the rates of tile transforms, products and direct kernels, for each SIMD target with vectors.
/// Returns the text of a row for this kind of processor, which select_machine() accepts as a file. Nothing else should
/// run meanwhile. Not thread-safe: it changes the SIMD target and restores it.
CONVOLUME_API std::string measure_machine(const MeasureOptions& options = {});

}  // namespace convolume
