#include "tools/info.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convolume/cpu.hpp"
#include "convolume/machine.hpp"
#include "convolume/nets.hpp"

namespace convolume::tools {

std::string machine_text() {
  const MachineModel& m = machine_model();
  std::string text = fmt::format("processor       {}, {} usable, {} threads by default\n", cpu_name(), available_cpus(),
                                 default_threads());
  text += fmt::format("SIMD target     {} (available: {}; CONVOLUME_SIMD selects one)\n", simd_target(),
                      fmt::join(available_simd_targets(), ", "));
  text += fmt::format(
      "machine model   {} ({}): {:.4g} GFLOP/s per core; L1 {} KiB, L2 {} KiB, L3 {} MiB; {:.4g} GB/s from L2, {:.4g} "
      "from L3, {:.4g} from memory, {:.4g} by all cores together\n",
      m.row, machine_reason(), m.gflops_per_core, m.l1_bytes >> 10, m.l2_bytes >> 10, m.l3_bytes >> 20, m.l2_gb_per_s,
      m.l3_gb_per_s, m.dram_gb_per_s, m.dram_gb_per_s_of_all);
  std::string libraries = nets::library_versions();
  for (std::size_t at = libraries.find('\n'); at != std::string::npos; at = libraries.find('\n', at)) {
    libraries.replace(at, 1, ", ");
  }
  return text + "libraries       " + libraries + "\n";
}

}  // namespace convolume::tools
