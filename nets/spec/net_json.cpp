#include "nets/spec/net_json.hpp"

#include <nlohmann/json.hpp>

#include "core/json.hpp"
#include "nets/spec/net_shapes.hpp"

namespace convolume::nets {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Extent3& e) { return {e.z, e.y, e.x}; }

void add_activation(Json& json, const Activation& activation) {
  json["activation"] = name_of(activation.kind);
  json["slope"] = activation.slope;
}

/// Adds the keys of one kind of node.
struct NodeWriter {
  const NetSpec& spec;
  const NodeSpec& node;
  const NodeShape& input;
  const NodeShape& shape;
  Json& json;

  void operator()(const ConvNode& n) const {
    const Shape5 w = conv_problem(spec, node, n, 1, input).w_shape();
    json["type"] = n.transposed ? "transposed_conv" : "conv";
    json["out_channels"] = n.out_channels;
    json["groups"] = n.groups;
    json["kernel"] = json_of(n.kernel);
    json["stride"] = json_of(n.stride);
    json["dilation"] = json_of(n.dilation);
    json["padding"] = n.same ? Json("same") : json_of(n.padding);
    if (n.transposed) json["output_padding"] = json_of(n.output_padding);
    json["bias"] = n.bias;
    add_activation(json, n.activation);
    json["weight_shape"] = {w.n, w.c, w.extent.z, w.extent.y, w.extent.x};
  }
  void operator()(const ActivationNode& n) const {
    json["type"] = "activation";
    add_activation(json, n.activation);
  }
  void operator()(const MaxPoolNode& n) const {
    json["type"] = "max_pool";
    json["window"] = json_of(n.pool.window);
    json["stride"] = json_of(n.pool.stride);
    json["dilation"] = json_of(n.pool.dilation);
  }
  void operator()(const UpsampleNode& n) const {
    json["type"] = "upsample";
    json["factor"] = json_of(n.factor);
  }
  void operator()(const ConcatNode&) const { add_join("concat"); }
  void operator()(const AddNode&) const { add_join("add"); }
  void operator()(const CropNode& n) const {
    json["type"] = "crop";
    json["before"] = json_of(n.before);
    json["after"] = json_of(n.after);
  }
  void operator()(const DropoutNode& n) const {
    json["type"] = "dropout";
    json["rate"] = n.rate;
  }
  void operator()(const GroupNormNode& n) const {
    json["type"] = "group_norm";
    json["groups"] = n.groups == 0 ? input.channels : n.groups;
    json["epsilon"] = n.epsilon;
    json["channels"] = input.channels;
  }
  void add_join(const char* type) const {
    json["type"] = type;
    json["crop"] = Json::array();
    for (const Extent3& first : shape.crop) json["crop"].push_back(json_of(first));
  }
};

Json json_of(const ops::LossOptions& loss) {
  return {{"kind", ops::name_of(loss.kind)},
          {"rebalance", loss.rebalance},
          {"positive_weight", loss.positive_weight},
          {"smooth", loss.smooth}};
}

Json json_of(const OptimizerSpec& o) {
  const bool sgd = o.kind == OptimizerKind::sgd;
  Json json{{"kind", sgd ? "sgd" : "adam"},
            {"learning_rate", o.learning_rate},
            {"weight_decay", sgd ? o.sgd.weight_decay : o.adam.weight_decay},
            {"clip_norm", o.clip_norm},
            {"warmup", o.warmup},
            {"decay_every", o.decay_every},
            {"decay_factor", o.decay_factor}};
  if (sgd) {
    json.update({{"momentum", o.sgd.momentum}, {"nesterov", o.sgd.nesterov}});
  } else {
    json.update({{"beta1", o.adam.beta1},
                 {"beta2", o.adam.beta2},
                 {"epsilon", o.adam.epsilon},
                 {"decoupled", o.adam.decoupled}});
  }
  return json;
}

}  // namespace

std::string to_json(const NetSpec& spec) {
  const NetShapes shapes = infer_shapes(spec, spec.patch);
  Json json{{"name", spec.name},
            {"input", {{"channels", spec.in_channels}, {"patch", json_of(spec.patch)}}},
            {"node", Json::array()},
            {"loss", json_of(spec.loss)},
            {"optimizer", json_of(spec.optimizer)},
            {"training", {{"batch", spec.training.batch}}}};
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const NodeSpec& node = spec.nodes[i];
    Json entry{{"name", node.name}, {"from", Json::array()}};
    for (const std::size_t input : node.inputs) {
      entry["from"].push_back(input == 0 ? "input" : spec.nodes[input - 1].name);
    }
    std::visit(NodeWriter{spec, node, shapes.of(node.inputs[0]), shapes.nodes[i], entry}, node.kind);
    entry["extent"] = json_of(shapes.nodes[i].extent);
    json["node"].push_back(std::move(entry));
  }
  return to_text(json, 1) + "\n";
}

}  // namespace convolume::nets
