// Memories for several layers: paper 000, section 3.6.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "models/blocking_search.hpp"
#include "models/search_options.hpp"

namespace convolume::plan {
namespace {

constexpr std::size_t designs_per_layer = 10;  // as in the paper
constexpr std::size_t designs_searched = 8;    // the others are compared by the nests that are known already
constexpr std::array memory_names{"IB", "KB", "OB"};
constexpr std::array operand_letters{"x", "w", "y"};

/// Bytes of the memories of x, w and y, rising.
using Design = std::array<std::vector<double>, 3>;

double bytes_of(const Design& design) {
  double sum = 0;
  for (const std::vector<double>& memories : design) {
    for (const double bytes : memories) sum += bytes;
  }
  return sum;
}

Hierarchy hierarchy_of(const Design& design) {
  Hierarchy hierarchy{.name = "designed"};
  for (std::size_t o = 0; o < operands.size(); ++o) {
    for (std::size_t i = 0; i < design[o].size(); ++i) {
      hierarchy.levels.push_back(
          {.name = fmt::format("{}{}", memory_names[o], i), .bytes = design[o][i], .operands = operand_letters[o]});
    }
  }
  hierarchy.levels.push_back({.name = "DRAM"});
  return hierarchy;
}

Design design_of(const EnergyReport& report) {
  Design design;
  for (const MemoryUse& memory : report.memories) {
    if (memory.bytes == 0) continue;
    for (std::size_t o = 0; o < operands.size(); ++o) {
      if (memory.held[o] == 0) continue;
      if (design[o].empty() || memory.bytes > design[o].back()) design[o].push_back(memory.bytes);
    }
  }
  return design;
}

/// Returns the design whose memories hold those of both, level by level.
Design merged(const Design& a, const Design& b) {
  Design both = a;
  for (std::size_t o = 0; o < operands.size(); ++o) {
    both[o].resize(std::max(a[o].size(), b[o].size()));
    for (std::size_t i = 0; i < b[o].size(); ++i) both[o][i] = std::max(both[o][i], b[o][i]);
    std::sort(both[o].begin(), both[o].end());
    both[o].erase(std::unique(both[o].begin(), both[o].end()), both[o].end());
  }
  return both;
}

class SystemSearch {
 public:
  SystemSearch(const std::vector<EnergyLayer>& layers, const EnergyOptions& options, const SearchOptions& search)
      : layers_(layers), options_(options), search_(search), known_(layers.size()) {}

  SystemResult run() {
    std::vector<std::vector<Design>> of_layer(layers_.size());
    for (std::size_t i = 0; i < layers_.size(); ++i) of_layer[i] = explore(i);
    std::vector<Design> designs = candidates(of_layer);
    std::vector<std::pair<double, std::size_t>> ranked;
    for (std::size_t i = 0; i < designs.size(); ++i) ranked.emplace_back(known_energy(designs[i]), i);
    std::stable_sort(ranked.begin(), ranked.end());
    ranked.resize(std::min(ranked.size(), designs_searched));
    for (const auto& [pj, i] : ranked) result_.best.push_back(searched(designs[i]));
    std::stable_sort(result_.best.begin(), result_.best.end(),
                     [](const SystemDesign& a, const SystemDesign& b) { return a.total_pj < b.total_pj; });
    result_.best.resize(std::min(result_.best.size(), static_cast<std::size_t>(search_.top)));
    return std::move(result_);
  }

 private:
  /// Returns the memories of the best nests of a layer.
  std::vector<Design> explore(std::size_t layer) {
    const EnergyModel model(layers_[layer], named_hierarchy("free"), options_);
    known_[layer] = iterative_nests(model, search_, &result_.tried);
    std::vector<Design> designs;
    for (const BlockLoops& loops : known_[layer]) {
      const EnergyReport report = model.report(loops);
      if (result_.alone.size() == layer) result_.alone.push_back(report);
      const Design design = design_of(report);
      if (bytes_of(design) > options_.limit_bytes) continue;
      if (std::find(designs.begin(), designs.end(), design) == designs.end()) designs.push_back(design);
      if (designs.size() == designs_per_layer) break;
    }
    return designs;
  }

  std::vector<Design> candidates(const std::vector<std::vector<Design>>& of_layer) const {
    std::vector<Design> all;
    const auto add = [&](const Design& design) {
      const bool fits = bytes_of(design) <= options_.limit_bytes;
      if (fits && std::find(all.begin(), all.end(), design) == all.end()) all.push_back(design);
    };
    for (const auto& designs : of_layer) {
      for (const Design& design : designs) add(design);
    }
    const std::size_t own = all.size();
    for (std::size_t i = 0; i < own; ++i) {
      for (std::size_t j = 0; j < i; ++j) add(merged(all[i], all[j]));
    }
    return all;
  }

  double known_energy(const Design& design) {
    double sum = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      EnergyOptions options = options_;
      options.limit_bytes = 0;
      const EnergyModel model(layers_[i], hierarchy_of(design), options);
      double least = std::numeric_limits<double>::infinity();
      for (const BlockLoops& loops : known_[i]) {
        least = std::min(least, model.memory_pj(loops));
        ++result_.tried;
      }
      sum += least;
    }
    return sum;
  }

  SystemDesign searched(const Design& design) {
    SystemDesign system{.hierarchy = hierarchy_of(design), .sram_bytes = bytes_of(design)};
    system.area_mm2 = chip_area_mm2(system.sram_bytes);
    EnergyOptions options = options_;
    options.limit_bytes = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const EnergyModel model(layers_[i], system.hierarchy, options);
      std::vector<BlockLoops> nests = iterative_nests(model, search_, &result_.tried);
      nests.insert(nests.end(), known_[i].begin(), known_[i].end());
      const auto best = std::min_element(nests.begin(), nests.end(), [&](const BlockLoops& a, const BlockLoops& b) {
        return model.memory_pj(a) < model.memory_pj(b);
      });
      system.layers.push_back(model.report(*best));
      system.total_pj += system.layers.back().total_pj();
    }
    return system;
  }

  const std::vector<EnergyLayer>& layers_;
  EnergyOptions options_;
  SearchOptions search_;
  std::vector<std::vector<BlockLoops>> known_;
  SystemResult result_;
};

}  // namespace

SystemResult design_system(const std::vector<EnergyLayer>& layers, const EnergyOptions& options,
                           const SearchOptions& search) {
  check(search);
  if (layers.empty()) throw InvalidArgument("a system without layers has nothing to compute; name at least one layer");
  if (!(options.limit_bytes > 0)) {
    throw InvalidArgument("a system needs a limit of bytes for all memories together; set one, for example 1M");
  }
  return SystemSearch(layers, options, search).run();
}

}  // namespace convolume::plan
