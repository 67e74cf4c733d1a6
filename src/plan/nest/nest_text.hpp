// A word of a text that describes loops, for errors that point to it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace convolume::plan {

inline constexpr std::size_t most_loops = 64;

struct Word {
  const char* what;  ///< "nest" or "blocking string"
  std::string_view text, token;
  std::size_t position;  ///< of the token in the text

  /// Throws InvalidArgument: the text, the token and its position, why it is invalid, and what is valid.
  [[noreturn]] void refuse(const std::string& why, const std::string& valid) const;
};

}  // namespace convolume::plan
