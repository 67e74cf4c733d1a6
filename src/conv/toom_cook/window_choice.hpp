// The parts of a choice that are windows: "1x4x4" gives the results of a window along each axis.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "conv/choice.hpp"

namespace convolume::conv {

/// The results of a window. All directions have the same.
class WindowParts final : public ChoiceParts {
 public:
  explicit WindowParts(const Extent3& results) : results_(results) {}

  const Extent3& results() const { return results_; }
  std::string text() const override;
  bool separate() const override { return false; }
  SharedParts with(plan::Direction direction, const ChoiceParts& other) const override;

 private:
  Extent3 results_;
};

/// How messages show the text of these parts.
inline constexpr const char* window_form = "\"toom_cook 4x4x4\", \"toom_cook 1x4x4\" or \"toom_cook 4x1x1\"";
/// Reads the word that text() returns. Throws InvalidArgument that says what is wrong.
SharedParts parse_window_parts(std::span<const std::string> words);
/// Returns why a supported problem does not have these windows, or an empty string.
std::string reason_against_windows(const ConvProblem& problem, const WindowParts& parts);
/// Returns the only parts that a supported problem has. See Implementation::propose().
std::vector<SharedParts> propose_windows(const ConvProblem& problem, const ConvOptions& options, std::size_t most);

}  // namespace convolume::conv
