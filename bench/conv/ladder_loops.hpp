// Three ways to write the convolution of paper 003 (Zhao et al., swDNN), from Algorithm 2 on. Each file has the
// compiler options of its step (CMakeLists.txt), so no header with code is included here.
#pragma once

namespace convolume::bench::ladder {

/// A planar convolution without padding, with stride 1.
struct Extents {
  long batch, in_channels, out_channels;
  long in_rows, in_columns, out_rows, out_columns;
  long kernel_rows, kernel_columns;
};

/// Algorithm 2 in scalar code. Layouts: x [batch][channel][row][column], y the same, w [output channel][input
/// channel][row][column]. Each voxel of y is a sum of products of matrices, one per tap, whose operands are gathered.
/// `w_tap` holds out_channels * in_channels values, `x_tap` in_channels * batch and `sums` out_channels * batch.
void algorithm_2(const Extents& n, const float* x, const float* w, float* y, float* w_tap, float* x_tap, float* sums);

/// Algorithm 2 with the layouts of section 3.3.1, so that vectors hold samples and nothing is gathered: x
/// [row][column][channel][batch], y the same, w [row][column][output channel][input channel].
void over_samples(const Extents& n, const float* x, const float* w, float* y);

/// Algorithm 3: `over_samples` with the taps outside of `block` columns (b_C), which share the weights of a tap. Four
/// output channels share each load of x.
void in_blocks(const Extents& n, long block, const float* x, const float* w, float* y);

}  // namespace convolume::bench::ladder
