#include "nets/io/metrics.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace convolume::nets {
namespace {

/// Maps a float to an unsigned integer with the same order. Both zeros map to one value. NaN is not allowed.
std::uint32_t order_key(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// Sorts by least-significant-digit radix sort in linear time. A comparison sort of millions of voxels would take most
/// of the evaluation's time.
void sort_keys(std::vector<std::uint32_t>& keys, std::vector<std::uint32_t>& scratch) {
  constexpr int digit_bits = 11, digits = 3;
  constexpr std::uint32_t mask = (1u << digit_bits) - 1;
  std::vector<std::array<std::size_t, std::size_t{1} << digit_bits>> counts(digits);
  for (const auto key : keys) {
    for (int d = 0; d < digits; ++d) ++counts[static_cast<std::size_t>(d)][(key >> (d * digit_bits)) & mask];
  }
  scratch.resize(keys.size());
  for (int d = 0; d < digits; ++d) {
    auto& place = counts[static_cast<std::size_t>(d)];
    std::size_t before = 0;
    for (auto& count : place) {
      const std::size_t own = count;
      count = before;
      before += own;
    }
    for (const auto key : keys) scratch[place[(key >> (d * digit_bits)) & mask]++] = key;
    keys.swap(scratch);
  }
}

/// Returns the share of (positive, negative) pairs in which the positive ranks higher; ties count half. This
/// Mann-Whitney statistic equals the area under the ROC curve (Hanley and McNeil, Radiology 143, 1982). Both inputs
/// must be sorted.
double area_under_curve(const std::vector<std::uint32_t>& positives, const std::vector<std::uint32_t>& negatives) {
  if (positives.empty() || negatives.empty()) return std::numeric_limits<double>::quiet_NaN();
  unsigned __int128 twice_wins = 0;
  std::size_t below = 0, not_above = 0;  // negatives < and <= the current positive
  for (const auto key : positives) {
    while (below < negatives.size() && negatives[below] < key) ++below;
    while (not_above < negatives.size() && negatives[not_above] <= key) ++not_above;
    twice_wins += below + not_above;
  }
  return static_cast<double>(twice_wins) / 2 /
         (static_cast<double>(positives.size()) * static_cast<double>(negatives.size()));
}

[[noreturn]] void refuse_nan(const char* what, index_t n, index_t c, index_t z, index_t y, index_t x) {
  throw NumericalError(fmt::format("evaluate: {} is NaN at (n {}, c {}, z {}, y {}, x {}); check the step that made it",
                                   what, n, c, z, y, x));
}

}  // namespace

SegmentationMetrics evaluate(const View<const float>& probability, const View<const float>& label,
                             const View<const float>& mask, double threshold) {
  if (!probability || !label) throw InvalidArgument("evaluate: probability or label is missing");
  if (std::isnan(threshold)) throw InvalidArgument("evaluate: the threshold is NaN");
  const Shape5& shape = probability.shape;
  if (label.shape != shape || (mask && mask.shape != shape)) {
    throw ShapeMismatch(fmt::format("evaluate: probability is {}, label {}{}; crop them to the same box",
                                    to_string(shape), to_string(label.shape),
                                    mask ? ", mask " + to_string(mask.shape) : ""));
  }
  std::vector<std::uint32_t> positives, negatives;
  std::int64_t true_positives = 0, false_positives = 0, false_negatives = 0;
  for (index_t n = 0; n < shape.n; ++n) {
    for (index_t c = 0; c < shape.c; ++c) {
      for (index_t z = 0; z < shape.extent.z; ++z) {
        for (index_t y = 0; y < shape.extent.y; ++y) {
          for (index_t x = 0; x < shape.extent.x; ++x) {
            if (mask && !(mask(n, c, z, y, x) >= 0.5f)) continue;
            const float value = probability(n, c, z, y, x);
            const float truth = label(n, c, z, y, x);
            if (std::isnan(value)) refuse_nan("the probability", n, c, z, y, x);
            if (std::isnan(truth)) refuse_nan("the label", n, c, z, y, x);
            const bool predicted = static_cast<double>(value) >= threshold;
            const bool actual = truth >= 0.5f;
            (actual ? positives : negatives).push_back(order_key(value));
            true_positives += predicted && actual;
            false_positives += predicted && !actual;
            false_negatives += !predicted && actual;
          }
        }
      }
    }
  }
  SegmentationMetrics result;
  result.positives = static_cast<std::int64_t>(positives.size());
  result.voxels = result.positives + static_cast<std::int64_t>(negatives.size());
  if (result.voxels == 0)
    throw InvalidArgument("evaluate: there is no voxel to compare; check the extents and the mask");
  const std::int64_t wrong = false_positives + false_negatives;
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return whole == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  result.pixel_error = share(wrong, result.voxels);
  result.dice = share(2 * true_positives, 2 * true_positives + wrong);
  result.iou = share(true_positives, true_positives + wrong);
  std::vector<std::uint32_t> scratch;
  sort_keys(positives, scratch);
  sort_keys(negatives, scratch);
  result.roc_auc = area_under_curve(positives, negatives);
  return result;
}

}  // namespace convolume::nets
