// Measures how well a predicted probability volume agrees with a binary label volume.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::nets {

/// Agreement of a prediction with a label volume. Rates lie in 0..1. TP, FP and FN are the numbers of true positives,
/// false positives and false negatives.
struct SegmentationMetrics {
  double pixel_error = 0;      ///< share of voxels on the wrong side of the threshold
  double roc_auc = 0;          ///< area under the ROC curve, ties count half; NaN if one class is missing
  double dice = 0;             ///< 2 TP / (2 TP + FP + FN); 1 if nothing is positive in either volume
  double iou = 0;              ///< TP / (TP + FP + FN); 1 if nothing is positive in either volume
  std::int64_t voxels = 0;     ///< voxels that count
  std::int64_t positives = 0;  ///< voxels that count and are positive in the label
  bool binned = false;         ///< roc_auc was computed from 2^16 bins of the probability, because of so many voxels
};

/// Sums up the agreement of a prediction with a binary label, box by box.
///
/// The AUC is exact (rank sums in integers) up to 2^28 voxels, so it does not depend on order or rounding, and infinite
/// probabilities rank beyond all others. It takes 4 bytes of memory per voxel, and as many again in result(). Beyond,
/// probabilities fall into 2^16 equal bins of 0..1, and those in one bin are ties.
class BinarySums {
 public:
  explicit BinarySums(double threshold = 0.5, std::int64_t most_exact = std::int64_t{1} << 28);
  /// Adds a row of voxels at equal positions. A voxel is positive in the label if its label is >= 0.5. It counts if the
  /// mask is empty or at least 0.5 there. Throws NumericalError for NaN, naming its X.
  void add(std::span<const float> probability, std::span<const float> label, std::span<const float> mask);
  std::int64_t voxels() const noexcept { return voxels_; }  ///< that count
  /// Throws InvalidArgument if no voxel counts.
  SegmentationMetrics result() const;

 private:
  using Bins = std::vector<std::int64_t>;
  void to_bins();

  double threshold_;
  std::int64_t most_exact_;
  std::vector<std::uint32_t> positives_, negatives_;  // ordered keys of probabilities; empty if there are bins
  Bins positive_bins_, negative_bins_;
  std::int64_t true_positives_ = 0, false_positives_ = 0, false_negatives_ = 0, actual_ = 0, voxels_ = 0;
};

/// Sums up the agreement of predicted classes with classes of a label, box by box.
class ClassSums {
 public:
  /// Agreement for one class; NaN if it is absent from label and prediction.
  struct PerClass {
    double dice = 0, iou = 0;
  };

  explicit ClassSums(std::size_t classes) : true_(classes), predicted_(classes), actual_(classes) {}
  void add(std::size_t predicted, std::size_t actual) {
    ++predicted_[predicted];
    ++actual_[actual];
    true_[actual] += predicted == actual;
  }
  std::size_t classes() const noexcept { return true_.size(); }
  std::int64_t voxels() const noexcept;
  std::int64_t actual(std::size_t c) const noexcept { return actual_[c]; }  ///< voxels of a class in the label
  /// Returns the share of voxels whose class is wrong.
  double error() const noexcept;
  PerClass of(std::size_t c) const noexcept;
  /// Returns the means over all classes but class 0 that are not absent; NaN if all are.
  PerClass mean() const;
  /// Returns the means over the classes that are not NaN; NaN if all are.
  static PerClass mean_of(std::span<const PerClass> classes) noexcept;

 private:
  std::vector<std::int64_t> true_, predicted_, actual_;
};

/// Compares all elements of two views at equal positions; all strides are allowed. See BinarySums. Throws ShapeMismatch
/// (shapes differ), NumericalError, and InvalidArgument (empty view, NaN threshold, no voxel counts).
SegmentationMetrics evaluate(const View<const float>& probability, const View<const float>& label,
                             const View<const float>& mask = {}, double threshold = 0.5);

}  // namespace convolume::nets
