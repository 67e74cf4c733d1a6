// PyTorch's convolution, timed by bench/torch_conv.py in a process of its own.
#pragma once

#include <optional>
#include <string>

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Seconds: medians and quartiles.
struct TorchTimes {
  struct Quartiles {
    double median = 0, low = 0, high = 0;
  };
  Quartiles forward{}, training{};
};

/// Times one problem with as many threads and rounds. Throws Unsupported where Python or PyTorch is missing, with what
/// to do, or where PyTorch refuses.
TorchTimes time_torch(const ConvProblem& problem, const ConvBenchOptions& options);

}  // namespace convolume::bench
