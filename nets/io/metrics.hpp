// Measures how well a predicted probability volume agrees with a binary label volume.
#pragma once

#include <cstdint>

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
};

/// Compares elements at equal positions; all strides are allowed. A voxel is positive in the label if its label is >=
/// 0.5, and positive in the prediction if its probability is >= `threshold`. It counts if there is no mask or its mask
/// is >= 0.5.
///
/// The AUC is exact (rank sums in integers), so it does not depend on order or rounding. Infinite probabilities rank
/// beyond all others. Takes about 8 bytes of memory per voxel. Throws ShapeMismatch (shapes differ), NumericalError (a
/// voxel that counts is NaN; its position is named), and InvalidArgument (empty view, NaN threshold, no voxel counts).
SegmentationMetrics evaluate(const View<const float>& probability, const View<const float>& label,
                             const View<const float>& mask = {}, double threshold = 0.5);

}  // namespace convolume::nets
