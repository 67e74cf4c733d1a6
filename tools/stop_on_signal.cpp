#include "tools/stop_on_signal.hpp"

#include <atomic>
#include <chrono>
#include <csignal>

namespace convolume::tools {
namespace {

std::atomic<bool> signalled{false};

/// Notes the first signal; a second one ends the process at once.
void on_signal(int number) {
  signalled.store(true);
  std::signal(number, SIG_DFL);
}

}  // namespace

StopOnSignal::StopOnSignal() : watcher_([this](const std::stop_token& done) { watch(done); }) {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

void StopOnSignal::watch(const std::stop_token& done) {
  while (!done.stop_requested()) {
    if (signalled.load()) source_.request_stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace convolume::tools
