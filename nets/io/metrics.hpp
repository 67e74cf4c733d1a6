// How well a predicted probability volume agrees with a binary label volume.
#pragma once

#include <cstdint>

#include "convolume/tensor.hpp"

namespace convolume::nets {

/// Rates lie in 0..1. With TP, FP and FN the counts of true positives, false positives and false negatives:
struct SegmentationMetrics {
  double pixel_error = 0;      ///< share of voxels on the wrong side of the threshold
  double roc_auc = 0;          ///< area under the ROC curve, ties count half; NaN where one class is missing
  double dice = 0;             ///< 2 TP / (2 TP + FP + FN); 1 where nothing is positive in either volume
  double iou = 0;              ///< TP / (TP + FP + FN); 1 where nothing is positive in either volume
  std::int64_t voxels = 0;     ///< voxels that took part
  std::int64_t positives = 0;  ///< of them, positive in the label
};

/// Compares elements of equal position; any strides. A voxel is positive in the label where that is >= 0.5, in the
/// prediction where that is >= `threshold`, and takes part where `mask` is missing or >= 0.5.
///
/// The AUC is exact (rank sums in integers), so it depends neither on order nor on rounding; infinite probabilities
/// rank beyond all others. Takes about 8 bytes of memory per voxel.
/// Throws ShapeMismatch (shapes differ), NumericalError (a NaN takes part; its position is named), InvalidArgument (no
/// view, NaN threshold, no voxel takes part).
SegmentationMetrics evaluate(const View<const float>& probability, const View<const float>& label,
                             const View<const float>& mask = {}, double threshold = 0.5);

}  // namespace convolume::nets
