// Writes TensorBoard's event files: the loss and the validation scores of a run by iteration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "nets/report/run_log.hpp"

namespace convolume::nets {

/// The event files of a run. Every call of train() adds a file to their folder, and TensorBoard shows all files of a
/// folder as one run. Only the time of an event comes from the clock.
class EventFiles {
 public:
  /// Starts a file. A resumed run does not repeat what earlier files hold. Any other run removes them. Throws IoError.
  EventFiles(const std::filesystem::path& folder, bool resume);

  /// Writes every loss and every validation of the log that the files lack. Throws IoError.
  void update(const RunLog& log);

 private:
  void read(const std::filesystem::path& file);
  void append(const std::string& records);

  std::filesystem::path file_;
  std::ofstream stream_;
  std::int64_t last_loss_ = 0;        // iteration of the last loss in the files
  std::set<std::int64_t> validated_;  // iterations whose scores are in the files
};

}  // namespace convolume::nets
