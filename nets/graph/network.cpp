#include "nets/graph/network.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "ops/activation.hpp"
#include "ops/copy.hpp"
#include "ops/dropout.hpp"
#include "ops/group_norm.hpp"
#include "ops/losses.hpp"
#include "ops/pooling.hpp"
#include "ops/reduce.hpp"
#include "ops/resample.hpp"

namespace convolume::nets {
namespace {

Ready ready_or_now(const ParameterReady& ready, const Parameter* parameter) {
  if (parameter == nullptr) return {};
  const auto found = ready.find(parameter->name);
  return found == ready.end() ? Ready() : found->second;
}

}  // namespace

View<const float> Network::output_of(std::size_t reference) const {
  if (reference > 0) return nodes_[reference - 1].y;
  return View<const float>(Address<const float>::in(&input_slot_), input_.shape());
}

std::vector<Ready> Network::append_prepare(TaskGraph& graph, const ParameterReady& ready) {
  std::vector<Ready> prepared(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (!node.plan) continue;
    const LayerScope layer(graph, spec_.nodes[i].name);
    const Ready weight = ready_or_now(ready, node.weight);
    prepared[i] =
        lifetimes_->step(graph, {node.forward_weights_buffer, node.weights_buffer}, weight, [&](const Ready& gate) {
          return node.plan->append_prepare(graph, weight & gate, node.weight->value, node.weights);
        });
  }
  return prepared;
}

Ready Network::append_forward(TaskGraph& graph, const Ready& input, std::vector<Ready> prepared,
                              const ParameterReady& ready) {
  prepared.resize(nodes_.size());
  parameter_ready_ = ready;
  input_ready_ = input;
  forward_ready_.clear();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const LayerScope layer(graph, spec_.nodes[i].name);
    nodes_[i].weights_ready = std::move(prepared[i]);
    const Ready input = ready_of(spec_.nodes[i].inputs[0]);
    forward_ready_.push_back(lifetimes_->step(graph, forward_buffers(i), input,
                                              [&](const Ready& gate) { return forward_node(graph, i, gate); }));
  }
  return forward_ready_.back();
}

/// Returns all buffers that the tasks of a node's forward pass use.
std::vector<Lifetimes::Buffer> Network::forward_buffers(std::size_t index) const {
  const Node& node = nodes_[index];
  std::vector<Buffer> buffers{node.y_buffer};
  for (const std::size_t input : spec_.nodes[index].inputs) buffers.push_back(buffer_of(input));
  if (node.taps.bound()) buffers.push_back(node.taps_buffer);
  if (!node.plan) return buffers;
  buffers.push_back(node.forward_weights_buffer);
  buffers.push_back(node.weights_buffer);
  if (keeps_x_hat()) buffers.push_back(node.x_hat_buffer);
  return buffers;
}

Ready Network::forward_node(TaskGraph& graph, std::size_t index, const Ready& gate) {
  const NodeSpec& spec = spec_.nodes[index];
  Node& node = nodes_[index];
  const View<const float> x = output_of(spec.inputs[0]);
  const Ready ready = ready_of(spec.inputs[0]) & gate;
  if (node.plan) {
    ForwardBindings bindings{.x = x, .w = node.weights, .y = node.y};
    if (node.bias != nullptr) bindings.bias = node.bias->value;
    if (keeps_x_hat()) bindings.x_hat = &node.x_hat;
    const Ready weights = node.weights_ready & ready_or_now(parameter_ready_, node.bias);
    return node.plan->append_forward(graph, {.x = ready, .w = weights}, bindings, memory_, lifetimes_->workspace());
  }
  if (fused_into_norm(index)) return ready;
  if (const auto* n = std::get_if<ActivationNode>(&spec.kind)) {
    return ops::append_activation_forward<float>(graph, ready, x, node.y, n->activation);
  }
  if (const auto* n = std::get_if<MaxPoolNode>(&spec.kind)) {
    return ops::append_max_pool_forward<float>(graph, ready, x, node.y, node.taps, n->pool);
  }
  if (const auto* n = std::get_if<UpsampleNode>(&spec.kind)) {
    return ops::append_upsample_forward<float>(graph, ready, x, node.y, n->factor);
  }
  if (const auto* n = std::get_if<CropNode>(&spec.kind)) {
    return ops::append_copy<float>(graph, ready, ops::crop(x, n->before, node.y.shape.extent), node.y, false);
  }
  if (const auto* n = std::get_if<DropoutNode>(&spec.kind)) {
    if (!options_.training) return ops::append_copy<float>(graph, ready, x, node.y, false);
    return ops::append_dropout_forward<float>(graph, ready, x, node.y, n->rate, &node.dropout_key);
  }
  if (std::holds_alternative<GroupNormNode>(spec.kind)) {
    const Ready all = ready & ready_or_now(parameter_ready_, node.weight) & ready_or_now(parameter_ready_, node.bias);
    return ops::append_group_norm_forward<float>(graph, all, x, node.weight->value.data(), node.bias->value.data(),
                                                 node.y, {node.mean.data(), node.rstd.data()}, norm_of(index), memory_);
  }
  return forward_join(graph, index, gate);
}

