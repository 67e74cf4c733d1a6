// The progress of a long benchmark: a bar on standard error if that is a terminal, otherwise nothing.
#pragma once

#include <chrono>
#include <string>

namespace convolume::bench {

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Shows that `share` of the work is done and that `what` comes next.
  void show(double share, const std::string& what);
  /// Erases the bar. Call it before anything is printed.
  void clear();

 private:
  bool terminal_, open_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace convolume::bench
