#include "models/hierarchy.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "plan/nest/index_of.hpp"

namespace convolume::plan {
namespace {

Hierarchy diannao() {
  return {.name = "diannao",
          .levels = {{.name = "IB", .bytes = 2048, .operands = "x"},
                     {.name = "KB", .bytes = 32768, .operands = "w"},
                     {.name = "OB", .bytes = 2048, .operands = "y"},
                     {.name = "DRAM"}}};
}

Hierarchy x86() {
  return {.name = "x86",
          .levels = {{.name = "L1", .bytes = 32768},
                     {.name = "L2", .bytes = 262144},
                     {.name = "L3", .bytes = 12 << 20, .shared = true},
                     {.name = "DRAM"}}};
}

[[noreturn]] void refuse(const Hierarchy& hierarchy, std::size_t level, const char* field, const std::string& why) {
  throw InvalidArgument(fmt::format("hierarchy '{}': level {} ('{}'): {}: {}", hierarchy.name, level,
                                    hierarchy.levels[level].name, field, why));
}

void check_level(const Hierarchy& hierarchy, std::size_t i) {
  const std::vector<MemoryLevel>& levels = hierarchy.levels;
  const MemoryLevel& level = levels[i];
  const bool last = i + 1 == levels.size();
  if (level.name.empty()) refuse(hierarchy, i, "name", "is missing; each level has a name of its own");
  const auto same = std::count_if(levels.begin(), levels.end(), [&](const auto& l) { return l.name == level.name; });
  if (same > 1) refuse(hierarchy, i, "name", "is used twice; each level has a name of its own");
  if (last && level.bytes != 0) {
    refuse(hierarchy, i, "bytes", fmt::format("is {}; the last level is the DRAM, which has no size", level.bytes));
  }
  if (!last && !(level.bytes > 0 && std::isfinite(level.bytes))) {
    refuse(hierarchy, i, "bytes",
           fmt::format("is {}; write a positive size (only the last level, the DRAM, has none)", level.bytes));
  }
  if (level.pj_per_word && !(*level.pj_per_word > 0 && std::isfinite(*level.pj_per_word))) {
    refuse(hierarchy, i, "pj_per_word", fmt::format("is {}; write a positive energy", *level.pj_per_word));
  }
  const bool valid = !level.operands.empty() && level.operands.find_first_not_of("xwy") == std::string::npos;
  if (!valid) refuse(hierarchy, i, "operands", fmt::format("is '{}'; write letters of \"xwy\"", level.operands));
}

/// Checks that memories of one operand grow, and cost more, from the inside outwards.
void check_rising(const Hierarchy& hierarchy, Operand operand) {
  const MemoryLevel* before = nullptr;
  for (std::size_t i = 0; i < hierarchy.levels.size(); ++i) {
    const MemoryLevel& level = hierarchy.levels[i];
    if (!serves(level, operand)) continue;
    if (before != nullptr && level.bytes != 0 && level.bytes <= before->bytes) {
      refuse(hierarchy, i, "bytes",
             fmt::format("is {}, not more than {} of '{}' inside of it; sizes rise outwards", level.bytes,
                         before->bytes, before->name));
    }
    if (before != nullptr && level.pj_per_word && before->pj_per_word && *level.pj_per_word < *before->pj_per_word) {
      refuse(hierarchy, i, "pj_per_word",
             fmt::format("is {}, less than {} of '{}' inside of it; energies rise outwards", *level.pj_per_word,
                         *before->pj_per_word, before->name));
    }
    before = &level;
  }
}

/// Packs the buffers of all operands, each operand from the inside outwards.
class Packing {
 public:
  Packing(const BufferChains& chains, const std::array<std::size_t, 3>& first, const Hierarchy& hierarchy)
      : chains_(chains), head_(first), first_(first), levels_(hierarchy.levels) {
    for (const Operand operand : operands) at_[index_of(operand)] = next_level(operand, 0);
  }

