// Descriptions of memory hierarchies in files.
#pragma once

#include <string>

#include "convolume/energy.hpp"

namespace convolume::tools {

/// Reads a hierarchy: [[level]] tables with name, bytes, pj_per_word, shared and operands, the innermost first, the
/// last one without bytes. Throws IoError if the file cannot be read, and FormatError or InvalidArgument that names the
/// file, the level and the field.
plan::Hierarchy read_hierarchy(const std::string& file);

}  // namespace convolume::tools
