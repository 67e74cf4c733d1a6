#include "nets/layers/max_pool.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nets/layers/layer_step.hpp"
#include "nets/layers/shape_rules.hpp"

namespace convolume::nets {
namespace {

class MaxPoolTasks final : public LayerTasks {
 public:
  MaxPoolTasks(const ops::MaxPool& pool, const LayerSetup& setup) : pool_(pool) {
    const Shape5 y{setup.batch, setup.output->channels, setup.output->extent};
    // One byte per output.
    buffer_ = setup.lifetimes->add(static_cast<std::size_t>(stored_elements(y, setup.layout, DataType::f32)));
    argmax_ = Address<std::uint8_t>::in(setup.lifetimes->slot(buffer_));
  }

  Ready append_forward(ForwardStep& step) override {
    step.use(buffer_);
    const auto x = step.x();
    const auto y = step.y();
    return ops::append_max_pool_forward<float>(step.graph(), step.x_ready() & step.gate(), x, y, argmax_, pool_);
  }
  void append_backward(BackwardStep& step) override {
    step.use(buffer_);
    const auto dy = step.dy();
    const auto dx = step.dx();
    if (!step.wants_dx()) return;
    step.wrote_dx(0, ops::append_max_pool_backward<float>(step.graph(), step.all_ready(), dy, argmax_, dx, pool_,
                                                          step.adds_dx()));
  }

 private:
  ops::MaxPool pool_;
  Lifetimes::Buffer buffer_;
  Address<std::uint8_t> argmax_;
};

}  // namespace

std::shared_ptr<const Layer> MaxPoolLayer::read(TomlTable& table) {
  ops::MaxPool pool;
  pool.window = table.extent("window", 1, Extent3::all(2));
  pool.stride = table.extent("stride", 1, pool.window);
  pool.dilation = table.extent("dilation", 1, Extent3::all(1));
  return std::make_shared<MaxPoolLayer>(pool);
}

std::string MaxPoolLayer::text() const {
  return fmt::format("max_pool {} stride {} dilation {}", to_string(pool_.window), to_string(pool_.stride),
                     to_string(pool_.dilation));
}

std::string MaxPoolLayer::title() const { return "max pool " + to_string(pool_.window); }

void MaxPoolLayer::add_keys(nlohmann::ordered_json& json, const NodeShape&, const NodeShape&) const {
  json["type"] = "max_pool";
  json["window"] = json_of(pool_.window);
  json["stride"] = json_of(pool_.stride);
  json["dilation"] = json_of(pool_.dilation);
}

NodeShape MaxPoolLayer::shape(const InputShapes& inputs) const {
  const NodeShape& x = *inputs[0];
  NodeShape y = Layer::shape(inputs);
  y.extent = ops::pooled_extent(x.extent, pool_);
  for (int axis = 0; axis < 3; ++axis) {
    AxisView& view = y.axes[static_cast<std::size_t>(axis)];
    const index_t span = (pool_.window[axis] - 1) * pool_.dilation[axis] + 1;
    view = windowed(view, span, pool_.stride[axis], 0);
    pad_window(y, x, axis, span, pool_.stride[axis], 0);
  }
  return y;
}

std::unique_ptr<LayerTasks> MaxPoolLayer::make_tasks(const LayerSetup& setup) const {
  return std::make_unique<MaxPoolTasks>(pool_, setup);
}

}  // namespace convolume::nets
