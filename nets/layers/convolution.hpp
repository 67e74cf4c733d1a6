// A convolution, which a plan computes.
#pragma once

#include "nets/base/toml_reader.hpp"
#include "nets/layers/layer.hpp"

namespace convolume::nets {

/// The keys of convolutions and of transposed convolutions.
struct ConvolutionKeys {
  index_t out_channels = 1, groups = 1;
  Extent3 kernel{}, stride{1, 1, 1}, dilation{1, 1, 1}, padding{0, 0, 0};
  bool whole_input = false;         ///< kernel = "all": resolved() sets the kernel (not of transposed convolutions)
  Extent3 output_padding{0, 0, 0};  ///< of transposed convolutions only
  bool same = false;                ///< the padding keeps the extent (stride 1 only; not of transposed convolutions)
  bool bias = true;
  Activation activation{};
};

class ConvolutionLayer : public Layer {
 public:
  explicit ConvolutionLayer(const ConvolutionKeys& keys) : keys_(keys) {}
  static std::shared_ptr<const Layer> read(TomlTable& table);
  const ConvolutionKeys& keys() const { return keys_; }

  std::string text() const override;
  std::string title() const override;
  void add_keys(nlohmann::ordered_json& json, const NodeShape& x, const NodeShape& y) const override;
  NodeShape shape(const InputShapes& inputs) const override;
  bool takes_extent() const override { return keys_.whole_input; }
  std::shared_ptr<const Layer> resolved(const Extent3& input) const override;
  std::vector<ParameterSpec> parameters(const NodeShape& x, const Activation& behind) const override;
  std::optional<ConvProblem> convolution(index_t batch, const NodeShape& x) const override;
  const Activation* activation() const override;
  bool keeps_layout() const override { return false; }
  bool reads_y_backward() const override { return activation() != nullptr; }
  std::unique_ptr<LayerTasks> make_tasks(const LayerSetup& setup) const override;

 protected:
  /// Returns the problem for an input, and checks it.
  ConvProblem problem(index_t batch, const NodeShape& x) const;

 private:
  virtual bool transposed() const { return false; }
  /// Sets field of view and padded voxels of the output along one axis.
  virtual void view_axis(const ConvProblem& problem, const NodeShape& x, int axis, NodeShape& y) const;
  /// Returns the number of input elements that one output element sums, and the number of output elements that one
  /// input element adds to. `w` is the shape of the weights.
  virtual std::pair<double, double> fans(const Shape5& w) const;

  ConvolutionKeys keys_;
};

/// Reads the keys of one of both kinds.
ConvolutionKeys read_convolution(TomlTable& table, bool transposed);

}  // namespace convolume::nets
