// JSON as text. The parser and the writer of nlohmann-json take seconds to compile, so they are compiled here once and
// for all files. Trees are nlohmann::json, which sorts keys, or nlohmann::ordered_json where people read the text.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace convolume {

/// Parses a text. Throws FormatError with the place of the error. It also throws if values are nested more than
/// `most_depth` deep, because functions that visit them would need a large stack, and if an object has a key twice.
nlohmann::json parse_json(std::string_view text, int most_depth = 64);

/// Returns one line, or indented lines if `indent` is 0 or more. Throws FormatError if a text in the tree is not valid
/// UTF-8.
std::string to_text(const nlohmann::json& tree, int indent = -1);
std::string to_text(const nlohmann::ordered_json& tree, int indent = -1);

/// Returns whether a text is valid UTF-8, so that to_text() accepts it.
bool is_utf8(const std::string& text);

}  // namespace convolume
