#include "nets/layers/dropout.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/random.hpp"
#include "nets/layers/layer_step.hpp"
#include "ops/copy.hpp"
#include "ops/dropout.hpp"

namespace convolume::nets {
namespace {

class DropoutTasks final : public LayerTasks {
 public:
  DropoutTasks(double rate, bool training) : rate_(rate), training_(training) {}

  Ready append_forward(ForwardStep& step) override {
    const auto x = step.x();
    const auto y = step.y();
    const Ready ready = step.x_ready() & step.gate();
    if (!training_) return ops::append_copy<float>(step.graph(), ready, x, y, false);
    return ops::append_dropout_forward<float>(step.graph(), ready, x, y, rate_, &key_);
  }
  void append_backward(BackwardStep& step) override {
    const auto dy = step.dy();
    const auto dx = step.dx();
    if (!step.wants_dx()) return;
    step.wrote_dx(
        0, ops::append_dropout_backward<float>(step.graph(), step.all_ready(), dy, dx, rate_, &key_, step.adds_dx()));
  }
  void set_iteration(std::uint64_t seed, std::uint32_t iteration, std::uint32_t node) override {
    key_ = {.seed = seed, .a = iteration, .b = node};
  }

 private:
  double rate_;
  bool training_;
  RandomKey key_{};
};

}  // namespace

std::shared_ptr<const Layer> DropoutLayer::read(TomlTable& table) {
  return std::make_shared<DropoutLayer>(table.number("rate", 0, 0.999, 0.5));
}

std::string DropoutLayer::text() const { return fmt::format("dropout {}", rate_); }

std::string DropoutLayer::title() const { return text(); }

void DropoutLayer::add_keys(nlohmann::ordered_json& json, const NodeShape&, const NodeShape&) const {
  json["type"] = "dropout";
  json["rate"] = rate_;
}

std::unique_ptr<LayerTasks> DropoutLayer::make_tasks(const LayerSetup& setup) const {
  return std::make_unique<DropoutTasks>(rate_, setup.training);
}

}  // namespace convolume::nets
