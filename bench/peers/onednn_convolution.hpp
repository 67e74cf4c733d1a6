// oneDNN's convolution as a contestant. Built from onednn_convolution.cpp where the library is found, from
// onednn_absent.cpp elsewhere.
#pragma once

#include <memory>
#include <string>

#include "bench/conv/conv_contestant.hpp"

namespace convolume::bench {

class OneDnnConvolution : public ConvContestant {
 public:
  /// The implementation that oneDNN chose, e.g. "jit:avx512_core"; one for each pass of training.
  virtual std::string implementation(Direction direction) = 0;
};

/// Name and version, or nothing where the benchmark was built without it.
std::string onednn_version();

/// Every tensor in the layout that oneDNN likes best, reordered beforehand; primitives are made when first executed.
/// Training is forward, backward data and backward weights in turn. Throws Unsupported, from here or from execute(),
/// where oneDNN does not serve the problem.
std::unique_ptr<OneDnnConvolution> onednn_convolution(const ConvProblem& problem, const ConvData& data, int threads);

}  // namespace convolume::bench
