#include "tools/variant_pairs.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "convolume/training.hpp"
#include "convolume/volumes.hpp"

namespace convolume::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char *training = "training", *validation = "validation";

std::string data_set(const char* part, const char* name) {
  return fmt::format("/version_{}/{}/{}", plan::pair_features_version, part, name);
}

constexpr std::size_t layer_count = plan::PairRanker::widths.size() - 1;

/// Returns the names of the nodes of nets/zoo/pair_ranker.toml. The first one says which features the net gets.
std::array<std::string, layer_count> node_names() {
  return {fmt::format("features_{}", plan::pair_features_version), "layer2", "layer3", "layer4", "logits"};
}

/// Returns StoredNet::architecture of nets/zoo/pair_ranker.toml.
std::string ranker_architecture() {
  constexpr std::array activations{"relu", "relu", "softsign", "relu", "none"};
  const auto names = node_names();
  std::string text = "input 1 channels\n";
  for (std::size_t i = 0; i < layer_count; ++i) {
    text += fmt::format(
        "{} <- {}: conv {} groups 1 kernel {} stride 1 x 1 x 1 dilation 1 x 1 x 1 padding 0 x 0 x 0 0 x 0 x 0 plain "
        "bias "
        "true {} 0.01\n",
        names[i], i == 0 ? "input" : names[i - 1], plan::PairRanker::widths[i + 1], i == 0 ? "8 x 1 x 1" : "1 x 1 x 1",
        activations[i]);
  }
  return text;
}

/// Shuffles pairs in the same way everywhere, so that neighbours come from all layers.
void shuffle(std::vector<std::pair<std::size_t, std::size_t>>& pairs) {
  std::mt19937_64 numbers(1);
  for (std::size_t i = pairs.size(); i > 1; --i) std::swap(pairs[i - 1], pairs[numbers() % i]);
}

plan::Variant variant_of(const Json& row) {
  plan::Variant variant{.reuse_cost = row.at("reuse_cost"), .model_seconds = row.at("model_seconds")};
  variant.level_bytes = row.at("level_bytes").get<plan::LevelBytes>();
  if (row.contains("seconds")) variant.measured = row["seconds"].get<double>();
  return variant;
}

}  // namespace

StoredRanker read_ranker(const std::string& file) {
  const nets::StoredNet net = nets::read_checkpoint(file);
  const auto refuse = [&](const std::string& what) {
    throw FormatError(fmt::format("--rank dnn:{}: {}; train nets/zoo/pair_ranker.toml", file, what));
  };
  std::vector<plan::PairRanker::Layer> layers;
  const auto values_of = [&](const std::string& name) {
    const auto found = std::find_if(net.parameters.begin(), net.parameters.end(),
                                    [&](const nets::StoredParameter& one) { return one.name == name; });
    if (found == net.parameters.end()) refuse(fmt::format("the net '{}' has no tensor '{}'", net.name, name));
    return found->values;
  };
  for (const std::string& node : node_names()) {
    layers.push_back({.weights = values_of(node + ".weight"), .bias = values_of(node + ".bias")});
  }
  if (net.architecture != ranker_architecture()) {
    refuse(fmt::format("the net '{}' has other layers than figure 5 of paper 004", net.name));
  }
  return {.ranker = plan::PairRanker(layers), .digest = net.digest};
}

void check_parts(std::span<const std::string> problems) {
  const auto held_out = std::count_if(problems.begin(), problems.end(), plan::is_held_out);
  if (held_out > 0 && held_out < std::ssize(problems)) return;
  throw InvalidArgument(
      fmt::format("--dataset: {} of {} layers are held out, as a hash of each problem says; pairs of both kinds are "
                  "needed, so give a longer list",
                  held_out, problems.size()));
}

void check_pairs_file(const std::string& file) {
  std::vector<std::string> names;
  for (const char* part : {training, validation}) {
    names.push_back(data_set(part, "image"));
    names.push_back(data_set(part, "label"));
  }
  try {
    nets::check_datasets(file, names);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("--dataset {}", error.what()));
  }
}

