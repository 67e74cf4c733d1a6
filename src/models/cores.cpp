// Several cores: paper 000, sections 3.3 and 3.4.
#include <algorithm>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "models/energy_model.hpp"
#include "plan/nest/index_of.hpp"

namespace convolume::plan {
namespace {

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

/// Returns the energy of a read that goes through the whole chip.
double broadcast_price(const EnergyModel& model, Operand operand, double embedded_bytes) {
  return model.price(operand, std::min(embedded_bytes, most_sram_bytes));
}

/// Adds the memories of a hierarchy that each core has, except for shared levels. Returns the bytes of the chip.
double add_fixed(const EnergyReport& report, const EnergyModel& model, std::size_t shared, CoreEnergy& energy) {
  double embedded = 0;
  for (const MemoryUse& memory : report.memories) embedded += memory.bytes * (memory.shared ? 1 : energy.cores);
  for (const MemoryUse& memory : report.memories) {
    if (memory.bytes == 0) continue;
    for (std::size_t o = 0; o < operands.size(); ++o) {
      const double pj = memory.accesses[o] * memory.pj_per_word[o];
      if (!memory.shared) {
        energy.private_pj += pj;
      } else if (o == shared && energy.cores > 1) {
        energy.broadcast_pj += memory.accesses[o] / energy.cores * broadcast_price(model, operands[o], embedded);
      } else {
        energy.last_pj[o] += pj;
      }
    }
  }
  return embedded;
}

/// Adds memories of single tensors, of which the outermost ones are split or shared. Returns the bytes of the chip.
double add_free(const EnergyReport& report, const EnergyModel& model, std::size_t shared, CoreEnergy& energy) {
  std::array<const MemoryUse*, 3> last{};
  for (const Operand operand : operands) last[index_of(operand)] = last_memory(report, index_of(operand));
  double embedded = 0;
  for (const MemoryUse& memory : report.memories) {
    const bool is_last = std::find(last.begin(), last.end(), &memory) != last.end();
    embedded += memory.bytes * (is_last ? 1 : energy.cores);  // the last one is shared, or split into parts
    if (is_last || memory.bytes == 0) continue;
    for (std::size_t o = 0; o < operands.size(); ++o) energy.private_pj += memory.accesses[o] * memory.pj_per_word[o];
  }
  for (std::size_t o = 0; o < operands.size(); ++o) {
    if (last[o] == nullptr) continue;
    if (o == shared && energy.cores > 1) {
      energy.broadcast_pj = last[o]->accesses[o] / energy.cores * broadcast_price(model, operands[o], embedded);
    } else {
      energy.last_pj[o] =
          last[o]->accesses[o] * model.price(operands[o], last[o]->bytes / (o == shared ? 1 : energy.cores));
    }
  }
  return embedded;
}

}  // namespace

CoreEnergy core_energy(const EnergyReport& report, const EnergyLayer& layer, const Hierarchy& hierarchy,
                       const EnergyOptions& options, int cores, CoreSplit split) {
  check_split(layer, cores, split);
  const EnergyModel model(layer, hierarchy, options);
  const std::size_t shared = index_of(split == CoreSplit::k ? Operand::x : Operand::w);
  CoreEnergy energy{.cores = cores};
  for (const double pj : report.dram_pj) energy.dram_pj += pj;
  const double embedded =
      hierarchy.free ? add_free(report, model, shared, energy) : add_fixed(report, model, shared, energy);
  if (split == CoreSplit::k && cores > 1) {
    double results = 1;
    for (const Dim dim : {Dim::n, Dim::k, Dim::z, Dim::y, Dim::x}) results *= static_cast<double>(of(layer, dim));
    energy.shuffle_pj = results * broadcast_price(model, Operand::y, embedded);
  }
  return energy;
}

}  // namespace convolume::plan
