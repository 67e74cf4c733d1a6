// oneDNN's convolution as a competitor. It is built from onednn_convolution.cpp if the library is found, otherwise from
// onednn_absent.cpp.
#pragma once

#include <memory>
#include <string>

#include "bench/conv/conv_competitor.hpp"

namespace convolume::bench {

class OneDnnConvolution : public ConvCompetitor {
 public:
  /// Returns the implementation that oneDNN selected, e.g. "jit:avx512_core"; for training, one for each pass.
  virtual std::string implementation(Direction direction) = 0;
};

/// Returns name and version, or an empty string if the benchmark was built without oneDNN.
std::string onednn_version();

/// Makes a convolution with every tensor in the layout that oneDNN selects, reordered beforehand. Primitives are made
/// at their first execution. Training is forward, backward data and backward weights, one after the other. If oneDNN
/// does not support the problem, this function or execute() throws Unsupported.
std::unique_ptr<OneDnnConvolution> onednn_convolution(const ConvProblem& problem, const ConvData& data, int threads);

}  // namespace convolume::bench
