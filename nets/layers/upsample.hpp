// Nearest-neighbour upsampling.
#pragma once

#include "nets/base/toml_reader.hpp"
#include "nets/layers/layer.hpp"

namespace convolume::nets {

class UpsampleLayer final : public Layer {
 public:
  explicit UpsampleLayer(const Extent3& factor) : factor_(factor) {}
  static std::shared_ptr<const Layer> read(TomlTable& table);

  std::string text() const override;
  std::string title() const override;
  void add_keys(nlohmann::ordered_json& json, const NodeShape& x, const NodeShape& y) const override;
  NodeShape shape(const InputShapes& inputs) const override;
  bool reads_x_backward() const override { return false; }
  bool reads_y_backward() const override { return false; }
  std::unique_ptr<LayerTasks> make_tasks(const LayerSetup& setup) const override;

 private:
  Extent3 factor_;
};

}  // namespace convolume::nets
