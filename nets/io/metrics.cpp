#include "nets/io/metrics.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
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

/// The inverse of order_key().
float value_of(std::uint32_t key) { return std::bit_cast<float>((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key); }

constexpr std::size_t bins = std::size_t{1} << 16;

std::size_t bin_of(float value) {
  const double place = std::clamp(static_cast<double>(value), 0.0, 1.0) * static_cast<double>(bins - 1);
  return static_cast<std::size_t>(place + 0.5);
}

/// The same statistic from histograms: values of one bin are ties.
double area_under_curve(const std::vector<std::int64_t>& positives, const std::vector<std::int64_t>& negatives) {
  double twice_wins = 0, all_positives = 0, below = 0;
  for (std::size_t i = 0; i < bins; ++i) {
    const auto p = static_cast<double>(positives[i]), n = static_cast<double>(negatives[i]);
    twice_wins += p * (2 * below + n);
    all_positives += p;
    below += n;
  }
  if (all_positives == 0 || below == 0) return std::numeric_limits<double>::quiet_NaN();
  return twice_wins / 2 / (all_positives * below);
}

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

BinarySums::BinarySums(double threshold, std::int64_t most_exact) : threshold_(threshold), most_exact_(most_exact) {
  if (std::isnan(threshold)) throw InvalidArgument("evaluate: the threshold is NaN");
}

void BinarySums::to_bins() {
  const auto counted = [](std::vector<std::uint32_t>& keys) {
    Bins counts(bins);
    for (const auto key : keys) ++counts[bin_of(value_of(key))];
    keys = {};
    return counts;
  };
  positive_bins_ = counted(positives_);
  negative_bins_ = counted(negatives_);
}

void BinarySums::add(std::span<const float> probability, std::span<const float> label, std::span<const float> mask) {
  for (std::size_t i = 0; i < probability.size(); ++i) {
    if (!mask.empty() && !(mask[i] >= 0.5f)) continue;
    const float value = probability[i], truth = label[i];
    if (std::isnan(value) || std::isnan(truth)) {
      throw NumericalError(fmt::format("evaluate: {} is NaN at x {}; check the step that made it",
                                       std::isnan(value) ? "the probability" : "the label", i));
    }
    const bool predicted = static_cast<double>(value) >= threshold_, actual = truth >= 0.5f;
    if (positive_bins_.empty()) {
      (actual ? positives_ : negatives_).push_back(order_key(value));
    } else {
      ++(actual ? positive_bins_ : negative_bins_)[bin_of(value)];
    }
    ++voxels_;
    actual_ += actual;
    true_positives_ += predicted && actual;
    false_positives_ += predicted && !actual;
    false_negatives_ += !predicted && actual;
  }
  if (positive_bins_.empty() && voxels_ > most_exact_) to_bins();
}

SegmentationMetrics BinarySums::result() const {
  if (voxels_ == 0) {
    throw InvalidArgument("evaluate: there is no voxel to compare; check the extents and the mask");
  }
  const std::int64_t wrong = false_positives_ + false_negatives_;
  SegmentationMetrics result;
  result.positives = actual_;
  result.voxels = voxels_;
  result.pixel_error = share(wrong, voxels_);
  result.dice = share(2 * true_positives_, 2 * true_positives_ + wrong);
  result.iou = share(true_positives_, true_positives_ + wrong);
  result.binned = !positive_bins_.empty();
  if (result.binned) {
    result.roc_auc = area_under_curve(positive_bins_, negative_bins_);
    return result;
  }
  std::vector<std::uint32_t> positives = positives_, negatives = negatives_, scratch;
  sort_keys(positives, scratch);
  sort_keys(negatives, scratch);
  result.roc_auc = area_under_curve(positives, negatives);
  return result;
}

std::int64_t ClassSums::voxels() const noexcept {
  return std::accumulate(actual_.begin(), actual_.end(), std::int64_t{0});
}

double ClassSums::error() const noexcept {
  const std::int64_t all = voxels(), right = std::accumulate(true_.begin(), true_.end(), std::int64_t{0});
  return all == 0 ? std::numeric_limits<double>::quiet_NaN() : share(all - right, all);
}

ClassSums::PerClass ClassSums::of(std::size_t c) const noexcept {
  const std::int64_t both = predicted_[c] + actual_[c];
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  return both == 0 ? PerClass{none, none} : PerClass{share(2 * true_[c], both), share(true_[c], both - true_[c])};
}

ClassSums::PerClass ClassSums::mean() const {
  std::vector<PerClass> all;
  for (std::size_t c = 1; c < classes(); ++c) all.push_back(of(c));
  return mean_of(all);
}

ClassSums::PerClass ClassSums::mean_of(std::span<const PerClass> classes) noexcept {
  PerClass sum;
  int present = 0;
  for (const PerClass& one : classes) {
    if (std::isnan(one.dice)) continue;
    sum.dice += one.dice;
    sum.iou += one.iou;
    ++present;
  }
  return {sum.dice / present, sum.iou / present};  // NaN if there is none
}

SegmentationMetrics evaluate(const View<const float>& probability, const View<const float>& label,
                             const View<const float>& mask, double threshold) {
  if (!probability || !label) throw InvalidArgument("evaluate: probability or label is missing");
  const Shape5& shape = probability.shape;
  if (label.shape != shape || (mask && mask.shape != shape)) {
    throw ShapeMismatch(fmt::format("evaluate: probability is {}, label {}{}; crop them to the same box",
                                    to_string(shape), to_string(label.shape),
                                    mask ? ", mask " + to_string(mask.shape) : ""));
  }
  BinarySums sums(threshold);
  const auto row_of = [&](const View<const float>& view, std::vector<float>& row, index_t n, index_t c, index_t z,
                          index_t y) {
    row.resize(view ? static_cast<std::size_t>(shape.extent.x) : 0);
    for (std::size_t x = 0; x < row.size(); ++x) row[x] = view(n, c, z, y, static_cast<index_t>(x));
  };
  std::vector<float> p, l, m;
  for (index_t n = 0; n < shape.n; ++n) {
    for (index_t c = 0; c < shape.c; ++c) {
      for (index_t z = 0; z < shape.extent.z; ++z) {
        for (index_t y = 0; y < shape.extent.y; ++y) {
          row_of(probability, p, n, c, z, y);
          row_of(label, l, n, c, z, y);
          row_of(mask, m, n, c, z, y);
          try {
            sums.add(p, l, m);
          } catch (const NumericalError& error) {
            throw NumericalError(fmt::format("{} (n {}, c {}, z {}, y {})", error.what(), n, c, z, y));
          }
        }
      }
    }
  }
  return sums.result();
}

}  // namespace convolume::nets