Ready Network::forward_join(TaskGraph& graph, std::size_t index, const Ready& gate) {
  const NodeSpec& spec = spec_.nodes[index];
  const NodeShape& shape = shapes_.nodes[index];
  Node& node = nodes_[index];
  const auto part = [&](std::size_t k) { return ops::crop(output_of(spec.inputs[k]), shape.crop[k], shape.extent); };
  if (std::holds_alternative<AddNode>(spec.kind)) {
    Ready ready = ops::append_add<float>(graph, ready_of(spec.inputs[0]) & ready_of(spec.inputs[1]) & gate, part(0),
                                         part(1), node.y);
    for (std::size_t k = 2; k < spec.inputs.size(); ++k) {
      ready = ops::append_copy<float>(graph, ready & ready_of(spec.inputs[k]), part(k), node.y, true);
    }
    return ready;
  }
  std::vector<Ready> ready;
  std::vector<View<const float>> parts;
  for (std::size_t k = 0; k < spec.inputs.size(); ++k) {
    ready.push_back(ready_of(spec.inputs[k]) & gate);
    parts.push_back(part(k));
  }
  return ops::append_concat<float>(graph, ready, parts, node.y);
}

Network::Node* Network::gradient_target(std::size_t reference) {
  return reference == 0 ? nullptr : &nodes_[reference - 1];
}

void Network::written(Node& target, Ready ready) {
  target.dy_ready = std::move(ready);
  target.dy_written = true;
}

ParameterReady Network::append_backward(TaskGraph& graph, const Ready& logits_gradient) {
  for (Node& node : nodes_) {
    node.dy_ready = {};
    node.dy_written = false;
  }
  written(nodes_.back(), logits_gradient);
  ParameterReady done;
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const LayerScope layer(graph, spec_.nodes[i].name);
    // A node that no other node reads adds nothing to the loss.
    if (!nodes_[i].dy_written) continue;
    Ready& ready = nodes_[i].dy_ready;
    lifetimes_->step(graph, backward_buffers(i), ready, [&](const Ready& gate) {
      ready = ready & gate;
      backward_node(graph, i, gate, done);
      return 0;
    });
  }
  return done;
}

/// Returns all buffers that the tasks of a node's backward pass use.
std::vector<Lifetimes::Buffer> Network::backward_buffers(std::size_t index) {
  const NodeSpec& spec = spec_.nodes[index];
  const Node& node = nodes_[index];
  std::vector<Buffer> buffers{node.dy_buffer};
  for (const std::size_t input : spec.inputs) {
    if (input != 0) buffers.push_back(nodes_[input - 1].dy_buffer);
  }
  const auto* conv = std::get_if<ConvNode>(&spec.kind);
  if (reads_output_backward(spec) && !fused_into_norm(index)) buffers.push_back(node.y_buffer);
  const bool reads_x = conv != nullptr ? !keeps_x_hat() || !node.plan->x_hat_replaces_x()
                                       : std::holds_alternative<GroupNormNode>(spec.kind);
  if (reads_x) buffers.push_back(buffer_of(spec.inputs[0]));
  if (node.taps.bound()) buffers.push_back(node.taps_buffer);
  if (conv == nullptr) return buffers;
  buffers.push_back(node.weights_buffer);
  if (keeps_x_hat()) buffers.push_back(node.x_hat_buffer);
  return buffers;
}

/// Tasks that write to an input's gradient wait for dy, and dy_ready includes the dependency `gate`. Only tasks that
/// clear a gradient do not wait for dy, so they wait for `gate` directly.
void Network::backward_node(TaskGraph& graph, std::size_t index, const Ready& gate, ParameterReady& done) {
  const NodeSpec& spec = spec_.nodes[index];
  Node& node = nodes_[index];
  if (node.plan) return backward_conv(graph, index, done);
  Node* target = gradient_target(spec.inputs[0]);
  const bool add = target != nullptr && target->dy_written;
  if (std::holds_alternative<GroupNormNode>(spec.kind)) {
    const Ready after = node.dy_ready & ready_of(index + 1);
    const Ready ready = target != nullptr ? after & target->dy_ready : after;
    const auto gradients = ops::append_group_norm_backward<float>(
        graph, ready, output_of(spec.inputs[0]), node.weight->value.data(), node.bias->value.data(),
        {node.mean.data(), node.rstd.data()}, node.dy, target != nullptr ? target->dy : View<float>{}, add,
        node.weight->gradient.data(), node.bias->gradient.data(), false, norm_of(index), memory_);
    done[node.weight->name] = done[node.bias->name] = gradients.parameters;
    if (target != nullptr) written(*target, gradients.dx);
    return;
  }
  if (std::holds_alternative<ConcatNode>(spec.kind) || std::holds_alternative<AddNode>(spec.kind) ||
      std::holds_alternative<CropNode>(spec.kind)) {
    return backward_join(graph, index, gate);
  }
  if (target == nullptr) return;
  // The gradient also waits for the forward results that it reads. dy alone does not imply them: parts of dy whose
  // voxels no later node reads are cleared at once.
  const Ready ready = node.dy_ready & ready_of(index + 1) & target->dy_ready;
  if (fused_into_norm(index)) return written(*target, ready);
  if (const auto* n = std::get_if<ActivationNode>(&spec.kind)) {
    written(*target,
            ops::append_activation_backward<float>(graph, ready, node.y, node.dy, target->dy, n->activation, add));
  } else if (const auto* n = std::get_if<MaxPoolNode>(&spec.kind)) {
    written(*target, ops::append_max_pool_backward<float>(graph, ready, node.dy, node.taps, target->dy, n->pool, add));
  } else if (const auto* n = std::get_if<UpsampleNode>(&spec.kind)) {
    written(*target, ops::append_upsample_backward<float>(graph, ready, node.dy, target->dy, n->factor, add));
  } else if (const auto* n = std::get_if<DropoutNode>(&spec.kind)) {
    written(*target,
            ops::append_dropout_backward<float>(graph, ready, node.dy, target->dy, n->rate, &node.dropout_key, add));
  }
}

