#include "bench/common/progress_bar.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

namespace convolume::bench {
namespace {

constexpr int width = 24;

std::string time_left(double share, double elapsed) {
  if (share < 0.01) return "";
  const auto seconds = static_cast<long long>(std::lround(elapsed / share - elapsed));
  return fmt::format("  {}:{:02} left", seconds / 60, seconds % 60);
}

}  // namespace

ProgressBar::ProgressBar() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressBar::show(double share, const std::string& what) {
  if (!terminal_) return;
  share = std::clamp(share, 0.0, 1.0);
  const auto filled = static_cast<std::size_t>(std::lround(share * width));
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  fmt::print(stderr, "\r\033[K[{}{}] {:3.0f} %  {}{}", std::string(filled, '#'), std::string(width - filled, '.'),
             100 * share, what, time_left(share, elapsed));
  std::fflush(stderr);
  open_ = true;
}

void ProgressBar::clear() {
  if (open_) std::fputs("\r\033[K", stderr);
  open_ = false;
}

}  // namespace convolume::bench
