// The convolution of Figure 6 of paper 004 (Tavarageri et al., PolyScientist) in C, as a competitor. The compiler
// vectorises it, for the instruction set that our kernels use.
#pragma once

#include <memory>

#include "bench/conv/conv_competitor.hpp"

namespace convolume::bench {

/// Makes a competitor that computes forward only. Each sample is a task. Tensors are blocked and padded beforehand.
/// Throws Unsupported unless the problem is planar and in float, has no groups and no dilation, and has channels in
/// multiples of 16.
std::unique_ptr<ConvCompetitor> c_loops_convolution(const ConvProblem& problem, const ConvData& data, int threads);

}  // namespace convolume::bench
