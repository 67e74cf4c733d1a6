#include "nets/layers/transposed_convolution.hpp"

#include "nets/layers/shape_rules.hpp"

namespace convolume::nets {

std::shared_ptr<const Layer> TransposedConvolutionLayer::read(TomlTable& table) {
  return std::make_shared<TransposedConvolutionLayer>(read_convolution(table, true));
}

void TransposedConvolutionLayer::view_axis(const ConvProblem& p, const NodeShape& x, int axis, NodeShape& y) const {
  AxisView& view = y.axes[static_cast<std::size_t>(axis)];
  view = nets::transposed(view, p.span()[axis], p.stride[axis], p.pad_before[axis]);
  pad_transposed(y, x, axis, p.span()[axis], p.stride[axis], p.pad_before[axis]);
}

std::pair<double, double> TransposedConvolutionLayer::fans(const Shape5& w) const {
  // Each output sums kernel / stride taps over the input channels, which are w.n.
  const auto taps = static_cast<double>(keys().kernel.volume());
  const auto stride = static_cast<double>(keys().stride.volume());
  return {static_cast<double>(w.n) * taps / stride, static_cast<double>(w.c) * taps};
}

}  // namespace convolume::nets
