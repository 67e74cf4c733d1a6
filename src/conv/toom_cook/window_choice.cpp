#include "conv/toom_cook/window_choice.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "plan/toom_cook_cost.hpp"

namespace convolume::conv {

std::string WindowParts::text() const { return fmt::format("{}x{}x{}", results_.z, results_.y, results_.x); }

SharedParts WindowParts::with(plan::Direction, const ChoiceParts& other) const {
  return std::make_shared<WindowParts>(dynamic_cast<const WindowParts&>(other).results_);
}

SharedParts parse_window_parts(std::span<const std::string> words) {
  if (words.size() != 1) throw InvalidArgument("it has to say the results of a window, and nothing else");
  for (const Extent3& kernel : plan::window_kernels) {
    auto parts = std::make_shared<WindowParts>(plan::WindowShape{kernel}.results());
    if (words[0] == parts->text()) return parts;
  }
  throw InvalidArgument(fmt::format("windows have 4x4x4, 1x4x4 or 4x1x1 results, not '{}'", words[0]));
}

std::string reason_against_windows(const ConvProblem& problem, const WindowParts& parts) {
  const WindowParts fitting(plan::WindowShape{problem.kernel}.results());
  if (parts.results() == fitting.results()) return {};
  return fmt::format("windows of {} results do not fit kernel {}; use {}", parts.text(), to_string(problem.kernel),
                     fitting.text());
}

std::vector<SharedParts> propose_windows(const ConvProblem& problem, const ConvOptions&, std::size_t) {
  return {std::make_shared<WindowParts>(plan::WindowShape{problem.kernel}.results())};
}

}  // namespace convolume::conv
