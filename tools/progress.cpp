#include "tools/progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/scores.hpp"
#include <fmt/format.h>
#include <unistd.h>

namespace convolume::tools {
namespace {

constexpr int bar_width = 24;

std::string bar(double share) {
  const auto filled = static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * bar_width));
  return fmt::format("[{}{}] ", std::string(filled, '#'), std::string(bar_width - filled, '.'));
}

std::string rate_text(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.2f} Mvoxel/s", per_second / 1e6);
  if (per_second >= 1e3) return fmt::format("{:.0f} kvoxel/s", per_second / 1e3);
  return fmt::format("{:.0f} voxel/s", per_second);
}

}  // namespace

std::string clock_text(double seconds) {
  const auto s = static_cast<long long>(std::lround(std::max(0.0, seconds)));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

ProgressDisplay::ProgressDisplay(bool quiet) : quiet_(quiet), terminal_(::isatty(STDOUT_FILENO) == 1) {}

bool ProgressDisplay::due(bool important) {
  const auto now = std::chrono::steady_clock::now();
  const auto interval = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
  if (!important && now - last_ < interval) return false;
  last_ = now;
  return true;
}

void ProgressDisplay::print(const std::string& line, bool important) {
  if (terminal_ && !important) {
    fmt::print("\r\033[K{}", line);
    open_ = true;
  } else {
    fmt::print("{}{}\n", open_ ? "\r\033[K" : "", line);
    open_ = false;
  }
  std::fflush(stdout);
}

void ProgressDisplay::show(const nets::TrainProgress& p) {
  if (quiet_ || !due(p.validation.has_value())) return;
  const double share = static_cast<double>(p.iteration) / static_cast<double>(p.total);
  const std::string line =
      fmt::format("{}{} / {}  loss {:.4f}  {}  {} left", terminal_ ? bar(share) : "iteration ", p.iteration, p.total,
                  p.loss, rate_text(p.voxels_per_second), clock_text(p.seconds_left));
  if (p.validation) {
    print(fmt::format("iteration {}  loss {:.4f}  validation: {}", p.iteration, p.loss, score_line(*p.validation)),
          true);
  } else {
    print(line, false);
  }
}

void ProgressDisplay::show_share(const std::string& what, double share) {
  // The last step is always shown, so that a finished run does not leave a bar at 98 %.
  if (quiet_ || !due(share >= 1)) return;
  print(fmt::format("{}{} {:.0f} %", terminal_ ? bar(share) : "", what, 100 * share), false);
}

void ProgressDisplay::show_tuning(const std::string& layer, double seconds) {
  constexpr double worth_a_line = 2.5;
  if (quiet_ || seconds < worth_a_line) return;
  print(fmt::format("tuning layer {}: up to {:.0f} s", layer, seconds), true);
}

void ProgressDisplay::finish() {
  if (open_) fmt::print("\n");
  open_ = false;
  std::fflush(stdout);
}

}  // namespace convolume::tools
