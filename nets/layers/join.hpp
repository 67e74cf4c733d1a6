// Layers with several inputs: concatenation and sum. Inputs of different extent are cropped to their common part, and
// aligned by their fields of view.
#pragma once

#include "nets/base/toml_reader.hpp"
#include "nets/layers/layer.hpp"
#include "nets/layers/layer_step.hpp"

namespace convolume::nets {

class JoinLayer : public Layer {
 public:
  std::string text() const override;
  std::string title() const override { return text(); }
  void add_keys(nlohmann::ordered_json& json, const NodeShape& x, const NodeShape& y) const override;
  bool joins() const override { return true; }
  NodeShape shape(const InputShapes& inputs) const override;
  bool reads_x_backward() const override { return false; }
  bool reads_y_backward() const override { return false; }

 private:
  virtual const char* type() const = 0;
};

class ConcatLayer final : public JoinLayer {
 public:
  static std::shared_ptr<const Layer> read(TomlTable& table);
  NodeShape shape(const InputShapes& inputs) const override;
  bool keeps_layout() const override { return false; }
  std::unique_ptr<LayerTasks> make_tasks(const LayerSetup& setup) const override;

 private:
  const char* type() const override { return "concat"; }
};

class AddLayer final : public JoinLayer {
 public:
  static std::shared_ptr<const Layer> read(TomlTable& table);
  NodeShape shape(const InputShapes& inputs) const override;
  std::unique_ptr<LayerTasks> make_tasks(const LayerSetup& setup) const override;

 private:
  const char* type() const override { return "add"; }
};

/// Appends the gradient of an input of which the output holds a region: voxels from `begin` on. In dy, its channels
/// begin at `channel`. Voxels outside of the region get 0.
void append_region_gradient(BackwardStep& step, std::size_t input, const View<const float>& dy, const View<float>& dx,
                            index_t channel, const Extent3& begin);

}  // namespace convolume::nets
