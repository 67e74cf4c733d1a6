// Pairs of variants, and the net that ranks them.
#include "convolume/pair_ranker.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "convolume/blocking.hpp"
#include "convolume/error.hpp"
#include "convolume/reuse.hpp"

using namespace convolume;
using namespace convolume::plan;

namespace {

Variant variant(double l1, double memory, double seconds) {
  return {
      .reuse_cost = l1 + 10 * memory, .model_seconds = memory, .level_bytes = {l1, 0, 0, memory}, .measured = seconds};
}

std::vector<PairRanker::Layer> random_layers(unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<PairRanker::Layer> layers;
  for (std::size_t i = 0; i + 1 < PairRanker::widths.size(); ++i) {
    PairRanker::Layer& layer = layers.emplace_back();
    for (std::size_t k = 0; k < PairRanker::widths[i] * PairRanker::widths[i + 1]; ++k) {
      layer.weights.push_back(normal(generator));
    }
    for (std::size_t k = 0; k < PairRanker::widths[i + 1]; ++k) layer.bias.push_back(normal(generator));
  }
  return layers;
}

/// Returns layers that pass on memory of the second variant less that of the first: the first wins if it has less.
std::vector<PairRanker::Layer> less_memory_wins() {
  std::vector<PairRanker::Layer> layers;
  for (std::size_t i = 0; i + 1 < PairRanker::widths.size(); ++i) {
    layers.push_back({.weights = std::vector<float>(PairRanker::widths[i] * PairRanker::widths[i + 1]),
                      .bias = std::vector<float>(PairRanker::widths[i + 1])});
  }
  const auto weight = [&](std::size_t layer, std::size_t out, std::size_t in) -> float& {
    return layers[layer].weights[out * PairRanker::widths[layer] + in];
  };
  weight(0, 0, 3) = weight(0, 1, 7) = 100;
  for (const std::size_t layer : {1U, 2U, 3U}) weight(layer, 0, 0) = weight(layer, 1, 1) = 1;
  weight(4, 0, 1) = weight(4, 1, 0) = 500;
  weight(4, 0, 0) = weight(4, 1, 1) = -500;
  return layers;
}

/// The net in double, by its definition.
std::array<double, 2> reference(const std::vector<PairRanker::Layer>& layers, const PairFeatures& features) {
  std::vector<double> values(features.begin(), features.end());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::vector<double> next;
    for (std::size_t o = 0; o < layers[i].bias.size(); ++o) {
      double sum = layers[i].bias[o];
      for (std::size_t k = 0; k < values.size(); ++k) sum += values[k] * layers[i].weights[o * values.size() + k];
      next.push_back(i == 2 ? sum / (1 + std::abs(sum)) : i == 4 ? std::exp(sum) : std::max(sum, 0.0));
    }
    values = next;
  }
  return {values[0] / (values[0] + values[1]), values[1] / (values[0] + values[1])};
}

}  // namespace

TEST_CASE("features of a pair are shares of the bytes of both") {
  const PairFeatures features = pair_features(variant(1, 2, 0), variant(3, 4, 0));
  CHECK(features == PairFeatures{0.1F, 0, 0, 0.2F, 0.3F, 0, 0, 0.4F});
  CHECK(pair_features({}, {}) == PairFeatures{});
}

TEST_CASE("level bytes are the packed working sets of all spaces, and their prices are the reuse cost") {
  const ReuseLevels levels = reuse_levels(machine_model());
  for (const char* text : {"mb2ic64ih28oc64oh28kh3ph1", "mb2ic64ih28oc64oh14kh3sh2ph1"}) {
    for (const Direction direction : {Direction::forward, Direction::backward_data}) {
      const auto accept = [](const LoopNest&) { return std::string(); };
      for (const Variant& one :
           variants(parse_problem(text), direction, {.limit = 9}, machine_model(), accept).variants) {
        double cost = one.level_bytes.back() * levels.memory.price();
        for (std::size_t i = 0; i < levels.caches.size(); ++i) cost += one.level_bytes[i] * levels.caches[i].price();
        CHECK(cost == Approx(one.reuse_cost));
      }
    }
  }
}

