#include "tools/machine.hpp"

#include <algorithm>

#include "tools/info.hpp"
#include "tools/text_file.hpp"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "convolume/convolume.hpp"

namespace convolume::tools {

std::string machine_table() {
  std::string text = machine_text();
  text += fmt::format("\n{:<24}{:>10}  {:<18}{:<11}{}\n", "value", "", "unit", "origin", "source");
  for (const MachineValue& value : machine_values()) {
    text += fmt::format("{:<24}{:>10.4g}  {:<18}{:<11}{}\n", value.name, value.value, value.unit, value.origin,
                        value.source);
  }
  return text + fmt::format("\nrows            {}\n", fmt::join(machine_rows(), ", "));
}

std::string machine_json() {
  const MachineModel& model = machine_model();
  nlohmann::ordered_json values = nlohmann::ordered_json::array();
  for (const MachineValue& value : machine_values()) {
    values.push_back({{"name", value.name},
                      {"value", value.value},
                      {"unit", value.unit},
                      {"origin", value.origin},
                      {"source", value.source}});
  }
  const nlohmann::ordered_json all{{"processor", cpu_name()},
                                   {"usable_processors", available_cpus()},
                                   {"default_threads", default_threads()},
                                   {"simd", simd_target()},
                                   {"built_for", compiled_simd_targets()},
                                   {"row", model.row},
                                   {"reason", machine_reason()},
                                   {"cores", model.cores},
                                   {"l3_cores", model.l3_cores},
                                   {"l1_bytes", model.l1_bytes},
                                   {"l2_bytes", model.l2_bytes},
                                   {"l3_bytes", model.l3_bytes},
                                   {"usable_l2_bytes", model.usable_l2_bytes},
                                   {"usable_l3_bytes", model.usable_l3_bytes},
                                   {"gflops_per_core", model.gflops_per_core},
                                   {"values", values},
                                   {"rows", machine_rows()}};
  return all.dump(2) + "\n";
}

std::string save_machine(const std::string& file, int threads, ProgressDisplay& display) {
  const std::vector<std::string> built_in = machine_rows();
  const std::filesystem::path target(file);
  const std::string name = target.stem().string();
  if (name.empty() || std::find(built_in.begin(), built_in.end(), name) != built_in.end()) {
    throw InvalidArgument(
        fmt::format("--save {}: the name of the file becomes the name of the row, and must neither be empty "
                    "nor that of a built-in row",
                    file));
  }
  require_writable(file);  // a folder that is missing ends the command here, not after a minute
  const std::string row = machine_model().row;
  const auto before = machine_values();
  const std::string measured = measure_machine(
      {.name = name, .threads = threads, .on_progress = [&](double share) { display.show_share("measuring", share); }});
  display.finish();
  write_text(file, measured);
  select_machine(std::filesystem::absolute(target).string());
  std::string text = fmt::format("{:<24}{:>12}{:>12}  {:<18}{}\n", "value", "measured", "in use", "unit", "ratio");
  for (const MachineValue& value : machine_values()) {
    const auto old =
        std::find_if(before.begin(), before.end(), [&](const auto& other) { return other.name == value.name; });
    if (old == before.end() || value.origin != "measured") continue;
    text += fmt::format("{:<24}{:>12.4g}{:>12.4g}  {:<18}{:.2f}\n", value.name, value.value, old->value, value.unit,
                        value.value / old->value);
  }
  return text + fmt::format("\nThe row in use is {}. The measured row is in {}; use it with CONVOLUME_MACHINE={}\n",
                            row, file, file);
}

}  // namespace convolume::tools
