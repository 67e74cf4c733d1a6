#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include <fmt/format.h>

#include "convolume/conv_problem.hpp"
#include "core/checked.hpp"

namespace convolume {
namespace {

constexpr std::array axes{'d', 'h', 'w'};
constexpr index_t most_number = index_t{1} << 47;

using Tokens = std::map<std::string, index_t, std::less<>>;

bool known(std::string_view name) {
  if (name == "mb" || name == "g" || name == "ic" || name == "oc") return true;
  if (name.size() != 2) return false;
  return std::string_view("iokspd").find(name[0]) != std::string_view::npos &&
         std::string_view("dhw").find(name[1]) != std::string_view::npos;
}

Tokens tokenize(std::string_view text) {
  Tokens tokens;
  std::size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '_' || text[at] == ' ') {
      ++at;
      continue;
    }
    if (text[at] == 'n' && at + 1 < text.size() && text[at + 1] == '"') break;  // n"a name" ends a descriptor
    std::size_t end = at;
    while (end < text.size() && text[end] >= 'a' && text[end] <= 'z') ++end;
    const std::string name(text.substr(at, end - at));
    index_t value = 0;
    const auto result = std::from_chars(text.data() + end, text.data() + text.size(), value);
    if (name.empty() || !known(name) || result.ec != std::errc()) {
      throw InvalidArgument(
          fmt::format("problem '{}': '{}' at position {} is not a token of the benchdnn grammar (mb g ic "
                      "oc, and i o k s p d each with d h w, each followed by a number)",
                      text, text.substr(at, 8), at));
    }
    // No tensor is so long. A longer stride takes no step, as one that is as long as the input.
    if (name[0] == 's') value = std::min(value, most_number);
    if (value > most_number || value < -most_number) {
      throw InvalidArgument(fmt::format("problem '{}': '{}' is {}; use at most {}", text, name, value, most_number));
    }
    if (!tokens.emplace(name, value).second) {
      throw InvalidArgument(fmt::format("problem '{}': '{}' is given twice; give it once", text, name));
    }
    at = static_cast<std::size_t>(result.ptr - text.data());
  }
  return tokens;
}

/// Returns the values of a family along (d, h, w). A missing axis repeats the axis before it. Leading missing axes are
/// `absent`, as in a 2-D problem.
Extent3 family(const Tokens& tokens, char prefix, index_t absent) {
  Extent3 result = Extent3::all(absent);
  for (int axis = 0; axis < 3; ++axis) {
    const auto found = tokens.find(std::string{prefix, axes[static_cast<std::size_t>(axis)]});
    if (found != tokens.end()) {
      result[axis] = found->second;
    } else if (axis > 0) {
      const auto before = tokens.find(std::string{prefix, axes[static_cast<std::size_t>(axis - 1)]});
      const bool repeats = before != tokens.end() || (axis == 2 && tokens.contains(std::string{prefix, 'd'}));
      if (repeats) result[axis] = result[axis - 1];
    }
  }
  return result;
}

index_t value_or(const Tokens& tokens, const char* name, index_t fallback) {
  const auto found = tokens.find(name);
  return found == tokens.end() ? fallback : found->second;
}

bool has_family(const Tokens& tokens, char prefix) {
  for (const char axis : axes) {
    if (tokens.contains(std::string{prefix, axis})) return true;
  }
  return false;
}

bool has_axis(const Tokens& tokens, int axis) {
  for (const char prefix : {'i', 'o', 'k', 's', 'p', 'd'}) {
    if (tokens.contains(std::string{prefix, axes[static_cast<std::size_t>(axis)]})) return true;
  }
  return false;
}

/// Returns the given extents of the output. An axis without any token repeats the axis before it. 0 stands for an axis
/// that has some token, but no output: its output follows from its input, with equal padding on both sides.
Extent3 given_outputs(const Tokens& tokens) {
  Extent3 out = Extent3::all(0);
  for (int axis = 0; axis < 3; ++axis) {
    const auto found = tokens.find(std::string{'o', axes[static_cast<std::size_t>(axis)]});
    if (found != tokens.end()) {
      out[axis] = found->second;
    } else if (axis > 0 && !has_axis(tokens, axis)) {
      out[axis] = out[axis - 1];
    }
  }
  return out;
}

}  // namespace

ConvProblem parse_problem(std::string_view text) {
  const Tokens tokens = tokenize(text);
  for (const char* needed : {"ic", "oc"}) {
    if (!tokens.contains(needed)) throw InvalidArgument(fmt::format("problem '{}': '{}' is missing", text, needed));
  }
  for (const char needed : {'i', 'k'}) {
    if (!has_family(tokens, needed)) {
      throw InvalidArgument(
          fmt::format("problem '{}': '{}d', '{}h' or '{}w' is missing", text, needed, needed, needed));
    }
  }
  ConvProblem p;
  p.batch = value_or(tokens, "mb", 1);
  p.groups = value_or(tokens, "g", 1);
  p.in_channels = value_or(tokens, "ic", 1);
  p.out_channels = value_or(tokens, "oc", 1);
  p.input = family(tokens, 'i', 1);
  p.kernel = family(tokens, 'k', 1);
  p.stride = family(tokens, 's', 1);
  p.pad_before = p.pad_after = family(tokens, 'p', 0);
  p.dilation = family(tokens, 'd', 0) + Extent3::all(1);
  if (has_family(tokens, 'o')) {
    const Extent3 out = given_outputs(tokens);
    // The rest of the output's reach is padding after the input. It is negative if the last input voxels are not read.
    for (int axis = 0; axis < 3; ++axis) {
      if (out[axis] == 0 && !tokens.contains(std::string{'o', axes[static_cast<std::size_t>(axis)]})) continue;
      const std::string what = fmt::format("problem '{}': the reach of the output", text);
      const index_t span = checked_add(checked_mul(p.kernel[axis] - 1, p.dilation[axis], what), 1, what);
      const index_t last = checked_mul(out[axis] - 1, p.stride[axis], what);
      const index_t behind = checked_add(last, span, what) - p.input[axis] - p.pad_before[axis];
      if (behind <= -p.stride[axis]) {
        throw InvalidArgument(
            fmt::format("problem '{}': output {} along axis {} is smaller than input, kernel and stride give", text,
                        out[axis], axes[static_cast<std::size_t>(axis)]));
      }
      p.pad_after[axis] = std::max<index_t>(0, behind);
    }
  }
  p.validate();
  return p;
}

std::string to_string(const ConvProblem& p) {
  const auto family_text = [](const char* prefix, const Extent3& e) {
    return fmt::format("{0}d{1}{0}h{2}{0}w{3}", prefix, e.z, e.y, e.x);
  };
  std::string text = fmt::format("mb{}", p.batch);
  if (p.groups != 1) text += fmt::format("g{}", p.groups);
  text += fmt::format("ic{}{}oc{}{}{}", p.in_channels, family_text("i", p.input), p.out_channels,
                      family_text("o", p.output()), family_text("k", p.kernel));
  if (p.stride != Extent3::all(1)) text += family_text("s", p.stride);
  if (p.pad_before != Extent3::all(0)) text += family_text("p", p.pad_before);
  if (p.dilation != Extent3::all(1)) text += family_text("d", p.dilation - Extent3::all(1));
  return text;
}

}  // namespace convolume
