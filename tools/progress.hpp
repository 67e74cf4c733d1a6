// Shows the progress of a long run: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <string>

#include "convolume/nets.hpp"

namespace convolume::tools {

class ProgressDisplay {
 public:
  explicit ProgressDisplay(bool quiet);

  void show(const nets::TrainProgress& progress);
  void show_share(const std::string& what, double share);
  /// Announces that the choice of a layer is measured, if this takes more than 2 s.
  void show_tuning(const std::string& layer, double seconds);
  /// Ends the line of the bar.
  void finish();

 private:
  bool due(bool important);
  void print(const std::string& line, bool important);

  bool quiet_, terminal_;
  bool open_ = false;  // the cursor is at the end of a bar
  std::chrono::steady_clock::time_point last_{};
};

/// Returns a duration as "1:05:09" or "2:07".
std::string clock_text(double seconds);

}  // namespace convolume::tools
