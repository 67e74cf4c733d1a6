#include "tools/plan_energy_hierarchy.hpp"

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "convolume/error.hpp"

namespace convolume::tools {
namespace {

/// Keys with more dots than fit into such a file could be nested too deeply for the parser.
constexpr std::streamsize most_bytes = 16384;

[[noreturn]] void refuse(const std::string& file, const std::string& field, const std::string& why) {
  throw FormatError(fmt::format("{}: {}: {}", file, field, why));
}

std::string read_text(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(most_bytes + 1, '\0');
  stream.read(text.data(), most_bytes + 1);
  if (!stream.is_open() || stream.bad() || (stream.fail() && stream.gcount() == 0)) {
    throw IoError(fmt::format("{}: cannot be read; check that the file exists and is not empty", file));
  }
  if (stream.gcount() > most_bytes) {
    throw FormatError(fmt::format("{}: has more than {} bytes; a hierarchy has a few levels", file, most_bytes));
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

template <class T>
T read(const toml::table& level, const std::string& file, const std::string& where, const char* key, T missing) {
  if (!level.contains(key)) return missing;
  const auto value = level[key].value<T>();
  if (!value) refuse(file, where + key, "has another type; see docs/planning.md");
  return *value;
}

plan::MemoryLevel read_level(const toml::table& level, const std::string& file, const std::string& where, bool last) {
  for (const auto& [key, node] : level) {
    const std::string_view name = key.str();
    if (name != "name" && name != "bytes" && name != "pj_per_word" && name != "shared" && name != "operands") {
      refuse(file, where + std::string(name), "is no field; valid are name, bytes, pj_per_word, shared, operands");
    }
  }
  plan::MemoryLevel memory{.name = read<std::string>(level, file, where, "name", "")};
  if (!last && !level.contains("bytes")) {
    refuse(file, where + "bytes", "is missing; only the last level, the DRAM, has no size");
  }
  memory.bytes = read<double>(level, file, where, "bytes", 0);
  if (level.contains("pj_per_word")) memory.pj_per_word = read<double>(level, file, where, "pj_per_word", 0);
  memory.shared = read<bool>(level, file, where, "shared", false);
  memory.operands = read<std::string>(level, file, where, "operands", "xwy");
  return memory;
}

}  // namespace

plan::Hierarchy read_hierarchy(const std::string& file) {
  toml::table root;
  try {
    root = toml::parse(read_text(file));
  } catch (const toml::parse_error& error) {
    throw FormatError(fmt::format("{}: line {}: {}", file, error.source().begin.line, error.description()));
  }
  for (const auto& [key, node] : root) {
    if (key.str() != "level") refuse(file, std::string(key.str()), "is no field; write [[level]] tables");
  }
  const toml::array* levels = root["level"].as_array();
  if (levels == nullptr || levels->empty()) refuse(file, "level", "is missing; write [[level]] for each memory");
  plan::Hierarchy hierarchy{.name = file};
  for (std::size_t i = 0; i < levels->size(); ++i) {
    const toml::table* level = (*levels)[i].as_table();
    const std::string where = fmt::format("level {}: ", i);
    if (level == nullptr) refuse(file, fmt::format("level {}", i), "is no table; write [[level]] for each memory");
    hierarchy.levels.push_back(read_level(*level, file, where, i + 1 == levels->size()));
  }
  plan::validate(hierarchy);
  return hierarchy;
}

}  // namespace convolume::tools
