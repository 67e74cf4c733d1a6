// What the reports of bench_fft share beyond those of all benchmarks: the FFT libraries, and the floor.
#pragma once

#include "bench/common/report.hpp"
#include "bench/fft/fft_options.hpp"
#include "convolume/fft.hpp"

namespace convolume::bench {

/// Returns describe_machine() with the versions of the FFT libraries.
nlohmann::ordered_json describe_fft_machine(DataType type);

/// Returns whether one side of a transform is real.
bool is_real(fft::Kind kind);
/// Returns whether a transform goes from the spectrum to the voxels.
bool to_space(fft::Kind kind);

/// Bytes of the input and of the output of a transform.
struct CubeBytes {
  std::size_t in, out;
};
/// Returns the bytes of a cube of edge n in natural order without gaps, as other libraries store it.
CubeBytes cube_bytes(fft::Kind kind, DataType type, index_t n);

/// Returns 2.5 n log2 n for real and 5 n log2 n for complex transforms of n points.
double nominal_flops(fft::Kind kind, double points);

/// Returns the least seconds in which this machine can transform a cube. It is the longer of two times: the nominal
/// operations at the peak of a core, and one pass over input and output at the bandwidth of the smallest cache that
/// holds both.
double floor_seconds(fft::Kind kind, DataType type, index_t n);

}  // namespace convolume::bench
