#include "nets/layers/upsample.hpp"

#include <nlohmann/json.hpp>

#include "nets/layers/layer_step.hpp"
#include "ops/resample.hpp"

namespace convolume::nets {
namespace {

class UpsampleTasks final : public LayerTasks {
 public:
  explicit UpsampleTasks(const Extent3& factor) : factor_(factor) {}

  Ready append_forward(ForwardStep& step) override {
    const auto x = step.x();
    const auto y = step.y();
    return ops::append_upsample_forward<float>(step.graph(), step.x_ready() & step.gate(), x, y, factor_);
  }
  void append_backward(BackwardStep& step) override {
    const auto dy = step.dy();
    const auto dx = step.dx();
    if (!step.wants_dx()) return;
    step.wrote_dx(
        0, ops::append_upsample_backward<float>(step.graph(), step.all_ready(), dy, dx, factor_, step.adds_dx()));
  }

 private:
  Extent3 factor_;
};

}  // namespace

std::shared_ptr<const Layer> UpsampleLayer::read(TomlTable& table) {
  return std::make_shared<UpsampleLayer>(table.extent("factor", 1, Extent3::all(2)));
}

std::string UpsampleLayer::text() const { return "upsample " + to_string(factor_); }

std::string UpsampleLayer::title() const { return text(); }

void UpsampleLayer::add_keys(nlohmann::ordered_json& json, const NodeShape&, const NodeShape&) const {
  json["type"] = "upsample";
  json["factor"] = json_of(factor_);
}

NodeShape UpsampleLayer::shape(const InputShapes& inputs) const {
  NodeShape y = Layer::shape(inputs);
  y.extent = y.extent * factor_;
  for (int axis = 0; axis < 3; ++axis) {
    AxisView& view = y.axes[static_cast<std::size_t>(axis)];
    const double f = static_cast<double>(factor_[axis]);
    view.jump /= f;
    view.origin -= (f - 1) / 2 * view.jump;
    view.low -= (f - 1) * view.jump;
    y.padded_before[axis] *= factor_[axis];
    y.padded_behind[axis] *= factor_[axis];
  }
  return y;
}

std::unique_ptr<LayerTasks> UpsampleLayer::make_tasks(const LayerSetup&) const {
  return std::make_unique<UpsampleTasks>(factor_);
}

}  // namespace convolume::nets
