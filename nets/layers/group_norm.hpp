// Group, instance and layer normalisation.
#pragma once

#include "nets/base/toml_reader.hpp"
#include "nets/layers/layer.hpp"

namespace convolume::nets {

class GroupNormLayer final : public Layer {
 public:
  /// With 0 groups there are as many groups as channels (instance norm).
  GroupNormLayer(index_t groups, double epsilon) : groups_(groups), epsilon_(epsilon) {}
  static std::shared_ptr<const Layer> read_group(TomlTable& table);
  static std::shared_ptr<const Layer> read_instance(TomlTable& table);
  static std::shared_ptr<const Layer> read_layer(TomlTable& table);
  index_t groups() const { return groups_; }

  std::string text() const override;
  std::string title() const override;
  void add_keys(nlohmann::ordered_json& json, const NodeShape& x, const NodeShape& y) const override;
  NodeShape shape(const InputShapes& inputs) const override;
  std::vector<ParameterSpec> parameters(const NodeShape& x, const Activation& behind) const override;
  bool fuses_activation() const override { return true; }
  bool keeps_scale() const override { return true; }
  bool computes_in_place() const override { return true; }
  bool backpropagates_in_place() const override { return true; }
  bool reads_y_backward() const override { return false; }
  std::unique_ptr<LayerTasks> make_tasks(const LayerSetup& setup) const override;

 private:
  index_t groups_of(const NodeShape& x) const { return groups_ == 0 ? x.channels : groups_; }

  index_t groups_;
  double epsilon_;
};

}  // namespace convolume::nets
