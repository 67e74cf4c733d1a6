#include "nets/spec/net_json.hpp"

#include <nlohmann/json.hpp>

#include "core/json.hpp"
#include "nets/spec/net_shapes.hpp"

namespace convolume::nets {
namespace {

using Json = nlohmann::ordered_json;

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
    node.layer->add_keys(entry, shapes.of(node.inputs[0]), shapes.nodes[i]);
    entry["extent"] = json_of(shapes.nodes[i].extent);
    json["node"].push_back(std::move(entry));
  }
  return to_text(json, 1) + "\n";
}

}  // namespace convolume::nets
