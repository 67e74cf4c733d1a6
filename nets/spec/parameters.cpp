#include "nets/spec/parameters.hpp"

#include <algorithm>
#include <cmath>

#include "core/random.hpp"

namespace convolume::nets {
namespace {

/// Purpose of random numbers: the second word of their keys. Dropout uses the iteration and the node's index instead.
constexpr std::uint32_t initialisation = 0x10000000;

void initialise(Tensor<float>& w, const ConvNode& conv, const Activation& behind, std::uint64_t seed,
                std::uint32_t node) {
  const auto taps = static_cast<double>(conv.kernel.volume());
  const auto stride = static_cast<double>(conv.stride.volume());
  const double inputs = static_cast<double>(w.shape().c) * taps;
  const double outputs = static_cast<double>(w.shape().n) * taps;
  // Each output of a transposed convolution sums kernel / stride taps over its input channels, which are w.shape().n.
  const double fan_in = conv.transposed ? outputs / stride : inputs;
  const double fan_out = conv.transposed ? inputs : outputs;
  const bool rectifier = behind.kind == Activation::Kind::relu || behind.kind == Activation::Kind::leaky_relu;
  const double variance = rectifier ? 2.0 / fan_in : 2.0 / (fan_in + fan_out);
  const RandomKey key{.seed = seed, .a = node, .b = initialisation};
  for (index_t i = 0; i < w.elements(); ++i) {
    w.data()[i] = static_cast<float>(std::sqrt(variance) * normal(key, static_cast<std::uint64_t>(i)));
  }
}

/// Returns the first activation that follows a node, looking through norms.
Activation activation_behind(const NetSpec& spec, std::size_t index) {
  if (const auto* conv = std::get_if<ConvNode>(&spec.nodes[index].kind)) {
    if (conv->activation.kind != Activation::Kind::none) return conv->activation;
  }
  if (const auto* node = std::get_if<ActivationNode>(&spec.nodes[index].kind)) return node->activation;
  for (std::size_t user = index + 1; user < spec.nodes.size(); ++user) {
    const auto& inputs = spec.nodes[user].inputs;
    if (std::find(inputs.begin(), inputs.end(), index + 1) == inputs.end()) continue;
    const auto& kind = spec.nodes[user].kind;
    if (std::holds_alternative<ActivationNode>(kind) || std::holds_alternative<GroupNormNode>(kind)) {
      return activation_behind(spec, user);
    }
    return {};
  }
  return {};
}

}  // namespace

Parameters::Parameters(const NetSpec& spec, bool training, std::uint64_t seed, std::pmr::memory_resource* memory) {
  const auto add = [&](std::string name, const Shape5& shape, float value) -> Tensor<float>& {
    Parameter p{
        .name = std::move(name), .value = Tensor<float>(shape, memory), .gradient = {}, .moment1 = {}, .moment2 = {}};
    p.value.fill(value);
    if (training) {
      for (auto* tensor : {&p.gradient, &p.moment1, &p.moment2}) {
        if (tensor == &p.moment2 && spec.optimizer.kind == OptimizerKind::sgd) continue;
        *tensor = Tensor<float>(shape, memory);
        tensor->fill(0);
      }
    }
    list_.push_back(std::move(p));
    return list_.back().value;
  };
  const NetShapes shapes = infer_shapes(spec, spec.patch);
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const NodeSpec& node = spec.nodes[i];
    const NodeShape& input = shapes.of(node.inputs[0]);
    if (const auto* conv = std::get_if<ConvNode>(&node.kind)) {
      const ConvProblem problem = conv_problem(spec, node, *conv, 1, input);
      auto& w = add(node.name + ".weight", problem.w_shape(), 0);
      initialise(w, *conv, activation_behind(spec, i), seed, static_cast<std::uint32_t>(i));
      if (conv->bias) add(node.name + ".bias", {1, conv->out_channels, {1, 1, 1}}, 0);
    } else if (std::holds_alternative<GroupNormNode>(node.kind)) {
      add(node.name + ".gamma", {1, input.channels, {1, 1, 1}}, 1);
      add(node.name + ".beta", {1, input.channels, {1, 1, 1}}, 0);
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
