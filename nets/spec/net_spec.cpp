#include "nets/spec/net_spec.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "core/files.hpp"
#include "nets/base/toml_reader.hpp"
#include "nets/layers/activation.hpp"
#include "nets/layers/layer_kinds.hpp"
#include "nets/spec/net_shapes.hpp"

namespace convolume::nets {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<NodeSpec> read_nodes(TomlTable& root) {
  std::vector<NodeSpec> nodes;
  std::map<std::string, std::size_t> index{{"input", 0}};
  for (TomlTable& t : root.tables("node")) {
    NodeSpec node;
    node.line = t.line();
    node.name = t.text("name");
    if (node.name.empty() || node.name.find_first_of("./ \n\t") != std::string::npos) {
      t.fail("'" + node.name + "' is not a valid name; use letters, digits, _ and -", "name");
    }
    auto inputs = t.texts("from");
    if (inputs.empty()) inputs.push_back(nodes.empty() ? "input" : nodes.back().name);
    for (const auto& input : inputs) {
      const auto found = index.find(input);
      if (found == index.end()) {
        t.fail("'" + input + "' is not a node above '" + node.name + "'", "from");
      }
      node.inputs.push_back(found->second);
    }
    node.layer = read_layer(t);
    if (node.layer->joins() != (node.inputs.size() > 1)) {
      t.fail(fmt::format("node '{}' has {} inputs; concat and add take two or more, all others one", node.name,
                         node.inputs.size()));
    }
    t.finish();
    if (!index.emplace(node.name, nodes.size() + 1).second)
      t.fail("'" + node.name + "' is used twice; choose another name", "name");
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<Extent3> read_extents(TomlTable& t, const char* key, const Extent3& fallback) {
  std::vector<Extent3> list;
  for (TomlTable& entry : t.tables(key)) {
    list.push_back(entry.extent("size", 1));
    entry.finish();
  }
  if (list.empty()) list.push_back(fallback);
  return list;
}

constexpr index_t most_layers = 1000;

std::vector<NodeSpec> generate(TomlTable& t) {
  const std::string type = t.choice("type", {"width_depth", "unet"});
  std::vector<NodeSpec> nodes;
  if (type == "width_depth") {
    const index_t width = t.integer("width", 1), depth = t.integer("depth", 1);
    if (depth > most_layers) t.fail(fmt::format("too many; use at most {} layers", most_layers), "depth");
    const Extent3 kernel = t.extent("kernel", 1);
    const index_t out = t.integer("out_channels", 1, 1);
    nodes = width_depth_nodes(width, depth, kernel, read_activation(t, "relu"), out);
  } else {
    UnetOptions o;
    o.width = t.integer("width", 1);
    o.depth = t.integer("depth", 1, 3);
    if (o.depth > 8) t.fail("too many; use at most 8 levels", "depth");
    o.convs = t.integer("convs", 1, 2);
    if (o.convs > most_layers)
      t.fail(fmt::format("too many; use at most {} convolutions per level", most_layers), "convs");
    o.out_channels = t.integer("out_channels", 1, 1);
    o.kernels = read_extents(t, "kernel", Extent3::all(3));
    o.pools = read_extents(t, "pool", Extent3::all(2));
    o.norm = t.choice("norm", {"none", "group", "instance", "layer"}, "none");
    o.groups = t.integer("groups", 1, 8);
    o.transposed = t.choice("upsampling", {"transposed_conv", "nearest"}, "transposed_conv") == "transposed_conv";
    o.residual = t.boolean("residual", false);
    o.dropout = t.number("dropout", 0, 0.999, 0.0);
    o.activation = read_activation(t, "relu");
    nodes = unet_nodes(o);
  }
  t.finish();
  return nodes;
}

ops::LossOptions read_loss(TomlTable t) {
  ops::LossOptions loss;
  const std::string kind =
      t.choice("kind", {"binary_cross_entropy", "softmax_cross_entropy", "square", "dice"}, "binary_cross_entropy");
  for (const auto candidate : {ops::LossKind::binary_cross_entropy, ops::LossKind::softmax_cross_entropy,
                               ops::LossKind::square, ops::LossKind::dice}) {
    if (kind == ops::name_of(candidate)) loss.kind = candidate;
  }
  loss.rebalance = t.boolean("rebalance", false);
  loss.positive_weight = t.number("positive_weight", 1e-6, 1e6, 1.0);
  loss.smooth = t.number("smooth", 0, 1e9, 1.0);
  t.finish();
  return loss;
}

OptimizerSpec read_optimizer(TomlTable t) {
  OptimizerSpec o;
  o.kind = t.choice("kind", {"sgd", "adam"}, "adam") == "sgd" ? OptimizerKind::sgd : OptimizerKind::adam;
  o.learning_rate = t.number("learning_rate", 0, 1e6, 1e-3);
  const double weight_decay = t.number("weight_decay", 0, 1e6, 0.0);
  if (o.kind == OptimizerKind::sgd) {
    o.sgd.momentum = t.number("momentum", 0, 1, 0.9);
    o.sgd.nesterov = t.boolean("nesterov", false);
    o.sgd.weight_decay = weight_decay;
  } else {
    o.adam.beta1 = t.number("beta1", 0, 0.9999999, 0.9);
    o.adam.beta2 = t.number("beta2", 0, 0.9999999, 0.999);
    o.adam.epsilon = t.number("epsilon", 1e-30, 1, 1e-8);
    o.adam.decoupled = t.boolean("decoupled", false);
    o.adam.weight_decay = weight_decay;
  }
  o.clip_norm = t.number("clip_norm", 0, infinity, 0.0);
  o.warmup = t.integer("warmup", 0, 0);
  o.decay_every = t.integer("decay_every", 0, 0);
  o.decay_factor = t.number("decay_factor", 1e-6, 1, 0.5);
  t.finish();
  return o;
}

TrainingSpec read_training(TomlTable t) {
  TrainingSpec s;
  s.batch = t.integer("batch", 1, 1);
  s.iterations = t.integer("iterations", 1, 1000);
  s.validate_every = t.integer("validate_every", 1, 200);
  s.checkpoint_every = t.integer("checkpoint_every", 1, 200);
  s.best = t.text("best", "");
  s.early_stop = t.integer("early_stop", 0, 0);
  if (s.early_stop > 0 && s.best.empty()) {
    t.fail("early_stop needs to know what is better: name a score, e.g. best = \"dice\"", "early_stop");
  }
  t.finish();
  return s;
}

/// Puts each "table.key=value" into the table of that name, or into an empty one if the file has no such table.
class Overrides {
 public:
  explicit Overrides(const std::vector<std::string>& list) {
    for (const auto& entry : list) {
      const auto dot = entry.find('.'), sign = entry.find('=');
      if (dot == std::string::npos || sign == std::string::npos || dot > sign ||
          entry.find('\n') != std::string::npos) {
        throw ConfigError("--set " + entry + ": write it as table.key=value, e.g. generator.width=30");
      }
      entries_.push_back({entry.substr(0, dot), entry.substr(dot + 1, sign - dot - 1), entry.substr(sign + 1)});
    }
  }
  TomlTable apply(const std::string& name, std::optional<TomlTable> table, const std::string& origin) {
    TomlTable result = table ? *table : TomlTable::empty(origin, name);
    for (auto& entry : entries_) {
      if (entry.table != name) continue;
      result.override_value(entry.key, entry.value);
      entry.used = true;
    }
    return result;
  }
  void finish() const {
    for (const auto& entry : entries_) {
      if (!entry.used) throw ConfigError("--set " + entry.table + "." + entry.key + ": there is no such table");
    }
  }

 private:
  struct Entry {
    std::string table, key, value;
    bool used = false;
  };
  std::vector<Entry> entries_;
};

/// Marks an override that NetSpec::source appends to the text that it applies to.
const std::string override_mark = "#convolume --set ";

std::vector<std::string> overrides_in(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t at = text.find("\n" + override_mark); at != std::string::npos;
       at = text.find("\n" + override_mark, at + 1)) {
    const std::size_t begin = at + 1 + override_mark.size();
    found.push_back(text.substr(begin, text.find('\n', begin) - begin));
  }
  return found;
}

}  // namespace

double OptimizerSpec::rate_at(index_t step) const {
  double rate = learning_rate;
  if (warmup > 0 && step < warmup) rate *= static_cast<double>(step) / static_cast<double>(warmup);
  if (decay_every > 0) rate *= std::pow(decay_factor, static_cast<double>((step - 1) / decay_every));
  return rate;
}

NetSpec parse_net(const std::string& text, const std::string& origin, std::vector<std::string> overrides) {
  TomlTable root = TomlTable::parse(text, origin);
  const auto earlier = overrides_in(text);
  overrides.insert(overrides.begin(), earlier.begin(), earlier.end());
  Overrides override_list(overrides);
  const auto table = [&](const char* name) { return override_list.apply(name, root.table(name), origin); };
  NetSpec spec;
  spec.origin = origin;
  spec.name = root.text("name");
  TomlTable input = table("input");
  spec.in_channels = input.integer("channels", 1, 1);
  spec.patch = input.extent("patch", 1);
  input.finish();
  if (root.has("generator") == root.has("node")) {
    root.fail("give either [[node]] tables or one [generator]");
  }
  if (root.has("generator")) {
    TomlTable generator = table("generator");
    spec.nodes = generate(generator);
  } else {
    spec.nodes = read_nodes(root);
  }
  resolve_layers(spec);
  spec.loss = read_loss(table("loss"));
  spec.optimizer = read_optimizer(table("optimizer"));
  spec.training = read_training(table("training"));
  root.finish();
  override_list.finish();
  spec.source = text;
  for (std::size_t i = earlier.size(); i < overrides.size(); ++i) spec.source += "\n" + override_mark + overrides[i];
  return spec;
}

NetSpec load_net(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  return parse_net(read_file(file, std::size_t{1} << 24), file.string(), overrides);
}

std::string NetSpec::architecture() const {
  std::string text = fmt::format("input {} channels\n", in_channels);
  for (const NodeSpec& node : nodes) {
    text += node.name + " <-";
    for (const std::size_t input : node.inputs) text += " " + (input == 0 ? "input" : nodes[input - 1].name);
    text += ": " + node.layer->text() + "\n";
  }
  return text;
}

std::string NetSpec::recipe() const {
  const OptimizerSpec& o = optimizer;
  return architecture() +
         fmt::format("patch {} batch {}\nloss {} {} {} {}\n", to_string(patch), training.batch, ops::name_of(loss.kind),
                     loss.rebalance, loss.positive_weight, loss.smooth) +
         fmt::format("optimizer {} {} clip {} warmup {} decay {} {} sgd {} {} {} adam {} {} {} {} {}\n",
                     static_cast<int>(o.kind), o.learning_rate, o.clip_norm, o.warmup, o.decay_every, o.decay_factor,
                     o.sgd.momentum, o.sgd.nesterov, o.sgd.weight_decay, o.adam.beta1, o.adam.beta2, o.adam.epsilon,
                     o.adam.weight_decay, o.adam.decoupled);
}

}  // namespace convolume::nets
