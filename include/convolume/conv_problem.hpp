// Descriptions of convolutions: values that say what to compute, and their text form.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "convolume/tensor.hpp"

namespace convolume {

/// What is applied to the sums of a convolution before they are stored: y = activation(sum + bias).
struct Epilogue {
  bool bias = false;
  Activation activation{};
  friend bool operator==(const Epilogue&, const Epilogue&) = default;
};

/// A 3-D convolution (cross-correlation, as in PyTorch and oneDNN). For groups = 1 it computes
///   y[n, o, i] = act(bias[o] + sum over c and j of x[n, c, i * stride - pad_before + j * dilation] * w[o, c, j]).
/// x has shape batch x in_channels x input; w has shape out_channels x in_channels / groups x kernel.
///
/// If `transposed` is set (PyTorch's ConvTranspose3d), y is the gradient of such a convolution with respect to its
/// input, and x takes the place of dy. Then w has shape in_channels x out_channels / groups x kernel, and
/// `output_padding` adds voxels at the end of each axis.
struct ConvProblem {
  DataType type = DataType::f32;
  index_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  Extent3 input{}, kernel{};
  Extent3 stride{1, 1, 1};
  Extent3 dilation{1, 1, 1};                        ///< 1 means dense
  Extent3 pad_before{0, 0, 0}, pad_after{0, 0, 0};  ///< voxels of zeros; negative: voxels of x that are left out
  bool transposed = false;
  Extent3 output_padding{0, 0, 0};  ///< only if transposed; less than stride on each axis
  Layout x_layout = Layout::plain, y_layout = Layout::plain;
  Epilogue epilogue{};

  /// Returns the voxels that a kernel spans: (kernel - 1) * dilation + 1.
  Extent3 span() const noexcept { return (kernel - Extent3::all(1)) * dilation + Extent3::all(1); }
  /// Returns the extent of y. Throws InvalidArgument that names the axis if the kernel does not fit.
  CONVOLUME_API Extent3 output() const;
  Shape5 x_shape() const { return {batch, in_channels, input}; }
  Shape5 y_shape() const { return {batch, out_channels, output()}; }
  Shape5 w_shape() const {
    return transposed ? Shape5{in_channels, out_channels / groups, kernel}
                      : Shape5{out_channels, in_channels / groups, kernel};
  }
  /// Throws InvalidArgument that names the field, its value and the valid values, or OverflowError if a tensor has more
  /// than 2^47 bytes. Padding of at most 2^20 voxels is possible.
  CONVOLUME_API void validate() const;
  /// Returns the multiplications and additions of one direction, computed directly (without FFTs).
  CONVOLUME_API double flops() const;

  friend bool operator==(const ConvProblem&, const ConvProblem&) = default;
};

/// Reads a problem in the grammar of oneDNN's benchdnn, e.g. "mb1ic32id48oc32od44kd5". "g48" means 48 groups, "pd2"
/// padding 2, and "dd1" one skipped voxel, which is dilation 2 here. A missing height repeats the depth, a missing
/// width the height. If the output is given, the padding behind the input follows from it. Throws InvalidArgument that
/// names the token.
CONVOLUME_API ConvProblem parse_problem(std::string_view text);
/// Writes a problem in the same grammar. Type, layouts, transposition and epilogue are not part of the text.
/// parse_problem() refuses the text of a problem that leaves out voxels behind x, because benchdnn has none.
CONVOLUME_API std::string to_string(const ConvProblem& problem);

namespace plan {

/// The direction decides which tensor a convolution writes: y, dx or dw.
enum class Direction { forward, backward_data, backward_weights };
inline constexpr std::array directions{Direction::forward, Direction::backward_data, Direction::backward_weights};
/// Returns "fwd", "bwd_d" or "bwd_w".
CONVOLUME_API const char* name_of(Direction direction) noexcept;

}  // namespace plan
}  // namespace convolume
