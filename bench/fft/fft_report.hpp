// What the reports of bench_fft share beyond those of all benchmarks: who transforms, and the floor.
#pragma once

#include "bench/common/report.hpp"
#include "bench/fft/fft_options.hpp"
#include "convolume/fft.hpp"

namespace convolume::bench {

/// describe_machine() and the versions of the libraries that transform.
nlohmann::ordered_json describe_fft_machine(DataType type);

/// 2.5 n log2 n for real and 5 n log2 n for complex transforms of n points.
double nominal_flops(fft::Kind kind, double points);

/// The least time in which this machine could transform a cube: nominal operations at the peak of a core, or input and
/// output once at the bandwidth of the smallest cache that holds both, whichever takes longer.
double floor_seconds(fft::Kind kind, DataType type, index_t n);

}  // namespace convolume::bench
