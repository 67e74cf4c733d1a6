// How much memory of the process was resident at once.
#pragma once

#include <cstddef>

namespace convolume::bench {

/// The peak of resident memory since its construction, by the kernel's book (/proc/self/status, VmHWM), which it
/// resets; one at a time. Pages that were resident before count as they are.
class ResidentPeak {
 public:
  ResidentPeak();
  /// Bytes beyond what was resident at construction; 0 where the kernel tells nothing.
  std::size_t beyond() const;

 private:
  std::size_t before_ = 0;
};

}  // namespace convolume::bench
