#include "tools/plan_energy_hierarchy.hpp"

#include "tools/toml_file.hpp"
#include <fmt/format.h>

namespace convolume::tools {
namespace {

template <class T>
T read(const toml::table& level, const std::string& file, const std::string& where, const char* key, T missing) {
  if (!level.contains(key)) return missing;
  const auto value = level[key].value<T>();
  if (!value) refuse_field(file, where + key, "has another type; see docs/planning.md");
  return *value;
}

plan::MemoryLevel read_level(const toml::table& level, const std::string& file, const std::string& where, bool last) {
  for (const auto& [key, node] : level) {
    const std::string_view name = key.str();
    if (name != "name" && name != "bytes" && name != "pj_per_word" && name != "shared" && name != "operands") {
      refuse_field(file, where + std::string(name),
                   "is no field; valid are name, bytes, pj_per_word, shared, operands");
    }
  }
  plan::MemoryLevel memory{.name = read<std::string>(level, file, where, "name", "")};
  if (!last && !level.contains("bytes")) {
    refuse_field(file, where + "bytes", "is missing; only the last level, the DRAM, has no size");
  }
  memory.bytes = read<double>(level, file, where, "bytes", 0);
  if (level.contains("pj_per_word")) memory.pj_per_word = read<double>(level, file, where, "pj_per_word", 0);
  memory.shared = read<bool>(level, file, where, "shared", false);
  memory.operands = read<std::string>(level, file, where, "operands", "xwy");
  return memory;
}

}  // namespace

plan::Hierarchy read_hierarchy(const std::string& file) {
  const toml::table root = read_small_toml(file, "a hierarchy");
  for (const auto& [key, node] : root) {
    if (key.str() != "level") refuse_field(file, std::string(key.str()), "is no field; write [[level]] tables");
  }
  const toml::array* levels = root["level"].as_array();
  if (levels == nullptr || levels->empty()) refuse_field(file, "level", "is missing; write [[level]] for each memory");
  plan::Hierarchy hierarchy{.name = file};
  for (std::size_t i = 0; i < levels->size(); ++i) {
    const toml::table* level = (*levels)[i].as_table();
    const std::string where = fmt::format("level {}: ", i);
    if (level == nullptr)
      refuse_field(file, fmt::format("level {}", i), "is no table; write [[level]] for each memory");
    hierarchy.levels.push_back(read_level(*level, file, where, i + 1 == levels->size()));
  }
  plan::validate(hierarchy);
  return hierarchy;
}

}  // namespace convolume::tools
