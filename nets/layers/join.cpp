#include "nets/layers/join.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/error.hpp"
#include "nets/layers/shape_rules.hpp"
#include "ops/copy.hpp"

namespace convolume::nets {
namespace {

/// What both layers share: each input's part of the output.
class JoinTasks : public LayerTasks {
 public:
  explicit JoinTasks(const LayerSetup& setup) : crop_(setup.output->crop), extent_(setup.output->extent) {
    for (const NodeShape* input : setup.inputs) channels_.push_back(input->channels);
  }

 protected:
  /// Binds the inputs, and returns the part of each that the output holds.
  std::vector<View<const float>> bind_parts(ForwardStep& step) const {
    std::vector<View<const float>> parts;
    for (std::size_t k = 0; k < step.inputs(); ++k) parts.push_back(ops::crop(step.x(k), crop_[k], extent_));
    return parts;
  }
  /// Appends the gradients of all inputs. `apart` says whether each input has channels of its own in dy.
  void append_gradients(BackwardStep& step, bool apart) const {
    const auto dy = step.dy();
    std::vector<View<float>> dx;
    for (std::size_t k = 0; k < step.inputs(); ++k) dx.push_back(step.dx(k));
    index_t channel = 0;
    for (std::size_t k = 0; k < step.inputs(); ++k) {
      append_region_gradient(step, k, dy, dx[k], channel, crop_[k]);
      if (apart) channel += channels_[k];
    }
  }

 private:
  std::vector<Extent3> crop_;
  Extent3 extent_;
  std::vector<index_t> channels_;
};

class ConcatTasks final : public JoinTasks {
 public:
  using JoinTasks::JoinTasks;

  Ready append_forward(ForwardStep& step) override {
    const auto parts = bind_parts(step);
    const auto y = step.y();
    std::vector<Ready> ready;
    for (std::size_t k = 0; k < step.inputs(); ++k) ready.push_back(step.x_ready(k) & step.gate());
    return ops::append_concat<float>(step.graph(), ready, parts, y);
  }
  void append_backward(BackwardStep& step) override { append_gradients(step, true); }
};

class AddTasks final : public JoinTasks {
 public:
  using JoinTasks::JoinTasks;

  Ready append_forward(ForwardStep& step) override {
    const auto parts = bind_parts(step);
    const auto y = step.y();
    Ready ready =
        ops::append_add<float>(step.graph(), step.x_ready(0) & step.x_ready(1) & step.gate(), parts[0], parts[1], y);
    for (std::size_t k = 2; k < step.inputs(); ++k) {
      ready = ops::append_copy<float>(step.graph(), ready & step.x_ready(k), parts[k], y, true);
    }
    return ready;
  }
  void append_backward(BackwardStep& step) override { append_gradients(step, false); }
};

/// Aligns one axis: from the largest of the first positions to the smallest of the last ones.
void align(const InputShapes& inputs, int axis, NodeShape& y) {
  const auto view = [&](std::size_t k) -> const AxisView& { return inputs[k]->axes[static_cast<std::size_t>(axis)]; };
  const double jump = view(0).jump;
  double first = -1e300;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (view(k).jump != jump) {
      throw ConfigError(fmt::format("joins feature maps of different resolution along {}; pool or upsample one of them",
                                    "zyx"[axis]));
    }
    first = std::max(first, view(k).origin);
  }
  AxisView& a = y.axes[static_cast<std::size_t>(axis)];
  index_t common = -1;
  a.low = 1e300;
  a.high = -1e300;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const AxisView& v = view(k);
    const double skip = (first - v.origin) / jump;
    // Maps that lie half a voxel apart (an odd kernel behind an even one) are aligned at the voxel before.
    const auto offset = static_cast<index_t>(std::floor(skip));
    y.crop[k][axis] = offset;
    const index_t left = inputs[k]->extent[axis] - offset;
    common = common < 0 ? left : std::min(common, left);
    a.low = std::min(a.low, v.low + static_cast<double>(offset) * jump);
    a.high = std::max(a.high, v.high + static_cast<double>(offset) * jump);
  }
  if (common < 1) throw ConfigError("joins feature maps that have no voxel in common; enlarge the patch");
  a.origin = first;
  y.extent[axis] = common;
  index_t before = 0, behind = 0;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const NodeShape& x = *inputs[k];
    const index_t cut = y.crop[k][axis];
    before = std::max(before, x.padded_before[axis] - cut);
    behind = std::max(behind, x.padded_behind[axis] - (x.extent[axis] - cut - common));
  }
  set_padded(y, axis, before, behind);
}

}  // namespace

void append_region_gradient(BackwardStep& step, std::size_t input, const View<const float>& dy, const View<float>& dx,
                            index_t channel, const Extent3& begin) {
  if (!step.wants_dx(input)) return;
  const Extent3 extent = dy.shape.extent;
  if (!step.adds_dx(input) && dx.shape.extent != extent) {
    step.wrote_dx(input, ops::append_clear<float>(step.graph(), step.dx_ready(input) & step.gate(), dx));
  }
  const auto region = ops::crop(dx, begin, extent);
  step.wrote_dx(input, ops::append_slice<float>(step.graph(), step.dy_ready(), dy, channel, region, step.adds_dx(input),
                                                step.dx_ready(input)));
}

std::string JoinLayer::text() const { return type(); }

void JoinLayer::add_keys(nlohmann::ordered_json& json, const NodeShape&, const NodeShape& y) const {
  json["type"] = type();
  json["crop"] = nlohmann::ordered_json::array();
  for (const Extent3& first : y.crop) json["crop"].push_back(json_of(first));
}

NodeShape JoinLayer::shape(const InputShapes& inputs) const {
  NodeShape y = Layer::shape(inputs);
  y.crop.assign(inputs.size(), Extent3{0, 0, 0});
  for (int axis = 0; axis < 3; ++axis) align(inputs, axis, y);
  return y;
}

std::shared_ptr<const Layer> ConcatLayer::read(TomlTable&) { return std::make_shared<ConcatLayer>(); }

NodeShape ConcatLayer::shape(const InputShapes& inputs) const {
  NodeShape y = JoinLayer::shape(inputs);
  y.channels = 0;
  for (const NodeShape* x : inputs) y.channels += x->channels;
  return y;
}

std::unique_ptr<LayerTasks> ConcatLayer::make_tasks(const LayerSetup& setup) const {
  return std::make_unique<ConcatTasks>(setup);
}

std::shared_ptr<const Layer> AddLayer::read(TomlTable&) { return std::make_shared<AddLayer>(); }

NodeShape AddLayer::shape(const InputShapes& inputs) const {
  NodeShape y = JoinLayer::shape(inputs);
  for (const NodeShape* x : inputs) {
    if (x->channels != y.channels) {
      throw ConfigError(fmt::format("adds {} and {} channels; they must be equal", y.channels, x->channels));
    }
  }
  return y;
}

std::unique_ptr<LayerTasks> AddLayer::make_tasks(const LayerSetup& setup) const {
  return std::make_unique<AddTasks>(setup);
}

}  // namespace convolume::nets
