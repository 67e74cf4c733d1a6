#include "nets/spec/parameters.hpp"

#include <algorithm>

#include "core/random.hpp"
#include "nets/spec/net_shapes.hpp"

namespace convolume::nets {
namespace {

/// Purpose of random numbers: the second word of their keys. Dropout uses the iteration and the node's index instead.
constexpr std::uint32_t initialisation = 0x10000000;

/// Returns the first activation that follows a node, looking through norms.
Activation activation_behind(const NetSpec& spec, std::size_t index) {
  if (const Activation* own = spec.nodes[index].layer->activation()) return *own;
  for (std::size_t user = index + 1; user < spec.nodes.size(); ++user) {
    const auto& inputs = spec.nodes[user].inputs;
    if (std::find(inputs.begin(), inputs.end(), index + 1) == inputs.end()) continue;
    return spec.nodes[user].layer->keeps_scale() ? activation_behind(spec, user) : Activation{};
  }
  return {};
}

/// Sets start values, which depend on the seed and the number of the node only.
void initialise(Tensor<float>& tensor, const ParameterSpec& parameter, std::uint64_t seed, std::uint32_t node) {
  tensor.fill(parameter.start);
  if (parameter.deviation == 0) return;
  const RandomKey key{.seed = seed, .a = node, .b = initialisation};
  for (index_t i = 0; i < tensor.elements(); ++i) {
    tensor.data()[i] = static_cast<float>(parameter.deviation * normal(key, static_cast<std::uint64_t>(i)));
  }
}

}  // namespace

Parameters::Parameters(const NetSpec& spec, bool training, std::uint64_t seed, std::pmr::memory_resource* memory) {
  const NetShapes shapes = infer_shapes(spec, spec.patch);
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const NodeSpec& node = spec.nodes[i];
    for (const ParameterSpec& one : node.layer->parameters(shapes.of(node.inputs[0]), activation_behind(spec, i))) {
      Parameter& p = list_.emplace_back();
      p.name = node.name + "." + one.name;
      p.value = Tensor<float>(one.shape, memory);
      initialise(p.value, one, seed, static_cast<std::uint32_t>(i));
      if (!training) continue;
      for (auto* tensor : {&p.gradient, &p.moment1, &p.moment2}) {
        if (tensor == &p.moment2 && spec.optimizer.kind == OptimizerKind::sgd) continue;
        *tensor = Tensor<float>(one.shape, memory);
        tensor->fill(0);
      }
    }
  }
}

Parameter* Parameters::find(const std::string& name) {
  for (Parameter& p : list_) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

index_t Parameters::count() const {
  index_t total = 0;
  for (const Parameter& p : list_) total += p.value.elements();
  return total;
}

}  // namespace convolume::nets
