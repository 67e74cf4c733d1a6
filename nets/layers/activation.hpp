// An activation as a layer of its own.
#pragma once

#include "nets/base/toml_reader.hpp"
#include "nets/layers/layer.hpp"

namespace convolume::nets {

/// Reads the keys `activation` and `slope`. Throws ConfigError.
Activation read_activation(TomlTable& table, const std::string& fallback);
/// Writes the same keys.
void add_activation(nlohmann::ordered_json& json, const Activation& activation);

class ActivationLayer final : public Layer {
 public:
  explicit ActivationLayer(const Activation& activation) : activation_(activation) {}
  static std::shared_ptr<const Layer> read(TomlTable& table);

  std::string text() const override;
  std::string title() const override;
  void add_keys(nlohmann::ordered_json& json, const NodeShape& x, const NodeShape& y) const override;
  const Activation* activation() const override { return &activation_; }
  bool only_activates() const override { return true; }
  bool keeps_scale() const override { return true; }
  bool computes_in_place() const override { return true; }
  bool backpropagates_in_place() const override { return true; }
  bool reads_x_backward() const override { return false; }
  std::unique_ptr<LayerTasks> make_tasks(const LayerSetup& setup) const override;

 private:
  Activation activation_;
};

}  // namespace convolume::nets