void Network::backward_conv(TaskGraph& graph, std::size_t index, ParameterReady& done) {
  const NodeSpec& spec = spec_.nodes[index];
  Node& node = nodes_[index];
  Node* target = gradient_target(spec.inputs[0]);
  BackwardBindings bindings{.x = output_of(spec.inputs[0]),
                            .y = node.y,
                            .dy = node.dy,
                            .w = node.weights,
                            .x_hat = keeps_x_hat() ? &node.x_hat : nullptr,
                            .dw = node.weight->gradient};
  if (node.bias != nullptr) bindings.dbias = node.bias->gradient;
  if (target != nullptr) {
    bindings.dx = target->dy;
    bindings.add_dx = target->dy_written;
  }
  const ConvReady ready{.x = ready_of(spec.inputs[0]),
                        .w = node.weights_ready,
                        .dy = node.dy_ready & ready_of(index + 1),
                        .dx = target != nullptr ? target->dy_ready : Ready()};
  const auto gradients = node.plan->append_backward(graph, ready, bindings, memory_, lifetimes_->workspace());
  done[node.weight->name] = gradients.dw;
  if (node.bias != nullptr) done[node.bias->name] = gradients.dbias;
  if (target != nullptr) written(*target, gradients.dx);
  if (bindings.x_hat == nullptr || lifetimes_->planned()) return;
  // The spectra of x live from this layer's forward pass to its weight gradient, within one run. A release task is
  // never skipped, so a cancelled run frees them too.
  graph.add(
      {.name = "free input spectra", .cost = 0, .task_class = TaskClass::release}, [&node] { node.x_hat.release(); },
      gradients.dw.tasks());
}

void Network::backward_join(TaskGraph& graph, std::size_t index, const Ready& gate) {
  const NodeSpec& spec = spec_.nodes[index];
  const NodeShape& shape = shapes_.nodes[index];
  Node& node = nodes_[index];
  const bool concat = std::holds_alternative<ConcatNode>(spec.kind);
  const auto* crop = std::get_if<CropNode>(&spec.kind);
  index_t channel = 0;
  for (std::size_t k = 0; k < spec.inputs.size(); ++k) {
    const index_t first = channel;
    if (concat) channel += shapes_.of(spec.inputs[k]).channels;
    Node* target = gradient_target(spec.inputs[k]);
    if (target == nullptr) continue;
    const Extent3 offset = crop != nullptr ? crop->before : shape.crop[k];
    if (!target->dy_written && target->dy.shape.extent != shape.extent) {
      written(*target, ops::append_clear<float>(graph, target->dy_ready & gate, target->dy));
    }
    const auto region = ops::crop(target->dy, offset, shape.extent);
    written(*target, ops::append_slice<float>(graph, node.dy_ready, node.dy, first, region, target->dy_written,
                                              target->dy_ready));
  }
}

ParameterReady Network::append_training(TaskGraph& graph, const ParameterReady& updated, const Ready& patches,
                                        const Labels& labels) {
  auto prepared = append_prepare(graph, updated);
  const Ready logits = append_forward(graph, patches, std::move(prepared), updated);
  const ops::LossBindings<float> loss{.logits = logits_,
                                      .target = labels.target,
                                      .mask = labels.mask,
                                      .dlogits = logits_gradient_,
                                      .loss = labels.loss};
  return append_backward(graph, ops::append_loss<float>(graph, logits, spec_.loss, loss, memory_, patches));
}

void Network::set_iteration(std::uint64_t seed, std::uint64_t iteration) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].dropout_key = {
        .seed = seed, .a = static_cast<std::uint32_t>(iteration), .b = static_cast<std::uint32_t>(i)};
  }
}

std::optional<std::string> Network::first_non_finite() const {
  const auto finite = [](const View<const float>& tensor) {
    return ops::all_finite(tensor.data.get(), stored_elements(tensor.shape, tensor.layout, DataType::f32));
  };
  if (!finite(input_.view())) return "input";
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!finite(nodes_[i].y)) return spec_.nodes[i].name;
  }
  return std::nullopt;
}

}  // namespace convolume::nets
