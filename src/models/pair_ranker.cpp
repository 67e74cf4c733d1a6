// Pairs of variants, and the net that compares them, in plain loops: it serves `plan variants` alone.
#include "convolume/pair_ranker.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "models/text_hash.hpp"

namespace convolume::plan {
namespace {

void activate(std::size_t layer, std::span<float> values) {
  constexpr std::size_t softsign = 2, softmax = 4;  // the others are relu
  if (layer == softmax) {
    const float most = *std::max_element(values.begin(), values.end());
    float sum = 0;
    for (float& value : values) sum += value = std::exp(value - most);
    for (float& value : values) value /= sum;
    return;
  }
  for (float& value : values) value = layer == softsign ? value / (1 + std::abs(value)) : std::max(value, 0.0F);
}

double cost_of(const Variant& variant, VariantRank rank) {
  return rank == VariantRank::reuse ? variant.reuse_cost : variant.model_seconds;
}

template <class Right>
double mean_over(std::span<const VariantPair> pairs, const Right& right) {
  if (pairs.empty()) throw InvalidArgument("there is no pair of variants; measure two at least");
  double sum = 0;
  for (const VariantPair& pair : pairs) sum += right(pair);
  return sum / static_cast<double>(pairs.size());
}

}  // namespace

PairFeatures pair_features(const Variant& first, const Variant& second) {
  PairFeatures features{};
  double sum = 0;
  for (const double bytes : first.level_bytes) sum += bytes;
  for (const double bytes : second.level_bytes) sum += bytes;
  if (!(sum > 0)) return features;
  const std::size_t levels = first.level_bytes.size();
  for (std::size_t i = 0; i < levels; ++i) {
    features[i] = static_cast<float>(first.level_bytes[i] / sum);
    features[levels + i] = static_cast<float>(second.level_bytes[i] / sum);
  }
  return features;
}

VariantPairs variant_pairs(std::span<const Variant> variants) {
  VariantPairs found;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    for (std::size_t k = i + 1; k < variants.size(); ++k) {
      const auto &a = variants[i].measured, &b = variants[k].measured;
      if (!a || !b) continue;
      ++found.all;
      if (std::max(*a, *b) < VariantPairs::least_ratio * std::min(*a, *b)) {
        ++found.nearly_equal;
        continue;
      }
      const bool turned = found.pairs.size() % 2 == 1;
      found.pairs.push_back(
          {.first = turned ? k : i, .second = turned ? i : k, .second_is_faster = turned == (*a < *b)});
    }
  }
  // An odd step takes pairs of both kinds.
  const std::size_t step = ((found.pairs.size() + VariantPairs::most - 1) / VariantPairs::most) | 1;
  std::size_t taken = 0;
  for (std::size_t i = 0; i < found.pairs.size(); i += step) found.pairs[taken++] = found.pairs[i];
  found.pairs.resize(taken);
  return found;
}

bool is_held_out(std::string_view problem) { return text_hash(problem) % 10 < 3; }

double share_in_order(std::span<const Variant> variants, std::span<const VariantPair> pairs, VariantRank rank) {
  return mean_over(pairs, [&](const VariantPair& pair) {
    const double first = cost_of(variants[pair.first], rank), second = cost_of(variants[pair.second], rank);
    if (first == second) return 0.5;
    return (second < first) == pair.second_is_faster ? 1.0 : 0.0;
  });
}

PairRanker::PairRanker(std::span<const Layer> layers) {
  if (layers.size() != widths.size() - 1) {
    throw ShapeMismatch(
        fmt::format("the ranker has {} layers, but the net of figure 5 has {}; train nets/zoo/pair_ranker.toml",
                    layers.size(), widths.size() - 1));
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::size_t in = widths[i], out = widths[i + 1];
    const Layer& layer = layers[i];
    if (layer.weights.size() != in * out || layer.bias.size() != out) {
      throw ShapeMismatch(fmt::format(
          "layer {} of the ranker has {} weights and {} biases, but the net of figure 5 has {} x {} and {}; "
          "train nets/zoo/pair_ranker.toml",
          i + 1, layer.weights.size(), layer.bias.size(), out, in, out));
    }
    Layer& turned = layers_.emplace_back(Layer{.weights = std::vector<float>(in * out), .bias = layer.bias});
    for (std::size_t o = 0; o < out; ++o) {
      for (std::size_t k = 0; k < in; ++k) turned.weights[k * out + o] = layer.weights[o * in + k];
    }
  }
}

std::array<float, 2> PairRanker::probabilities(const PairFeatures& features) const {
  std::array<float, widths[1]> values{}, sums{};
  std::copy(features.begin(), features.end(), values.begin());
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const std::size_t in = widths[layer], out = widths[layer + 1];
    const Layer& one = layers_[layer];
    std::copy(one.bias.begin(), one.bias.end(), sums.begin());
    for (std::size_t k = 0; k < in; ++k) {
      for (std::size_t o = 0; o < out; ++o) sums[o] += values[k] * one.weights[k * out + o];
    }
    activate(layer, std::span(sums).first(out));
    values = sums;
  }
  return {values[0], values[1]};
}

std::vector<std::size_t> PairRanker::ranked(std::span<const Variant> variants) const {
  std::vector<std::size_t> wins(variants.size());
  for (std::size_t i = 0; i < variants.size(); ++i) {
    for (std::size_t k = 0; k < variants.size(); ++k) {
      if (i == k) continue;
      const auto [first, second] = probabilities(pair_features(variants[i], variants[k]));
      if (first > threshold) ++wins[i];
      if (second > threshold) ++wins[k];
    }
  }
  std::vector<std::size_t> order = plan::ranked(variants, VariantRank::reuse);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return wins[a] > wins[b]; });
  return order;
}

double PairRanker::share_in_order(std::span<const Variant> variants, std::span<const VariantPair> pairs) const {
  return mean_over(pairs, [&](const VariantPair& pair) {
    const auto [first, second] = probabilities(pair_features(variants[pair.first], variants[pair.second]));
    return (second > first) == pair.second_is_faster ? 1.0 : 0.0;
  });
}

}  // namespace convolume::plan
