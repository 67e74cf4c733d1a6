// Computes scores from predictions.
#pragma once

#include <optional>

#include "convolume/evaluation.hpp"
#include "nets/data/dataset.hpp"
#include "nets/io/metrics.hpp"
#include "nets/spec/net_spec.hpp"

namespace convolume::nets {

/// Returns the probability of the foreground: the only channel of a sigmoid, the largest one of several regions, or 1 -
/// p[0] of a softmax.
Tensor<float> foreground(const NetSpec& spec, Tensor<float> probabilities);

/// Returns the names of the scores of nets with these targets, in the order of Scores.
std::vector<std::string> score_names(const Targets& targets);

/// Sums up scores over volumes, box by box.
class ScoreSums {
 public:
  ScoreSums(const Targets& targets, double threshold);

  /// Adds a box. `prediction` is {1, C, Z, Y, X} with the probabilities of C classes, of C regions or of one channel;
  /// with one channel and `classes` above 0 it holds the numbers of classes. `label` is {1, 1, Z, Y, X} with a class, a
  /// sum of regions (see LabelSpec::regions), or 0..1; voxels of `ignored_label` do not count, nor those whose mask is
  /// below 0.5. `mask` may be empty. Throws ShapeMismatch, FormatError for a class that does not exist, and
  /// NumericalError if the probability of a region is NaN.
  void add(const View<const float>& prediction, const View<const float>& label, const View<const float>& mask);
  /// Throws InvalidArgument if no voxel counts.
  Scores result() const;

 private:
  void add_binary(const View<const float>& prediction, index_t channel, const View<const float>& label,
                  const View<const float>& mask);
  void add_classes(const View<const float>& prediction, const View<const float>& label, const View<const float>& mask);
  void add_regions(const View<const float>& prediction, const View<const float>& label, const View<const float>& mask);
  Scores result_of_regions() const;

  std::size_t classes_;
  double threshold_;
  std::optional<BinarySums> binary_;  // of binary predictions, and of two classes
  ClassSums sums_;
  std::vector<ClassSums> regions_;  // of each region: class 1 is the region, class 0 the rest
  std::int64_t in_regions_ = 0;     // voxels that lie in a region of the label
};

}  // namespace convolume::nets
