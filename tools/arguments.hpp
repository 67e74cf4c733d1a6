// Values that several subcommands take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::tools {

/// Returns the extent of "8,128,128" (z,y,x) or of one number for all axes; nothing if there are no values. Throws
/// InvalidArgument that names the option.
std::optional<Extent3> extent_of(const std::vector<std::int64_t>& values, const char* option);

/// Returns the numbers of the texts. Throws InvalidArgument that names the option.
std::vector<std::int64_t> numbers_of(const std::vector<std::string>& texts, const char* option);

/// Returns the bytes of "512M": K, M and G are powers of 1024. Throws InvalidArgument that names the option.
std::size_t bytes_of(const std::string& text, const char* option = "--memory");

}  // namespace convolume::tools
