#include "nets/layers/group_norm.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/error.hpp"
#include "nets/layers/layer_step.hpp"
#include "ops/group_norm.hpp"

namespace convolume::nets {
namespace {

class GroupNormTasks final : public LayerTasks {
 public:
  GroupNormTasks(const ops::GroupNorm& norm, const LayerSetup& setup)
      : norm_(norm), gamma_(*setup.parameters[0]), beta_(*setup.parameters[1]), memory_(setup.memory) {
    const auto statistics = static_cast<std::size_t>(setup.batch * norm.groups);
    mean_.resize(statistics);
    rstd_.resize(statistics);
  }

  Ready append_forward(ForwardStep& step) override {
    const auto x = step.x();
    const auto y = step.y();
    const Ready ready = step.x_ready() & step.gate() & step.parameter_ready(&gamma_) & step.parameter_ready(&beta_);
    return ops::append_group_norm_forward<float>(step.graph(), ready, x, gamma_.value.data(), beta_.value.data(), y,
                                                 {mean_.data(), rstd_.data()}, norm_, memory_);
  }
  void append_backward(BackwardStep& step) override {
    const auto x = step.x(), dy = step.dy();
    const auto dx = step.dx();
    const Ready after = step.dy_ready() & step.y_ready();
    const bool wanted = step.wants_dx();
    const auto gradients = ops::append_group_norm_backward<float>(
        step.graph(), wanted ? after & step.dx_ready() : after, x, gamma_.value.data(), beta_.value.data(),
        {mean_.data(), rstd_.data()}, dy, dx, wanted && step.adds_dx(), gamma_.gradient.data(), beta_.gradient.data(),
        false, norm_, memory_);
    step.wrote_gradient(gamma_, gradients.parameters);
    step.wrote_gradient(beta_, gradients.parameters);
    if (wanted) step.wrote_dx(0, gradients.dx);
  }

 private:
  ops::GroupNorm norm_;
  Parameter &gamma_, &beta_;
  std::pmr::memory_resource* memory_;
  std::vector<double> mean_, rstd_;
};

double read_epsilon(TomlTable& table) { return table.number("epsilon", 1e-12, 1, 1e-5); }

}  // namespace

std::shared_ptr<const Layer> GroupNormLayer::read_group(TomlTable& table) {
  const double epsilon = read_epsilon(table);
  return std::make_shared<GroupNormLayer>(table.integer("groups", 1), epsilon);
}

std::shared_ptr<const Layer> GroupNormLayer::read_instance(TomlTable& table) {
  return std::make_shared<GroupNormLayer>(0, read_epsilon(table));
}

std::shared_ptr<const Layer> GroupNormLayer::read_layer(TomlTable& table) {
  return std::make_shared<GroupNormLayer>(1, read_epsilon(table));
}

std::string GroupNormLayer::text() const { return fmt::format("group_norm {} {}", groups_, epsilon_); }

std::string GroupNormLayer::title() const {
  return groups_ == 0 ? "instance norm" : fmt::format("group norm {}", groups_);
}

void GroupNormLayer::add_keys(nlohmann::ordered_json& json, const NodeShape& x, const NodeShape&) const {
  json["type"] = "group_norm";
  json["groups"] = groups_of(x);
  json["epsilon"] = epsilon_;
  json["channels"] = x.channels;
}

NodeShape GroupNormLayer::shape(const InputShapes& inputs) const {
  NodeShape y = Layer::shape(inputs);
  if (y.channels % groups_of(y) != 0) {
    throw ConfigError(fmt::format("{} groups do not divide {} channels", groups_of(y), y.channels));
  }
  y.global = true;
  return y;
}

std::vector<ParameterSpec> GroupNormLayer::parameters(const NodeShape& x, const Activation&) const {
  const Shape5 per_channel{1, x.channels, {1, 1, 1}};
  return {{.name = "gamma", .shape = per_channel, .start = 1}, {.name = "beta", .shape = per_channel}};
}

std::unique_ptr<LayerTasks> GroupNormLayer::make_tasks(const LayerSetup& setup) const {
  ops::GroupNorm norm{.groups = groups_of(*setup.inputs[0]), .epsilon = epsilon_};
  if (setup.fused) norm.activation = *setup.fused;
  return std::make_unique<GroupNormTasks>(norm, setup);
}

}  // namespace convolume::nets
