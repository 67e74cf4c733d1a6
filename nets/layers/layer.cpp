#include "nets/layers/layer.hpp"

#include <nlohmann/json.hpp>

namespace convolume::nets {

NodeShape Layer::shape(const InputShapes& inputs) const {
  NodeShape y = *inputs[0];
  y.crop.clear();
  return y;
}

std::shared_ptr<const Layer> Layer::resolved(const Extent3&) const { return nullptr; }

std::vector<ParameterSpec> Layer::parameters(const NodeShape&, const Activation&) const { return {}; }

std::optional<ConvProblem> Layer::convolution(index_t, const NodeShape&) const { return std::nullopt; }

nlohmann::ordered_json json_of(const Extent3& e) { return {e.z, e.y, e.x}; }

}  // namespace convolume::nets
