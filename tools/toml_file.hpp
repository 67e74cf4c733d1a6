// Small TOML files that describe a machine.
#pragma once

#include <string>

#include <toml++/toml.h>

namespace convolume::tools {

/// Reads a TOML file of at most 16 KiB; `what` says in messages what it describes, for example "a hierarchy". Throws
/// IoError if the file cannot be read or is empty, FormatError that names the file and the line if it is no TOML.
toml::table read_small_toml(const std::string& file, const char* what);

/// Throws FormatError "FILE: FIELD: WHY".
[[noreturn]] void refuse_field(const std::string& file, const std::string& field, const std::string& why);

}  // namespace convolume::tools
