// PyTorch's convolution, timed by bench/peers/torch_conv.py in a separate process.
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

/// Times one problem with the threads and rounds of `options`. Throws Unsupported that says what to install if Python
/// or PyTorch is missing, or with PyTorch's reason.
TorchTimes time_torch(const ConvProblem& problem, const ConvBenchOptions& options);

}  // namespace convolume::bench
