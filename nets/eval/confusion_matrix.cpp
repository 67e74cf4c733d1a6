#include "nets/eval/confusion_matrix.hpp"

#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convolume/error.hpp"

namespace convolume::nets {

std::vector<std::string> classifier_score_names() { return {"error", "balanced_error"}; }

ConfusionMatrix::ConfusionMatrix(const std::vector<std::string>& classes)
    : classes_(classes), cases_(classes.size(), std::vector<std::int64_t>(classes.size(), 0)) {}

void ConfusionMatrix::add(std::size_t actual, std::size_t predicted) { ++cases_.at(actual).at(predicted); }

Scores ConfusionMatrix::result() const {
  Scores scores;
  scores.classes = classes_;
  scores.confusion = cases_;
  std::int64_t wrong = 0;
  double shares = 0;
  std::vector<std::string> absent;
  for (std::size_t c = 0; c < cases_.size(); ++c) {
    const std::int64_t all = std::accumulate(cases_[c].begin(), cases_[c].end(), std::int64_t{0});
    scores.voxels += all;
    if (c > 0) scores.positives += all;
    wrong += all - cases_[c][c];
    if (all == 0) {
      absent.push_back(classes_[c]);
    } else {
      shares += static_cast<double>(all - cases_[c][c]) / static_cast<double>(all);
    }
  }
  if (scores.voxels == 0) throw InvalidArgument("scores: there is no case to compare");
  scores.values = {{"error", static_cast<double>(wrong) / static_cast<double>(scores.voxels)},
                   {"balanced_error", shares / static_cast<double>(cases_.size() - absent.size())}};
  if (!absent.empty()) {
    scores.note = fmt::format("balanced_error is the mean over {} of {} classes, because there is no case of {}",
                              cases_.size() - absent.size(), cases_.size(), fmt::join(absent, ", "));
  }
  return scores;
}

}  // namespace convolume::nets
