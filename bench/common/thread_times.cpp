#include "bench/common/thread_times.hpp"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <string>

namespace convolume::bench {

std::map<int, double> ThreadTimes::now() {
  std::map<int, double> seconds;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", none)) {
    const std::string name = entry.path().filename();
    unsigned thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    // Compute the id of the thread's CPU clock from the thread's number. glibc computes the same from a pthread_t.
    constexpr unsigned per_thread = 4, scheduled = 2;
    const auto clock = static_cast<clockid_t>((~thread << 3) | per_thread | scheduled);
    timespec time{};
    if (thread != 0 && clock_gettime(clock, &time) == 0) {
      seconds[static_cast<int>(thread)] = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }
  }
  return seconds;
}

int ThreadTimes::busy() const {
  std::map<int, double> worked = now();
  double most = 0;
  for (auto& [thread, seconds] : worked) {
    const auto found = before_.find(thread);
    if (found != before_.end()) seconds -= found->second;
    most = std::max(most, seconds);
  }
  return static_cast<int>(
      std::count_if(worked.begin(), worked.end(), [most](const auto& thread) { return thread.second >= most / 4; }));
}

}  // namespace convolume::bench
