// How far a long benchmark is: a bar on standard error where that is a terminal, nothing elsewhere.
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

  /// `share` of the work is done and `what` comes next.
  void show(double share, const std::string& what);
  /// Wipes the bar; to be called before anything is printed.
  void clear();

 private:
  bool terminal_, open_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace convolume::bench