PairSets::PairSets(const Json& layers) {
  for (const Json& one : layers) {
    Layer layer{.problem = one.at("problem"), .variants = {}, .pairs = {}};
    for (const Json& row : one.at("list")) layer.variants.push_back(variant_of(row));
    layer.pairs = plan::variant_pairs(layer.variants);
    layer.steady = one.at("steady");
    const auto known = [&](const Layer& other) { return other.problem == layer.problem; };
    // The same problem in both parts would not be held out.
    if (layer.pairs.pairs.empty() || std::any_of(layers_.begin(), layers_.end(), known)) continue;
    layers_.push_back(std::move(layer));
  }
  std::vector<std::string> problems;
  for (Layer& layer : layers_) {
    layer.held_out = plan::is_held_out(layer.problem);
    problems.push_back(layer.problem);
  }
  check_parts(problems);
}

std::size_t PairSets::pairs_of(bool held_out) const {
  std::size_t pairs = 0;
  for (const Layer& layer : layers_) pairs += layer.held_out == held_out ? layer.pairs.pairs.size() : 0;
  return pairs;
}

PairSets::Part PairSets::part(bool held_out) const {
  std::vector<std::pair<std::size_t, std::size_t>> order;  // layer, pair
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    for (std::size_t k = 0; layers_[i].held_out == held_out && k < layers_[i].pairs.pairs.size(); ++k) {
      order.emplace_back(i, k);
    }
  }
  shuffle(order);
  constexpr index_t row = 1024;
  const index_t pairs = std::ssize(order);
  Part part;
  part.extent = {static_cast<index_t>(plan::pair_feature_count), (pairs + row - 1) / row, std::min(pairs, row)};
  const auto count = static_cast<std::size_t>(part.extent.y * part.extent.x);
  part.features.resize(plan::pair_feature_count * count);
  part.classes.resize(plan::pair_feature_count * count, 255);
  // The net has one output per pair, which belongs to the middle of its eight voxels. The others do not count.
  constexpr std::size_t middle = (plan::pair_feature_count - 1) / 2;
  for (std::size_t at = 0; at < order.size(); ++at) {
    const Layer& layer = layers_[order[at].first];
    const plan::VariantPair& pair = layer.pairs.pairs[order[at].second];
    const auto values = plan::pair_features(layer.variants[pair.first], layer.variants[pair.second]);
    for (std::size_t i = 0; i < values.size(); ++i) part.features[i * count + at] = values[i];
    part.classes[middle * count + at] = pair.second_is_faster ? 1 : 0;
  }
  return part;
}

void PairSets::write(const std::string& file) const {
  std::vector<nets::NamedArray> arrays;
  const std::array parts{part(false), part(true)};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Extent3& extent = parts[i].extent;
    const char* const name = i == 0 ? training : validation;
    arrays.push_back(
        {data_set(name, "image"), {.voxels = parts[i].features.data(), .type = "float32", .extent = extent}});
    arrays.push_back({data_set(name, "label"), {.voxels = parts[i].classes.data(), .type = "uint8", .extent = extent}});
  }
  nets::write_datasets(file, arrays);
}

Json PairSets::report(const plan::PairRanker* ranker) const {
  std::size_t held_out_layers = 0, nearly_equal = 0, unsteady = 0;
  double reuse = 0, seconds = 0, dnn = 0;
  for (const Layer& layer : layers_) {
    nearly_equal += layer.pairs.nearly_equal;
    unsteady += layer.steady ? 0 : 1;
    if (!layer.held_out) continue;
    ++held_out_layers;
    const auto pairs = static_cast<double>(layer.pairs.pairs.size());
    reuse += pairs * plan::share_in_order(layer.variants, layer.pairs.pairs, plan::VariantRank::reuse);
    seconds += pairs * plan::share_in_order(layer.variants, layer.pairs.pairs, plan::VariantRank::seconds);
    if (ranker != nullptr) dnn += pairs * ranker->share_in_order(layer.variants, layer.pairs.pairs);
  }
  const auto all = static_cast<double>(pairs_of(true));
  Json json{{"training_layers", layers_.size() - held_out_layers},
            {"training_pairs", pairs_of(false)},
            {"held_out_layers", held_out_layers},
            {"held_out_pairs", pairs_of(true)},
            {"nearly_equal_pairs", nearly_equal},
            {"unsteady_layers", unsteady},
            {"in_order", {{"reuse", reuse / all}, {"seconds", seconds / all}}}};
  if (ranker != nullptr) json["in_order"]["dnn"] = dnn / all;
  return json;
}

}  // namespace convolume::tools
