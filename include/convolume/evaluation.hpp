// Compares predictions with labels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::nets {

/// One score of a prediction, from 0 to 1; NaN if it is undefined.
struct Score {
  std::string name;
  double value = 0;
};

/// Agreement between a prediction and labels; see evaluate_files().
///
/// Binary nets have `pixel_error`, `roc_auc`, `dice` and `iou`. Nets with classes have `pixel_error` (share of voxels
/// of a wrong class), `dice` and `iou` (means over the classes but class 0), and `dice_1`, `iou_1`, `dice_2`, ... per
/// class; with two classes also `roc_auc`. Nets with overlapping regions have `pixel_error` (share of wrong pairs of a
/// voxel and a region), `dice` and `iou` (means over the regions), and `dice_1`, `iou_1`, `dice_2`, ... per region. A
/// class or region that is absent from label and prediction is NaN and is not averaged.
///
/// Classifiers have `error` (share of cases of a wrong class) and `balanced_error` (mean over the classes of the share
/// of wrong cases of a class).
struct Scores {
  std::vector<Score> values;
  std::int64_t voxels = 0;     ///< that count; of a classifier: cases
  std::int64_t positives = 0;  ///< of these, voxels that are positive, or of a class above 0 or a region, in the label
  std::string note;            ///< what a reader should know, e.g. that roc_auc was computed from bins; mostly empty
  std::vector<std::string> classes{};                  ///< of a classifier: their names
  std::vector<std::vector<std::int64_t>> confusion{};  ///< of a classifier: cases by [true class][predicted class]
  /// Returns the value of a name; NaN if there is none.
  CONVOLUME_API double at(std::string_view name) const;
};

/// Input and settings of a comparison.
struct EvaluateOptions {
  std::string prediction, label;  ///< volumes in any format
  /// Label values that are positive. If it is empty, values of 0.5 and above are positive, which suits labels stored as
  /// 0 and 255 or as 0 and 1. For binary predictions only.
  std::vector<double> positive{};
  /// Number of classes; 0 means as many as the prediction has channels, or a binary prediction if it has one. If the
  /// prediction has one channel, `classes` says that it holds the numbers of classes instead of probabilities.
  std::int64_t classes = 0;
  std::vector<double> ignore{};  ///< label values that do not count
  /// Probability from which on a voxel is positive, for binary predictions and regions only; absent means 0.5. If it is
  /// given, a binary prediction may hold any floats but NaN, as nets with the loss "square" write them.
  std::optional<double> threshold{};
  /// The box [begin, end) of the label volume that was predicted, or its slices [first, end); if absent, all of it.
  std::optional<Extent3> begin{}, end{};
  std::optional<std::pair<index_t, index_t>> slices{};
  /// The label values of each region, for a prediction of regions that may overlap. It has one channel per region, with
  /// probabilities; if `classes` is 2, with 0 and 1 instead. Excludes `positive`. If it is empty, there are no regions.
  std::vector<std::vector<double>> regions{};
  std::function<void(const std::string& note)> on_note{};  ///< as in TrainOptions
  std::stop_token stop{};  ///< a stop request ends the comparison with the scores of the planes so far
};

/// Compares a prediction with labels, box by box. A prediction of several channels holds the probabilities of classes
/// or of regions, as infer() writes them for such nets. Probabilities are floats of 0..1 or uint8 of 0..255. Throws any
/// Error.
CONVOLUME_API Scores evaluate_files(const EvaluateOptions& options);

/// Writes the image and the labels of a split ("train" or "validation") of a data description to volumes, as
/// training reads them: labels mapped, intensities normalised. Throws InvalidArgument for an unknown split, or if the
/// split does not have exactly one volume.
CONVOLUME_API void export_split(const std::filesystem::path& data, const std::string& split,
                                const std::filesystem::path& image, const std::filesystem::path& label);

}  // namespace convolume::nets
