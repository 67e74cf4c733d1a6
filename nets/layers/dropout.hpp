// Dropout. It has no effect in inference.
#pragma once

#include "nets/base/toml_reader.hpp"
#include "nets/layers/layer.hpp"

namespace convolume::nets {

class DropoutLayer final : public Layer {
 public:
  explicit DropoutLayer(double rate) : rate_(rate) {}
  static std::shared_ptr<const Layer> read(TomlTable& table);

  std::string text() const override;
  std::string title() const override;
  void add_keys(nlohmann::ordered_json& json, const NodeShape& x, const NodeShape& y) const override;
  bool backpropagates_in_place() const override { return true; }
  bool reads_x_backward() const override { return false; }
  bool reads_y_backward() const override { return false; }
  std::unique_ptr<LayerTasks> make_tasks(const LayerSetup& setup) const override;

 private:
  double rate_;
};

}  // namespace convolume::nets