  void run(Placement& placement) {
    for (std::optional<Operand> operand = busiest(); operand; operand = busiest()) {
      const std::size_t o = index_of(*operand);
      while (!fits(*operand)) close(at_[o]);
      used_[at_[o]] += growth(*operand);
      placement[o][head_[o]] = at_[o];
      inside_[o] = at_[o];
      ++head_[o];
    }
  }

 private:
  static constexpr std::size_t most_levels = 32;

  std::size_t next_level(Operand operand, std::size_t level) const {
    while (!serves(levels_[level], operand)) ++level;
    return level;
  }

  std::optional<Operand> busiest() const {
    std::optional<Operand> most;
    double reads = -1;
    for (const Operand operand : operands) {
      const std::size_t o = index_of(operand);
      if (head_[o] == chains_[o].count || chains_[o].buffers[head_[o]].reads <= reads) continue;
      reads = chains_[o].buffers[head_[o]].reads;
      most = operand;
    }
    return most;
  }

  /// Returns the bytes that the memory needs more. A buffer whose inner neighbour is there already replaces it.
  double growth(Operand operand) const {
    const std::size_t o = index_of(operand);
    const double words = chains_[o].buffers[head_[o]].words;
    const bool replaces = head_[o] > first_[o] && inside_[o] == at_[o];
    return energy_word_bytes * (replaces ? words - chains_[o].buffers[head_[o] - 1].words : words);
  }

  bool fits(Operand operand) const {
    const std::size_t level = at_[index_of(operand)];
    return level + 1 == levels_.size() || used_[level] + growth(operand) <= levels_[level].bytes;
  }

  void close(std::size_t level) {
    for (const Operand operand : operands) {
      std::size_t& at = at_[index_of(operand)];
      if (at == level) at = next_level(operand, level + 1);
    }
  }

  const BufferChains& chains_;
  std::array<std::size_t, 3> head_, first_, at_{}, inside_{};
  const std::vector<MemoryLevel>& levels_;
  std::array<double, most_levels> used_{};
};

}  // namespace

bool serves(const MemoryLevel& level, Operand operand) {
  constexpr std::array names{'x', 'w', 'y'};
  return level.operands.find(names[index_of(operand)]) != std::string::npos;
}

bool is_separate(const Hierarchy& hierarchy) {
  return std::all_of(hierarchy.levels.begin(), hierarchy.levels.end() - 1,
                     [](const MemoryLevel& level) { return level.operands.size() == 1; });
}

Hierarchy named_hierarchy(std::string_view name) {
  if (name == "free") return {.name = "free", .free = true, .levels = {{.name = "DRAM"}}};
  if (name == "diannao") return diannao();
  if (name == "x86") return x86();
  throw InvalidArgument(
      fmt::format("there is no hierarchy '{}'; valid are free, diannao, x86, or a file FILE.toml", name));
}

void validate(const Hierarchy& hierarchy) {
  if (hierarchy.levels.empty() || hierarchy.levels.size() > 32) {
    throw InvalidArgument(fmt::format("hierarchy '{}' has {} levels; write 1 to 32, the last one for the DRAM",
                                      hierarchy.name, hierarchy.levels.size()));
  }
  for (std::size_t i = 0; i < hierarchy.levels.size(); ++i) check_level(hierarchy, i);
  for (const Operand operand : operands) {
    if (!serves(hierarchy.levels.back(), operand)) {
      refuse(hierarchy, hierarchy.levels.size() - 1, "operands",
             fmt::format("does not hold {}; the DRAM holds all of xwy", name_of(operand)));
    }
    check_rising(hierarchy, operand);
  }
}

void pack(const BufferChains& chains, const std::array<std::size_t, 3>& first, const Hierarchy& hierarchy,
          Placement& placement) {
  Packing(chains, first, hierarchy).run(placement);
}

}  // namespace convolume::plan
