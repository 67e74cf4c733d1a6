// Which threads of the process worked in the meantime.
#pragma once

#include <map>

namespace convolume::bench {

class ThreadTimes {
 public:
  ThreadTimes() : before_(now()) {}
  /// Threads that since then were on a processor for at least a quarter as long as the busiest one.
  int busy() const;

 private:
  static std::map<int, double> now();  // seconds on a processor, by thread
  std::map<int, double> before_;
};

}  // namespace convolume::bench
