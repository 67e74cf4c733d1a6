#include "bench/net/resident_peak.hpp"

#include <algorithm>
#include <fstream>
#include <string>

namespace convolume::bench {
namespace {

/// Returns a line of /proc/self/status, which counts in KiB, in bytes.
std::size_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

}  // namespace

ResidentPeak::ResidentPeak() {
  // Writing 5 resets the peak (proc(5)). If the kernel does not allow it, earlier peaks count as well.
  std::ofstream("/proc/self/clear_refs") << "5";
  before_ = status_bytes("VmRSS");
}

std::size_t ResidentPeak::beyond() const {
  const std::size_t peak = status_bytes("VmHWM");
  return peak - std::min(peak, before_);
}

}  // namespace convolume::bench
