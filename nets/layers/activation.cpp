#include "nets/layers/activation.hpp"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nets/layers/layer_step.hpp"
#include "ops/activation.hpp"

namespace convolume::nets {
namespace {

class ActivationTasks final : public LayerTasks {
 public:
  explicit ActivationTasks(const Activation& activation) : activation_(activation) {}

  Ready append_forward(ForwardStep& step) override {
    const auto x = step.x();
    const auto y = step.y();
    return ops::append_activation_forward<float>(step.graph(), step.x_ready() & step.gate(), x, y, activation_);
  }
  void append_backward(BackwardStep& step) override {
    const auto y = step.y(), dy = step.dy();
    const auto dx = step.dx();
    if (!step.wants_dx()) return;
    step.wrote_dx(0, ops::append_activation_backward<float>(step.graph(), step.all_ready(), y, dy, dx, activation_,
                                                            step.adds_dx()));
  }

 private:
  Activation activation_;
};

}  // namespace

Activation read_activation(TomlTable& table, const std::string& fallback) {
  constexpr std::array kinds{Activation::Kind::none,    Activation::Kind::relu, Activation::Kind::leaky_relu,
                             Activation::Kind::sigmoid, Activation::Kind::tanh, Activation::Kind::softsign};
  std::vector<std::string> names;
  for (const auto kind : kinds) names.emplace_back(name_of(kind));
  const std::string name = table.choice("activation", names, fallback);
  Activation activation;
  for (const auto kind : kinds) {
    if (name == name_of(kind)) activation.kind = kind;
  }
  activation.slope = table.number("slope", 1e-6, 1, 0.01);
  return activation;
}

void add_activation(nlohmann::ordered_json& json, const Activation& activation) {
  json["activation"] = name_of(activation.kind);
  json["slope"] = activation.slope;
}

std::shared_ptr<const Layer> ActivationLayer::read(TomlTable& table) {
  return std::make_shared<ActivationLayer>(read_activation(table, "relu"));
}

std::string ActivationLayer::text() const { return fmt::format("{} {}", name_of(activation_.kind), activation_.slope); }

std::string ActivationLayer::title() const { return name_of(activation_.kind); }

void ActivationLayer::add_keys(nlohmann::ordered_json& json, const NodeShape&, const NodeShape&) const {
  json["type"] = "activation";
  add_activation(json, activation_);
}

std::unique_ptr<LayerTasks> ActivationLayer::make_tasks(const LayerSetup&) const {
  return std::make_unique<ActivationTasks>(activation_);
}

}  // namespace convolume::nets
