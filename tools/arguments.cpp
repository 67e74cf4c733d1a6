#include "tools/arguments.hpp"

#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::tools {

std::optional<Extent3> extent_of(const std::vector<std::int64_t>& values, const char* option) {
  if (values.empty()) return std::nullopt;
  if (values.size() == 1) return Extent3::all(values[0]);
  if (values.size() == 3) return Extent3{values[0], values[1], values[2]};
  throw InvalidArgument(fmt::format("{}: give one number or three (z,y,x), not {}", option, values.size()));
}

std::vector<std::int64_t> numbers_of(const std::vector<std::string>& texts, const char* option) {
  std::vector<std::int64_t> numbers;
  for (const std::string& text : texts) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
      throw InvalidArgument(fmt::format("{}: '{}' is no number; write e.g. 64 or 16,128,128", option, text));
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::size_t bytes_of(const std::string& text, const char* option) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (digits == 0 || shift < 0 || text.size() > 15) {
    throw InvalidArgument(fmt::format("{} '{}' is no number of bytes; write e.g. 512M or 2G", option, text));
  }
  const auto number = static_cast<std::size_t>(std::stoull(text));
  if (number > std::numeric_limits<std::size_t>::max() >> shift) {
    throw InvalidArgument(fmt::format("{} '{}' is more than 64 bits can address; write e.g. 512M or 2G", option, text));
  }
  return number << shift;
}

}  // namespace convolume::tools
