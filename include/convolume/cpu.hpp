// The processor: its name, its cores, and the instruction set of the SIMD kernels.
#pragma once

#include <string>
#include <vector>

#include "convolume/version.hpp"

namespace convolume {

/// Returns the brand string of the CPU, e.g. "AMD EPYC", or what identifies it.
CONVOLUME_API std::string cpu_name();
/// Returns the number of CPUs that threads of the process may use; at least 1. It stays as it is once there is a
/// scheduler with helper threads.
CONVOLUME_API int available_cpus();
/// Returns the number of threads for compute-bound work: one per physical core among available_cpus(), as a
/// hyper-thread slows its core down more than it adds (Feinberg 2015). On a machine with two kinds of cores only the
/// faster ones count, unless the mask has none of them. At most the CPU quota of the process's control groups, rounded
/// up; at least 1.
CONVOLUME_API int default_threads();

/// Returns the instruction sets that the kernels of this library were compiled for, best first: a subset of {"AVX3",
/// "AVX2", "SSE4", "NEON", "EMU128", "SCALAR"}. The CMake option CONVOLUME_SIMD_TARGETS selects them.
CONVOLUME_API std::vector<std::string> compiled_simd_targets();
/// Returns the compiled instruction sets that this machine supports, best first. If there are none, every function that
/// needs a kernel throws Unsupported.
CONVOLUME_API std::vector<std::string> available_simd_targets();
/// Returns the instruction set in use. The environment variable CONVOLUME_SIMD selects one at program start. Throws
/// Unsupported if its value is unknown or not available here, and if the library has no kernels for this processor. The
/// message then names the instruction sets of both.
CONVOLUME_API std::string simd_target();
/// Selects an instruction set. Throws Unsupported that lists the available ones. Not thread-safe; call it while nothing
/// runs.
CONVOLUME_API void set_simd_target(const std::string& name);

}  // namespace convolume
