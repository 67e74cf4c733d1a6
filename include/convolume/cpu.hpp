// What the machine is, and which instruction set the SIMD kernels use.
#pragma once

#include <string>
#include <vector>

#include "convolume/version.hpp"

namespace convolume {

/// Facts that the cost models read. Sizes in bytes; the model row is chosen by CPU family, SIMD target and cache sizes.
struct MachineModel {
  std::string row;  ///< name of the row of the constants table
  long long l1_bytes, l2_bytes, l3_bytes;
  double gflops_per_core;                          ///< single precision FMA peak
  double l2_gb_per_s, l3_gb_per_s, dram_gb_per_s;  ///< loads, one core
  double dram_gb_per_s_of_all;                     ///< all cores together
};

/// The row of the constants table for this machine and the current SIMD target. Deterministic: reads no clock.
CONVOLUME_API const MachineModel& machine_model();

/// Brand string of the processor, e.g. "AMD EPYC".
CONVOLUME_API std::string cpu_name();
/// Processors that the process may run on (affinity honoured); at least 1.
CONVOLUME_API int available_cpus();
/// Threads for work that computes: one for each physical core of these (a hyper-thread takes from its core more than it
/// brings: Feinberg 2015), and no more than the quota of the control groups that the process is in; at least 1.
CONVOLUME_API int default_threads();

/// Instruction sets compiled in and supported here, best first: subset of {"AVX3", "AVX2", "SSE4", "EMU128", "SCALAR"}.
CONVOLUME_API std::vector<std::string> available_simd_targets();
/// The instruction set in use. The environment variable CONVOLUME_SIMD forces one at start-up; an unknown name in it
/// throws Unsupported here.
CONVOLUME_API std::string simd_target();
/// Forces an instruction set; throws Unsupported with the list of those available. Not thread-safe: call between runs.
CONVOLUME_API void set_simd_target(const std::string& name);

}  // namespace convolume
