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
  const auto parts = std::make_shared<WindowParts>(Extent3::all(plan::window_results));
  if (words.size() != 1) throw InvalidArgument("it has to say the results of a window, and nothing else");
  if (words[0] != parts->text()) {
    throw InvalidArgument(fmt::format("windows have {} results, not '{}'", parts->text(), words[0]));
  }
  return parts;
}

std::vector<SharedParts> propose_windows(const ConvProblem&, const ConvOptions&, std::size_t) {
  return {std::make_shared<WindowParts>(Extent3::all(plan::window_results))};
}

}  // namespace convolume::conv
