// A net that says which of two variants of a nest is faster, and a tournament of all variants by it (paper 004, section
// 5.2.2 and figure 5). docs/planning.md explains it.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "convolume/variants.hpp"
#include "convolume/version.hpp"

namespace convolume::plan {

/// The version of pair_features(). It changes if their meaning or their order does.
inline constexpr int pair_features_version = 1;
inline constexpr std::size_t pair_feature_count = 8;
/// Features of two variants: Variant::level_bytes of the first and then of the second, over the sum of all eight.
using PairFeatures = std::array<float, pair_feature_count>;
CONVOLUME_API PairFeatures pair_features(const Variant& first, const Variant& second);

/// Two measured variants of one layer, as indices.
struct VariantPair {
  std::size_t first = 0, second = 0;
  bool second_is_faster = false;
};
/// Pairs that a net can learn from.
struct VariantPairs {
  static constexpr double least_ratio = 1.02;
  static constexpr std::size_t most = 10'000;
  std::vector<VariantPair> pairs{};
  std::size_t all = 0;           ///< pairs of the layer
  std::size_t nearly_equal = 0;  ///< left out, because their times differ by less than 2 %
};
/// Returns the pairs of a layer: each once, and every other one turned around. Of more than 10,000, every n-th is
/// taken. Variants that were not measured are in no pair. Deterministic.
CONVOLUME_API VariantPairs variant_pairs(std::span<const Variant> variants);

/// Returns whether a layer is held out from training: about three tenths are, by a hash of the problem's text.
CONVOLUME_API bool is_held_out(std::string_view problem);

/// Returns the share of pairs that a rank orders as the measurement does. Variants of equal rank count half.
CONVOLUME_API double share_in_order(std::span<const Variant> variants, std::span<const VariantPair> pairs,
                                    VariantRank rank);

/// The net of figure 5: layers of 64, 32, 16, 8 and 2 neurons with relu, relu, softsign, relu and softmax. Immutable
/// and thread-safe.
class PairRanker {
 public:
  static constexpr std::array<std::size_t, 6> widths{pair_feature_count, 64, 32, 16, 8, 2};
  /// A variant wins against another one if its output is above this. If no output is, nobody wins.
  static constexpr float threshold = 0.6F;

  struct Layer {
    std::vector<float> weights;  ///< [output][input]
    std::vector<float> bias;     ///< [output]
  };
  /// Throws ShapeMismatch that names the layer if its sizes are not those of figure 5.
  CONVOLUME_API explicit PairRanker(std::span<const Layer> layers);

  /// Returns the probabilities that the first and that the second variant is faster.
  CONVOLUME_API std::array<float, 2> probabilities(const PairFeatures& features) const;

  /// Returns the indices of variants, those with most wins first. Each plays against every other one in both orders.
  /// Equal ones are ordered by reuse cost, then by the model's seconds, then by their place in the list.
  CONVOLUME_API std::vector<std::size_t> ranked(std::span<const Variant> variants) const;

  /// Returns the share of pairs in which the variant with the larger output was faster.
  CONVOLUME_API double share_in_order(std::span<const Variant> variants, std::span<const VariantPair> pairs) const;

 private:
  std::vector<Layer> layers_;  ///< weights are [input][output]
};

}  // namespace convolume::plan