TEST_CASE("pairs have each two variants once, half of them turned, without nearly equal ones") {
  const std::vector<Variant> variants{
      variant(1, 1, 1), variant(1, 1, 1.01), variant(1, 1, 2), variant(1, 1, 3), {.reuse_cost = 1}};
  const VariantPairs found = variant_pairs(variants);
  CHECK(found.all == 6);
  CHECK(found.nearly_equal == 1);
  REQUIRE(found.pairs.size() == 5);
  for (std::size_t i = 0; i < found.pairs.size(); ++i) {
    const VariantPair& pair = found.pairs[i];
    CHECK((pair.first > pair.second) == (i % 2 == 1));
    CHECK(pair.second_is_faster == (*variants[pair.second].measured < *variants[pair.first].measured));
  }
  std::vector<Variant> many;
  for (int i = 0; i < 300; ++i) many.push_back(variant(1, 1, std::pow(1.1, i)));
  const VariantPairs taken = variant_pairs(many);
  CHECK(taken.all == 44'850);
  CHECK(taken.pairs.size() == 8'970);
  const auto turned =
      std::count_if(taken.pairs.begin(), taken.pairs.end(), [](const VariantPair& p) { return p.first > p.second; });
  CHECK(turned == 4'485);
}

TEST_CASE("about three tenths of the layers are held out, whatever the list") {
  int held_out = 0;
  for (int i = 0; i < 1000; ++i)
    held_out += is_held_out(to_string(parse_problem("ic16oc16id" + std::to_string(3 + i) + "kd3")));
  CHECK(held_out > 250);
  CHECK(held_out < 350);
}

TEST_CASE("the share in order counts equal ranks half") {
  const std::vector<Variant> variants{variant(0, 1, 1), variant(0, 2, 2), variant(0, 2, 4), variant(0, 3, 3)};
  const auto pairs = variant_pairs(variants).pairs;
  // By memory: 0-1, 0-2, 0-3 and 1-3 right, 1-2 equal, 2-3 wrong.
  CHECK(share_in_order(variants, pairs, VariantRank::reuse) == Approx(4.5 / 6));
  CHECK(share_in_order(variants, pairs, VariantRank::seconds) == Approx(4.5 / 6));
  CHECK_THROWS_AS(share_in_order(variants, {}, VariantRank::reuse), InvalidArgument);
}

TEST_CASE("the ranker agrees with its definition in double") {
  std::mt19937 generator(5);
  std::uniform_real_distribution<float> uniform;
  for (const unsigned seed : {1U, 2U, 3U}) {
    const auto layers = random_layers(seed);
    const PairRanker ranker(layers);
    for (int i = 0; i < 20; ++i) {
      PairFeatures features{};
      for (float& value : features) value = uniform(generator) / 8;
      const auto found = ranker.probabilities(features);
      const auto wanted = reference(layers, features);
      CHECK(found[0] == Approx(wanted[0]).margin(1e-4));
      CHECK(found[1] == Approx(wanted[1]).margin(1e-4));
    }
  }
}

TEST_CASE("a tournament puts the variant with most wins first, and draws leave the order by reuse") {
  const PairRanker ranker(less_memory_wins());
  // By reuse cost the order is 0, 2, 1, 3. The third and the fourth have the same memory, so they are equal.
  const std::vector<Variant> variants{variant(100, 30, 3), variant(900, 1, 1), variant(400, 10, 2),
                                      variant(2000, 10, 4)};
  CHECK(ranked(variants, VariantRank::reuse) == std::vector<std::size_t>{0, 2, 1, 3});
  CHECK(ranker.probabilities(pair_features(variants[2], variants[3]))[0] == Approx(0.5).margin(0.1));
  CHECK(ranker.ranked(variants) == std::vector<std::size_t>{1, 2, 3, 0});
  const std::vector<Variant> three(variants.begin(), variants.begin() + 3);
  CHECK(ranker.share_in_order(three, variant_pairs(three).pairs) == 1);
  // A net that answers one half for all pairs: nobody wins.
  auto none = less_memory_wins();
  for (auto& layer : none) std::fill(layer.weights.begin(), layer.weights.end(), 0.0F);
  CHECK(PairRanker(none).ranked(variants) == ranked(variants, VariantRank::reuse));
  CHECK(ranker.ranked({}).empty());
}

TEST_CASE("a ranker of another shape is refused by layer and numbers") {
  auto layers = random_layers(1);
  layers[2].bias.pop_back();
  CHECK_THROWS_WITH(PairRanker(layers),
                    Catch::Contains("layer 3") && Catch::Contains("15 biases") && Catch::Contains("pair_ranker.toml"));
  layers.pop_back();
  CHECK_THROWS_WITH(PairRanker(layers), Catch::Contains("4 layers"));
}
