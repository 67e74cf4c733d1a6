// Ctrl-C and SIGTERM as a stop request.
#pragma once

#include <stop_token>
#include <thread>

namespace convolume::tools {

inline constexpr int interrupted = 130;  ///< exit status, as in the shell: 128 + SIGINT

/// Turns Ctrl-C and SIGTERM into a stop request, outside the signal handler. A second signal ends the process at once.
class StopOnSignal {
 public:
  StopOnSignal();
  std::stop_token token() const { return source_.get_token(); }

 private:
  void watch(const std::stop_token& done);
  std::stop_source source_;
  std::jthread watcher_;
};

}  // namespace convolume::tools
