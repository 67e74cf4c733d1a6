#include "nets/graph/network.hpp"

#include "ops/losses.hpp"
#include "ops/reduce.hpp"

namespace convolume::nets {

std::vector<Ready> Network::append_prepare(TaskGraph& graph, const ParameterReady& ready) {
  std::vector<Ready> prepared(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const LayerScope layer(graph, spec_.nodes[i].name);
    prepared[i] = nodes_[i].tasks->append_prepare(graph, ready);
  }
  return prepared;
}

Ready Network::append_forward(TaskGraph& graph, const Ready& input, std::vector<Ready> prepared,
                              const ParameterReady& ready) {
  prepared.resize(nodes_.size());
  parameter_ready_ = ready;
  source_.y_ready = input;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const LayerScope layer(graph, spec_.nodes[i].name);
    Node& node = nodes_[i];
    node.tensors.y_ready = lifetimes_->step(graph, node.inputs[0]->y_ready, [&](Lifetimes::Step& step) {
      ForwardStep pass(step, node.tensors, node.inputs, parameter_ready_, std::move(prepared[i]));
      return node.tasks->append_forward(pass);
    });
  }
  return nodes_.back().tensors.y_ready;
}

ParameterReady Network::append_backward(TaskGraph& graph, const Ready& logits_gradient) {
  for (Node& node : nodes_) {
    node.tensors.dy_ready = {};
    node.tensors.dy_written = false;
  }
  nodes_.back().tensors.dy_ready = logits_gradient;
  nodes_.back().tensors.dy_written = true;
  ParameterReady done;
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const LayerScope layer(graph, spec_.nodes[i].name);
    Node& node = nodes_[i];
    // A node that no other node reads adds nothing to the loss.
    if (!node.tensors.dy_written) continue;
    lifetimes_->step(graph, node.tensors.dy_ready, [&](Lifetimes::Step& step) {
      BackwardStep pass(step, node.tensors, node.inputs, parameter_ready_, *spec_.nodes[i].layer, done);
      node.tasks->append_backward(pass);
      return 0;
    });
  }
  return done;
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
    nodes_[i].tasks->set_iteration(seed, static_cast<std::uint32_t>(iteration), static_cast<std::uint32_t>(i));
  }
}

std::optional<std::string> Network::first_non_finite() const {
  const auto finite = [](const View<const float>& tensor) {
    return ops::all_finite(tensor.data.get(), stored_elements(tensor.shape, tensor.layout, DataType::f32));
  };
  if (!finite(input_.view())) return "input";
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!finite(nodes_[i].tensors.y)) return spec_.nodes[i].name;
  }
  return std::nullopt;
}

}  // namespace convolume::nets
