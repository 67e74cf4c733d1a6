// Counts the threads of the process that worked in an interval.
#pragma once

#include <map>

namespace convolume::bench {

class ThreadTimes {
 public:
  ThreadTimes() : before_(now()) {}
  /// Returns how many threads used a CPU, since the construction, for at least a quarter of the busiest thread's time.
  int busy() const;

 private:
  static std::map<int, double> now();  // CPU seconds by thread
  std::map<int, double> before_;
};

}  // namespace convolume::bench
