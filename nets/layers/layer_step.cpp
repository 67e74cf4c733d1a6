#include "nets/layers/layer_step.hpp"

#include <stdexcept>

namespace convolume::nets {
namespace {

class NoTasks : public LayerTasks {
 public:
  Ready append_forward(ForwardStep& step) override {
    step.x();
    step.y();
    return step.x_ready() & step.gate();
  }
  void append_backward(BackwardStep& step) override {
    step.dy();
    step.dx();
    if (step.wants_dx()) step.wrote_dx(0, step.all_ready());
  }
};

}  // namespace

Ready ready_of(const ParameterReady& ready, const Parameter* parameter) {
  if (parameter == nullptr) return {};
  const auto found = ready.find(parameter->name);
  return found == ready.end() ? Ready() : found->second;
}

View<const float> LayerStep::x(std::size_t input) {
  step_.use(inputs_[input]->y_buffer);
  return inputs_[input]->y;
}

Ready LayerStep::parameter_ready(const Parameter* parameter) const { return ready_of(parameters_, parameter); }

View<float> ForwardStep::y() {
  step_.use(node_.y_buffer);
  return node_.y;
}

View<const float> BackwardStep::x(std::size_t input) {
  if (!layer_.reads_x_backward()) throw std::logic_error("layer: reads_x_backward() is false, and x is bound");
  return LayerStep::x(input);
}

View<const float> BackwardStep::y() {
  if (!layer_.reads_y_backward()) throw std::logic_error("layer: reads_y_backward() is false, and y is bound");
  step_.use(node_.y_buffer);
  return node_.y;
}

View<const float> BackwardStep::dy() {
  step_.use(node_.dy_buffer);
  return node_.dy;
}

View<float> BackwardStep::dx(std::size_t input) {
  step_.use(inputs_[input]->dy_buffer);
  return inputs_[input]->dy;
}

void BackwardStep::wrote_dx(std::size_t input, Ready ready) {
  inputs_[input]->dy_ready = std::move(ready);
  inputs_[input]->dy_written = true;
}

Ready LayerTasks::append_prepare(TaskGraph&, const ParameterReady&) { return {}; }

void LayerTasks::set_iteration(std::uint64_t, std::uint32_t, std::uint32_t) {}

std::unique_ptr<LayerTasks> no_tasks() { return std::make_unique<NoTasks>(); }

}  // namespace convolume::nets
