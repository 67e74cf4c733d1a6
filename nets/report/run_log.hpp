// Writes metrics.jsonl: one JSON object per iteration, with the validation scores if the iteration was validated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "convolume/evaluation.hpp"

namespace convolume::nets {

struct LossPoint {
  std::int64_t iteration = 0;
  double loss = 0;
};

struct Validation {
  std::int64_t iteration = 0;
  Scores scores;
};

class RunLog {
 public:
  /// Starts a log, or continues an existing one after `iteration`. Lines after that iteration, from an interrupted run,
  /// are removed. Throws IoError.
  RunLog(std::filesystem::path file, bool resume, std::int64_t iteration);

  /// Throws IoError if the line cannot be written.
  void write(std::int64_t iteration, double seconds, double loss, const std::optional<Scores>& validation);
  /// Adds scores to the last line, if it is that of an iteration that had been interrupted before its validation.
  /// Throws IoError.
  void add_scores(std::int64_t iteration, const Scores& validation);
  double seconds_before() const { return seconds_before_; }  ///< seconds of the run that is continued
  const std::vector<LossPoint>& losses() const { return losses_; }
  const std::vector<Validation>& validations() const { return validations_; }

 private:
  void open();
  void append(const std::string& line);

  std::filesystem::path file_;
  std::ofstream stream_;
  double seconds_before_ = 0;
  std::vector<LossPoint> losses_;
  std::vector<Validation> validations_;
};

}  // namespace convolume::nets
