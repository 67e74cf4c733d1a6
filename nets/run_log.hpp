// Writes metrics.jsonl: one JSON object per iteration, with the validation scores if the iteration was validated.
#pragma once

#include <filesystem>
#include <fstream>
#include <vector>

#include "convolume/nets.hpp"
#include "nets/io/chart.hpp"

namespace convolume::nets {

class RunLog {
 public:
  /// Starts a log, or continues an existing one after `iteration`. Lines after that iteration, from an interrupted run,
  /// are removed. Throws IoError.
  RunLog(std::filesystem::path file, bool resume, std::int64_t iteration);

  /// Throws IoError if the line cannot be written.
  void write(std::int64_t iteration, double seconds, double loss, const std::optional<Scores>& validation);
  double seconds_before() const { return seconds_before_; }  ///< seconds of the run that is continued
  const std::vector<io::LossPoint>& losses() const { return losses_; }
  const std::vector<io::ValidationPoint>& validations() const { return validations_; }
  /// Returns what ValidationPoint::second holds: the score that the net has beside its pixel error.
  const std::string& second_score() const { return second_score_; }

 private:
  void note(std::int64_t iteration, double loss, const std::optional<Scores>& validation);

  std::filesystem::path file_;
  std::ofstream stream_;
  double seconds_before_ = 0;
  std::vector<io::LossPoint> losses_;
  std::vector<io::ValidationPoint> validations_;
  std::string second_score_ = "roc_auc";
};

}  // namespace convolume::nets
