#include "tools/toml_file.hpp"

#include <fstream>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::tools {
namespace {

/// Keys with more dots than fit into such a file could be nested too deeply for the parser.
constexpr std::streamsize most_toml_bytes = 16384;

std::string read_small_text(const std::string& file, const char* what) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(most_toml_bytes + 1, '\0');
  stream.read(text.data(), most_toml_bytes + 1);
  if (!stream.is_open() || stream.bad() || (stream.fail() && stream.gcount() == 0)) {
    throw IoError(fmt::format("{}: cannot be read; check that the file exists and is not empty", file));
  }
  if (stream.gcount() > most_toml_bytes) {
    throw FormatError(fmt::format("{}: has more than {} bytes; {} takes less", file, most_toml_bytes, what));
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

}  // namespace

toml::table read_small_toml(const std::string& file, const char* what) {
  try {
    return toml::parse(read_small_text(file, what));
  } catch (const toml::parse_error& error) {
    throw FormatError(fmt::format("{}: line {}: {}", file, error.source().begin.line, error.description()));
  }
}

void refuse_field(const std::string& file, const std::string& field, const std::string& why) {
  throw FormatError(fmt::format("{}: {}: {}", file, field, why));
}

}  // namespace convolume::tools
