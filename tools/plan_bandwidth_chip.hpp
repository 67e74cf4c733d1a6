// Descriptions of chips in files.
#pragma once

#include <string>

#include "convolume/bandwidth.hpp"

namespace convolume::tools {

/// Reads a chip as docs/sw26010.toml describes one. Its name is that of the file. Throws IoError if the file cannot be
/// read, and FormatError that names the file, the field, its value and the remedy.
plan::Chip read_chip(const std::string& file);

}  // namespace convolume::tools
