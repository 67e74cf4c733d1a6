// Computes the scores of a classifier.
#pragma once

#include <string>
#include <vector>

#include "convolume/evaluation.hpp"

namespace convolume::nets {

/// Returns the names of the scores of classifiers, in the order of Scores.
std::vector<std::string> classifier_score_names();

/// Counts the cases of each class by their predicted class.
class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(const std::vector<std::string>& classes);
  void add(std::size_t actual, std::size_t predicted);
  /// Throws InvalidArgument if there is no case.
  Scores result() const;

 private:
  std::vector<std::string> classes_;
  std::vector<std::vector<std::int64_t>> cases_;  // [true class][predicted class]
};

}  // namespace convolume::nets
