#include "nets/eval/scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace convolume::nets {
namespace {

constexpr const char* no_voxels =
    "scores: there is no voxel to compare; check the extents, the mask and what is ignored";

/// Calls body(offset of a row, row of the label, row of weights) for all rows that have voxels that count. Weights are
/// 0 or 1.
template <class Body>
void for_each_row(const View<const float>& label, const View<const float>& mask, const Body& body) {
  const Extent3& e = label.shape.extent;
  std::vector<float> truth(static_cast<std::size_t>(e.x)), weight(truth.size());
  for (index_t z = 0; z < e.z; ++z) {
    for (index_t y = 0; y < e.y; ++y) {
      for (index_t x = 0; x < e.x; ++x) {
        const auto i = static_cast<std::size_t>(x);
        truth[i] = label(0, 0, z, y, x);
        const bool ignored = truth[i] == ignored_label || (mask && !(mask(0, 0, z, y, x) >= 0.5f));
        weight[i] = ignored ? 0.0f : 1.0f;
      }
      body(z, y, truth, weight);
    }
  }
}

}  // namespace

double Scores::at(std::string_view name) const {
  const auto found = std::find_if(values.begin(), values.end(), [&](const Score& score) { return score.name == name; });
  return found == values.end() ? std::numeric_limits<double>::quiet_NaN() : found->value;
}

Tensor<float> foreground(const NetSpec& spec, Tensor<float> probabilities) {
  const index_t channels = probabilities.shape().c;
  if (!spec.softmax() && channels == 1) return probabilities;
  Tensor<float> result({1, 1, probabilities.shape().extent});
  const index_t voxels = result.elements();
  for (index_t v = 0; v < voxels; ++v) {
    const float* const p = probabilities.data() + v;
    float& to = result.data()[v];
    to = spec.softmax() ? 1 - *p : *p;
    for (index_t c = 1; c < channels && !spec.softmax(); ++c) to = std::max(to, p[c * voxels]);
  }
  return result;
}

ScoreSums::ScoreSums(const Targets& targets, double threshold)
    : classes_(static_cast<std::size_t>(targets.classes)),
      threshold_(threshold),
      sums_(std::max<std::size_t>(1, classes_)),
      regions_(static_cast<std::size_t>(targets.regions), ClassSums(2)) {
  if (!regions_.empty() && std::isnan(threshold)) throw InvalidArgument("evaluate: the threshold is NaN");
  if (regions_.empty() && (classes_ == 0 || classes_ == 2)) binary_.emplace(threshold);
}

void ScoreSums::add(const View<const float>& prediction, const View<const float>& label,
                    const View<const float>& mask) {
  const Shape5 one{1, 1, prediction.shape.extent};
  if (label.shape != one || (mask && mask.shape != one)) {
    throw ShapeMismatch(fmt::format("scores: the prediction is {}, the label {}; crop them to the same box",
                                    to_string(prediction.shape), to_string(label.shape)));
  }
  if (!regions_.empty()) return add_regions(prediction, label, mask);
  if (classes_ == 0) return add_binary(prediction, 0, label, mask);
  if (classes_ == 2 && prediction.shape.c == 2) add_binary(prediction, 1, label, mask);
  add_classes(prediction, label, mask);
}

void ScoreSums::add_binary(const View<const float>& prediction, index_t channel, const View<const float>& label,
                           const View<const float>& mask) {
  std::vector<float> row(static_cast<std::size_t>(label.shape.extent.x));
  for_each_row(label, mask,
               [&](index_t z, index_t y, const std::vector<float>& truth, const std::vector<float>& weight) {
                 for (std::size_t x = 0; x < row.size(); ++x)
                   row[x] = prediction(0, channel, z, y, static_cast<index_t>(x));
                 binary_->add(row, truth, weight);
               });
}

void ScoreSums::add_classes(const View<const float>& prediction, const View<const float>& label,
                            const View<const float>& mask) {
  const auto class_of = [&](float value, const char* what, index_t z, index_t y, index_t x) {
    if (value >= 0 && value < static_cast<float>(classes_) && value == std::floor(value)) {
      return static_cast<std::size_t>(value);
    }
    throw FormatError(
        fmt::format("the {} at (z {}, y {}, x {}) is {}, but there are the classes 0 to {}; name other "
                    "values with --ignore",
                    what, z, y, x, value, classes_ - 1));
  };
  for_each_row(label, mask,
               [&](index_t z, index_t y, const std::vector<float>& truth, const std::vector<float>& weight) {
                 for (std::size_t i = 0; i < truth.size(); ++i) {
                   if (weight[i] == 0) continue;
                   const auto x = static_cast<index_t>(i);
                   std::size_t predicted = 0;
                   if (prediction.shape.c == 1) {
                     predicted = class_of(prediction(0, 0, z, y, x), "prediction", z, y, x);
                   } else {
                     for (index_t c = 1; c < prediction.shape.c; ++c) {
                       if (prediction(0, c, z, y, x) > prediction(0, static_cast<index_t>(predicted), z, y, x)) {
                         predicted = static_cast<std::size_t>(c);
                       }
                     }
                   }
                   sums_.add(predicted, class_of(truth[i], "label", z, y, x));
                 }
               });
}

