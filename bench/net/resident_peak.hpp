// Measures how much memory of the process was resident at once.
#pragma once

#include <cstddef>

namespace convolume::bench {

/// The peak of resident memory since the construction, as the kernel counts it (/proc/self/status, VmHWM). The
/// constructor resets the kernel's peak, so only one such object may be in use at a time. Pages that were resident
/// before count too.
class ResidentPeak {
 public:
  ResidentPeak();
  /// Returns the bytes beyond those that were resident at construction; 0 if the kernel gives no numbers.
  std::size_t beyond() const;

 private:
  std::size_t before_ = 0;
};

}  // namespace convolume::bench
