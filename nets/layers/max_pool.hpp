// Max-pooling, also with dilated windows (max filters).
#pragma once

#include "nets/base/toml_reader.hpp"
#include "nets/layers/layer.hpp"
#include "ops/pooling.hpp"

namespace convolume::nets {

class MaxPoolLayer final : public Layer {
 public:
  explicit MaxPoolLayer(const ops::MaxPool& pool) : pool_(pool) {}
  static std::shared_ptr<const Layer> read(TomlTable& table);
  const ops::MaxPool& pool() const { return pool_; }

  std::string text() const override;
  std::string title() const override;
  void add_keys(nlohmann::ordered_json& json, const NodeShape& x, const NodeShape& y) const override;
  NodeShape shape(const InputShapes& inputs) const override;
  bool reads_x_backward() const override { return false; }
  bool reads_y_backward() const override { return false; }
  std::unique_ptr<LayerTasks> make_tasks(const LayerSetup& setup) const override;

 private:
  ops::MaxPool pool_;
};

}  // namespace convolume::nets
