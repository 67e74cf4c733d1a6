// Convolutions as matrix products of a BLAS, as Caffe computes them. They are competitors.
#pragma once

#include <memory>
#include <string>

#include "bench/conv/conv_competitor.hpp"

namespace convolume::bench {

/// A BLAS, loaded when it is first needed. OpenBLAS uses as many threads as it is given, ATLAS of Debian one.
enum class Blas { openblas, atlas };

/// Makes a convolution of plain tensors. A pass copies the windows of one sample and group into the columns of a matrix
/// of (channels * taps) x results (im2col), and multiplies it by the weights. Backward data multiplies first, and adds
/// the columns to dx. A kernel of one voxel without stride and padding needs no copies. If the kernel covers all of x,
/// one product computes all samples, without copies. Training is forward, backward data and backward weights, one after
/// the other. Throws Unsupported if the library is missing (the message says what to install) or if the problem is
/// transposed.
std::unique_ptr<ConvCompetitor> im2col_convolution(const ConvProblem& problem, const ConvData& data, Blas blas,
                                                   int threads);

/// Returns the kernels that OpenBLAS takes, for example "Haswell". The environment variable OPENBLAS_CORETYPE selects
/// others. Throws Unsupported if the library is missing.
std::string openblas_core();

}  // namespace convolume::bench
