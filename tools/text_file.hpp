// Text files that the command writes.
#pragma once

#include <string>

namespace convolume::tools {

/// Throws IoError if the file cannot be written. A file that exists stays as it is.
void require_writable(const std::string& file);

/// Writes the whole file, or throws IoError and leaves nothing behind.
void write_text(const std::string& file, const std::string& text);

}  // namespace convolume::tools
