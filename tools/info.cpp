#include "tools/info.hpp"

#include "tools/nest_levels.hpp"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "convolume/cpu.hpp"
#include "convolume/machine.hpp"
#include "convolume/nets.hpp"

namespace convolume::tools {

std::string machine_text() {
  const MachineModel& m = machine_model();
  std::string text = fmt::format("processor       {}, {} usable, {} threads by default\n", cpu_name(), available_cpus(),
                                 default_threads());
  text += fmt::format("SIMD target     {} (available: {}; CONVOLUME_SIMD selects one; built for {})\n", simd_target(),
                      fmt::join(available_simd_targets(), ", "), fmt::join(compiled_simd_targets(), ", "));
  text += fmt::format(
      "machine model   {} ({}): {} cores, {} of them share an L3; {:.4g} GFLOP/s per core; L1 {} KiB, L2 {} KiB, L3 {} "
      "MiB ({} KiB and {} MiB of them usable); {:.4g} GB/s from L2, {:.4g} "
      "from L3, {:.4g} from memory, {:.4g} by all cores together\n",
      m.row, machine_reason(), m.cores, m.l3_cores, m.gflops_per_core, m.l1_bytes >> 10, m.l2_bytes >> 10,
      m.l3_bytes >> 20, m.usable_l2_bytes >> 10, m.usable_l3_bytes >> 20, m.l2_gb_per_s, m.l3_gb_per_s, m.dram_gb_per_s,
      m.dram_gb_per_s_of_all);
  std::string libraries = nets::library_versions();
  for (std::size_t at = libraries.find('\n'); at != std::string::npos; at = libraries.find('\n', at)) {
    libraries.replace(at, 1, ", ");
  }
  return text + "libraries       " + libraries + "\n";
}

std::string blocking_table(const std::vector<nets::LayerBlocking>& layers) {
  std::string text = fmt::format("{:<20} {:<10} {:<6} {:>10} {:>10} {:>10} {:>10}  {:<12} {}\n", "layer", "engine",
                                 "dir", "ms", "MB of L2", "of L3", "of memory", "bound", "busiest level");
  for (const nets::LayerBlocking& layer : layers) {
    if (!layer.unsupported.empty()) {
      text += fmt::format("{:<20} {:<10} {}\n", layer.layer, name_of(layer.engine), layer.unsupported);
      continue;
    }
    const plan::NestCost& cost = layer.cost;
    const std::size_t level = cost.slowest_level();
    text += fmt::format(
        "{:<20} {:<10} {:<6} {:>10.3f} {:>10.2f} {:>10.2f} {:>10.2f}  {:<12} {}: needs {:.3g} of {:.3g} GB/s\n",
        layer.layer, name_of(layer.engine), name_of(layer.direction), 1e3 * cost.seconds(), 1e-6 * cost.bytes[0],
        1e-6 * cost.bytes[1], 1e-6 * cost.bytes[2], bound_of(cost), nest_level_names[level],
        1e-9 * cost.needed_bandwidth(level), nest_level_gb_per_s()[level]);
  }
  return text + "\nAll columns but the second are of the engine direct on one core.\n";
}

std::string blocking_json(const std::vector<nets::LayerBlocking>& layers) {
  nlohmann::ordered_json all{{"machine", machine_model().row}, {"layers", nlohmann::ordered_json::array()}};
  for (const nets::LayerBlocking& layer : layers) {
    if (!layer.unsupported.empty()) {
      all["layers"].push_back(
          {{"layer", layer.layer}, {"engine", name_of(layer.engine)}, {"unsupported", layer.unsupported}});
      continue;
    }
    const plan::NestCost& cost = layer.cost;
    nlohmann::ordered_json levels = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < nest_level_names.size(); ++i) {
      levels.push_back({{"from", nest_level_names[i]},
                        {"bytes", cost.bytes[i]},
                        {"needs_gb_per_s", 1e-9 * cost.needed_bandwidth(i)},
                        {"has_gb_per_s", nest_level_gb_per_s()[i]}});
    }
    all["layers"].push_back({{"layer", layer.layer},
                             {"engine", name_of(layer.engine)},
                             {"dir", name_of(layer.direction)},
                             {"nest", to_string(layer.nest)},
                             {"direct_s", cost.seconds()},
                             {"compute_s", cost.compute_seconds + cost.tile_seconds},
                             {"bound", bound_of(cost)},
                             {"levels", levels}});
  }
  return all.dump(2) + "\n";
}

}  // namespace convolume::tools