void ScoreSums::add_regions(const View<const float>& prediction, const View<const float>& label,
                            const View<const float>& mask) {
  for_each_row(label, mask,
               [&](index_t z, index_t y, const std::vector<float>& truth, const std::vector<float>& weight) {
                 for (std::size_t i = 0; i < truth.size(); ++i) {
                   if (weight[i] == 0) continue;
                   const auto x = static_cast<index_t>(i);
                   in_regions_ += truth[i] > 0;
                   for (std::size_t r = 0; r < regions_.size(); ++r) {
                     const auto region = static_cast<index_t>(r);
                     const float p = prediction(0, region, z, y, x);
                     if (std::isnan(p)) {
                       throw NumericalError(fmt::format(
                           "evaluate: the probability of region {} at (z {}, y {}, x {}) is NaN; check the step that "
                           "made it",
                           r + 1, z, y, x));
                     }
                     const bool predicted = static_cast<double>(p) >= threshold_;
                     regions_[r].add(predicted, in_region(truth[i], region));
                   }
                 }
               });
}

std::vector<std::string> score_names(const Targets& targets) {
  const auto [classes, regions] = targets;
  std::vector<std::string> names{"pixel_error"};
  if (regions == 0 && (classes == 0 || classes == 2)) names.emplace_back("roc_auc");
  names.emplace_back("dice");
  names.emplace_back("iou");
  for (index_t c = 1; c < std::max(classes, regions + 1); ++c) {
    names.push_back(fmt::format("dice_{}", c));
    names.push_back(fmt::format("iou_{}", c));
  }
  return names;
}

Scores ScoreSums::result_of_regions() const {
  Scores scores{.values = {}, .voxels = regions_.front().voxels(), .positives = in_regions_, .note = {}};
  if (scores.voxels == 0) throw InvalidArgument(no_voxels);
  std::vector<ClassSums::PerClass> all;
  double error = 0;
  for (const ClassSums& region : regions_) {
    all.push_back(region.of(1));
    error += region.error();
  }
  const auto mean = ClassSums::mean_of(all);
  scores.values = {
      {"pixel_error", error / static_cast<double>(regions_.size())}, {"dice", mean.dice}, {"iou", mean.iou}};
  for (std::size_t r = 0; r < all.size(); ++r) {
    scores.values.push_back({fmt::format("dice_{}", r + 1), all[r].dice});
    scores.values.push_back({fmt::format("iou_{}", r + 1), all[r].iou});
  }
  return scores;
}

Scores ScoreSums::result() const {
  if (!regions_.empty()) return result_of_regions();
  Scores scores;
  const auto put = [&](std::string name, double value) { scores.values.push_back({std::move(name), value}); };
  std::optional<SegmentationMetrics> binary;
  if (classes_ == 0 || (binary_ && binary_->voxels() > 0)) binary = binary_->result();
  if (binary && binary->binned) scores.note = "roc_auc was computed from 65536 bins, because there are so many voxels";
  if (classes_ == 0) {
    put("pixel_error", binary->pixel_error);
    put("roc_auc", binary->roc_auc);
    put("dice", binary->dice);
    put("iou", binary->iou);
    scores.voxels = binary->voxels;
    scores.positives = binary->positives;
    return scores;
  }
  scores.voxels = sums_.voxels();
  if (scores.voxels == 0) throw InvalidArgument(no_voxels);
  scores.positives = scores.voxels - sums_.actual(0);
  put("pixel_error", sums_.error());
  if (binary) put("roc_auc", binary->roc_auc);
  const auto mean = sums_.mean();
  put("dice", mean.dice);
  put("iou", mean.iou);
  for (std::size_t c = 1; c < classes_; ++c) {
    put(fmt::format("dice_{}", c), sums_.of(c).dice);
    put(fmt::format("iou_{}", c), sums_.of(c).iou);
  }
  return scores;
}

}  // namespace convolume::nets
