// Computes scores from predictions.
#pragma once

#include <optional>

#include "convolume/nets.hpp"
#include "nets/io/metrics.hpp"
#include "nets/net_spec.hpp"

namespace convolume::nets {

/// Returns the probability of any class but class 0: the only channel of a sigmoid, or 1 - p[0] of a softmax.
Tensor<float> foreground(const NetSpec& spec, Tensor<float> probabilities);

/// Returns the names of the scores of nets with so many classes, in the order of Scores; 0 classes means a binary net.
std::vector<std::string> score_names(index_t classes);

/// Sums up scores over volumes, box by box.
class ScoreSums {
 public:
  /// `classes` is 0 for binary predictions.
  ScoreSums(index_t classes, double threshold);

  /// Adds a box. `prediction` is {1, C, Z, Y, X} with the probabilities of C classes or of one; with one channel and
  /// `classes` above 0 it holds the numbers of classes. `label` is {1, 1, Z, Y, X} with a class, or 0..1; voxels of
  /// `ignored_label` do not count, nor those whose mask is below 0.5. `mask` may be empty. Throws ShapeMismatch, and
  /// FormatError for a class that does not exist.
  void add(const View<const float>& prediction, const View<const float>& label, const View<const float>& mask);
  /// Throws InvalidArgument if no voxel counts.
  Scores result() const;

 private:
  void add_binary(const View<const float>& prediction, index_t channel, const View<const float>& label,
                  const View<const float>& mask);
  void add_classes(const View<const float>& prediction, const View<const float>& label, const View<const float>& mask);

  std::size_t classes_;
  std::optional<BinarySums> binary_;  // of binary predictions, and of two classes
  ClassSums sums_;
};

}  // namespace convolume::nets
