// Keeps track of the best validation of a run.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

namespace convolume::nets {

/// The best validation so far. It is part of a checkpoint, so that a resumed run decides as an uninterrupted run does.
struct BestValidation {
  double value = std::nan("");  ///< of the score that `[training] best` names; NaN before the first validation
  std::int64_t iteration = 0;   ///< that has this value; 0 before the first validation
  std::int64_t validated = 0;   ///< last iteration whose validation was counted
  std::int64_t worse = 0;       ///< validations after `iteration` that were not better
  std::string score, data;      ///< name of the score, and digest of the validation volumes

  /// Counts the validation after iteration `at`. Returns whether it is the best one so far. NaN is never better.
  bool count(std::int64_t at, double now);
  std::string to_text() const;
  /// Throws FormatError, without the name of a file, if to_text() cannot have returned the text.
  static BestValidation from_text(const std::string& text);
};

}  // namespace convolume::nets
