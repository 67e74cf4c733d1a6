#include "nets/layers/crop.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/error.hpp"
#include "nets/layers/join.hpp"
#include "nets/layers/layer_step.hpp"
#include "nets/layers/shape_rules.hpp"
#include "ops/copy.hpp"

namespace convolume::nets {
namespace {

class CropTasks final : public LayerTasks {
 public:
  explicit CropTasks(const Extent3& before) : before_(before) {}

  Ready append_forward(ForwardStep& step) override {
    const auto x = step.x();
    const auto y = step.y();
    return ops::append_copy<float>(step.graph(), step.x_ready() & step.gate(), ops::crop(x, before_, y.shape.extent), y,
                                   false);
  }
  void append_backward(BackwardStep& step) override {
    const auto dy = step.dy();
    const auto dx = step.dx();
    append_region_gradient(step, 0, dy, dx, 0, before_);
  }

 private:
  Extent3 before_;
};

}  // namespace

std::shared_ptr<const Layer> CropLayer::read(TomlTable& table) {
  const Extent3 before = table.extent("before", 0, Extent3::all(0));
  return std::make_shared<CropLayer>(before, table.extent("after", 0, Extent3::all(0)));
}

std::string CropLayer::text() const { return fmt::format("crop {} and {}", to_string(before_), to_string(after_)); }

std::string CropLayer::title() const { return "crop"; }

void CropLayer::add_keys(nlohmann::ordered_json& json, const NodeShape&, const NodeShape&) const {
  json["type"] = "crop";
  json["before"] = json_of(before_);
  json["after"] = json_of(after_);
}

NodeShape CropLayer::shape(const InputShapes& inputs) const {
  const NodeShape& x = *inputs[0];
  NodeShape y = Layer::shape(inputs);
  y.extent = x.extent - before_ - after_;
  for (int axis = 0; axis < 3; ++axis) {
    if (y.extent[axis] < 1) {
      throw ConfigError(fmt::format("cropping {} by {} and {} leaves nothing; crop less or enlarge the patch",
                                    to_string(x.extent), to_string(before_), to_string(after_)));
    }
    AxisView& view = y.axes[static_cast<std::size_t>(axis)];
    const double shift = static_cast<double>(before_[axis]) * view.jump;
    view.origin += shift;
    view.low += shift;
    view.high += shift;
    set_padded(y, axis, y.padded_before[axis] - before_[axis], y.padded_behind[axis] - after_[axis]);
  }
  return y;
}

std::unique_ptr<LayerTasks> CropLayer::make_tasks(const LayerSetup&) const {
  return std::make_unique<CropTasks>(before_);
}

}  // namespace convolume::nets
