// Several cores: paper 000, sections 3.3 and 3.4.
#include <algorithm>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "plan/nest/energy_model.hpp"

namespace convolume::plan {
namespace {

constexpr std::size_t x = 0, w = 1, y = 2;

index_t of(const EnergyLayer& layer, Dim dim) { return layer.space.of(dim); }

void check_split(const EnergyLayer& layer, int cores, CoreSplit split) {
  const index_t units = split == CoreSplit::k ? of(layer, Dim::k) / layer.datapath.k
                                              : of(layer, Dim::z) * of(layer, Dim::y) * of(layer, Dim::x);
  if (cores >= 1 && units % cores == 0) return;
  throw InvalidArgument(fmt::format(
      "{} cores cannot share out {} equally; use a number that divides it", cores,
      split == CoreSplit::k ? fmt::format("{} groups of output channels", units) : fmt::format("{} voxels", units)));
}

/// Returns the outermost memory of an operand, or nothing if the DRAM serves it directly.
const MemoryUse* last_memory(const EnergyReport& report, std::size_t operand) {
  const MemoryUse* last = nullptr;
  for (const MemoryUse& memory : report.memories) {
    if (memory.bytes > 0 && memory.held[operand] > 0) last = &memory;
  }
  return last;
}

}  // namespace

CoreEnergy core_energy(const EnergyReport& report, const EnergyLayer& layer, const EnergyOptions& options, int cores,
                       CoreSplit split) {
  if (!std::all_of(report.memories.begin(), report.memories.end(), [](const MemoryUse& memory) {
        return memory.bytes == 0 || std::count(memory.held.begin(), memory.held.end(), 0.0) == 2;
      })) {
    throw InvalidArgument("cores are counted for nests whose memories hold one tensor each; use the hierarchy 'free'");
  }
  check_split(layer, cores, split);
  EnergyOptions alone = options;
  alone.limit_bytes = 0;
  const EnergyModel model(layer, named_hierarchy("free"), alone);
  const std::size_t shared = split == CoreSplit::k ? x : w;
  const auto parts = static_cast<double>(cores);
  CoreEnergy energy{.cores = cores};
  double embedded = 0, privates = 0;
  for (const std::size_t o : {x, w, y}) {
    energy.dram_pj += report.dram_pj[o];
    const MemoryUse* last = last_memory(report, o);
    privates += report.sram_pj[o];
    if (last == nullptr) continue;
    privates -= last->accesses[o] * last->pj_per_word[o];
    for (const MemoryUse& memory : report.memories) {
      if (memory.held[o] > 0 && &memory != last) embedded += parts * memory.bytes;
    }
    embedded += last->bytes;  // shared, or split into parts
  }
  energy.private_pj = std::max(0.0, privates);
  for (const std::size_t o : {x, w, y}) {
    const MemoryUse* last = last_memory(report, o);
    if (last == nullptr) continue;
    if (o == shared && cores > 1) {
      energy.broadcast_pj = last->accesses[o] / parts * model.price(operands[o], embedded);
    } else {
      energy.last_pj[o] = last->accesses[o] * model.price(operands[o], last->bytes / (o == shared ? 1 : parts));
    }
  }
  if (split == CoreSplit::k && cores > 1) {
    const double results = static_cast<double>(of(layer, Dim::n)) * static_cast<double>(of(layer, Dim::k)) *
                           static_cast<double>(of(layer, Dim::z)) * static_cast<double>(of(layer, Dim::y)) *
                           static_cast<double>(of(layer, Dim::x));
    energy.shuffle_pj = results * model.price(Operand::y, embedded);
  }
  return energy;
}

}  // namespace convolume::plan
