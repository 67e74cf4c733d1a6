// A transposed convolution.
#pragma once

#include "nets/layers/convolution.hpp"

namespace convolume::nets {

class TransposedConvolutionLayer final : public ConvolutionLayer {
 public:
  using ConvolutionLayer::ConvolutionLayer;
  static std::shared_ptr<const Layer> read(TomlTable& table);

 private:
  bool transposed() const override { return true; }
  void view_axis(const ConvProblem& problem, const NodeShape& x, int axis, NodeShape& y) const override;
  std::pair<double, double> fans(const Shape5& w) const override;
};

}  // namespace convolume::nets
