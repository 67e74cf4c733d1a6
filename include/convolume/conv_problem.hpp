// Descriptions of convolutions: values that say what to compute, and their text.
#pragma once

#include <string>
#include <string_view>

#include "convolume/tensor.hpp"

namespace convolume {

/// What is done to the sums of a convolution before they are stored: y = activation(sum + bias).
struct Epilogue {
  bool bias = false;
  Activation activation{};
  friend bool operator==(const Epilogue&, const Epilogue&) = default;
};

/// A 3-D convolution (cross-correlation, as in PyTorch and oneDNN): for groups = 1
///   y[n, o, i] = act(bias[o] + sum over c and j of x[n, c, i * stride - pad_before + j * dilation] * w[o, c, j]).
/// x is batch x in_channels x input, w is out_channels x in_channels / groups x kernel.
///
/// `transposed` swaps the roles: y is what the gradient of such a convolution with respect to its input would be
/// (PyTorch's ConvTranspose3d); w is in_channels x out_channels / groups x kernel, and `output_padding` adds voxels at
/// the end of each axis.
struct ConvProblem {
  DataType type = DataType::f32;
  index_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  Extent3 input{}, kernel{};
  Extent3 stride{1, 1, 1};
  Extent3 dilation{1, 1, 1};  ///< 1 is dense
  Extent3 pad_before{0, 0, 0}, pad_after{0, 0, 0};
  bool transposed = false;
  Extent3 output_padding{0, 0, 0};  ///< transposed only; below stride on each axis
  Layout x_layout = Layout::plain, y_layout = Layout::plain;
  Epilogue epilogue{};

  /// Voxels that a kernel spans: (kernel - 1) * dilation + 1.
  Extent3 span() const noexcept { return (kernel - Extent3::all(1)) * dilation + Extent3::all(1); }
  /// Extent of y. Throws InvalidArgument naming the axis where the kernel does not fit.
  CONVOLUME_API Extent3 output() const;
  Shape5 x_shape() const { return {batch, in_channels, input}; }
  Shape5 y_shape() const { return {batch, out_channels, output()}; }
  Shape5 w_shape() const {
    return transposed ? Shape5{in_channels, out_channels / groups, kernel}
                      : Shape5{out_channels, in_channels / groups, kernel};
  }
  /// Throws InvalidArgument naming the field, its value and what it may be; OverflowError for tensors too large.
  CONVOLUME_API void validate() const;
  /// Multiplications and additions of the direct way, one direction.
  CONVOLUME_API double flops() const;

  friend bool operator==(const ConvProblem&, const ConvProblem&) = default;
};

/// The convolution, not transposed, whose gradient with respect to its input `problem` computes: its x is our y, its y
/// our x, its weights are ours. Without epilogue. A problem that is not transposed comes back as it is.
CONVOLUME_API ConvProblem untransposed(const ConvProblem& problem);

/// Reads a problem in the descriptor grammar of oneDNN's benchdnn, e.g. "mb1ic32id48oc32od44kd5" ("g48" groups, "pd2"
/// padding, "dd1" one skipped voxel, which is dilation 2 here). A missing height or width repeats depth or height;
/// padding behind follows from the output where that is given. Throws InvalidArgument naming the token.
CONVOLUME_API ConvProblem parse_problem(std::string_view text);
/// The same grammar back. Type, layouts, transposition and epilogue are not part of it.
CONVOLUME_API std::string to_string(const ConvProblem& problem);

}  // namespace convolume
