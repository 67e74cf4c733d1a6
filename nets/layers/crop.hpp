// Leaves out voxels at the faces.
#pragma once

#include "nets/base/toml_reader.hpp"
#include "nets/layers/layer.hpp"

namespace convolume::nets {

class CropLayer final : public Layer {
 public:
  CropLayer(const Extent3& before, const Extent3& after) : before_(before), after_(after) {}
  static std::shared_ptr<const Layer> read(TomlTable& table);

  std::string text() const override;
  std::string title() const override;
  void add_keys(nlohmann::ordered_json& json, const NodeShape& x, const NodeShape& y) const override;
  NodeShape shape(const InputShapes& inputs) const override;
  bool reads_x_backward() const override { return false; }
  bool reads_y_backward() const override { return false; }
  std::unique_ptr<LayerTasks> make_tasks(const LayerSetup& setup) const override;

 private:
  Extent3 before_, after_;
};

}  // namespace convolume::nets
