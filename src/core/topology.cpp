#include "core/topology.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <hwloc.h>
#include <unistd.h>

#include "convolume/error.hpp"
#include "core/fork.hpp"
#include "core/lazy.hpp"

namespace convolume {
namespace {

/// Removes the HWLOC_* variables from the environment, and restores them at the end. hwloc has no other way to ignore
/// them.
class WithoutVariables {
 public:
  WithoutVariables() {
    constexpr const char* prefix = "HWLOC_";
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const std::size_t sign = text.find('=');
      if (!text.starts_with(prefix) || sign == std::string::npos) continue;
      removed_.emplace_back(text.substr(0, sign), text.substr(sign + 1));
    }
    for (const auto& [name, value] : removed_) ::unsetenv(name.c_str());
  }
  ~WithoutVariables() {
    for (const auto& [name, value] : removed_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  WithoutVariables(const WithoutVariables&) = delete;
  WithoutVariables& operator=(const WithoutVariables&) = delete;

 private:
  std::vector<std::pair<std::string, std::string>> removed_;
};

struct Destroy {
  void operator()(hwloc_topology_t machine) const { hwloc_topology_destroy(machine); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, Destroy>;

/// Loads this machine, or the one of a synthetic text. Returns null if hwloc fails.
HwlocTopology load(const char* synthetic) {
  const WithoutVariables guard;
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  HwlocTopology machine(raw);
  if (synthetic != nullptr && hwloc_topology_set_synthetic(raw, synthetic) != 0) return nullptr;
  // The second flag keeps hwloc from binding this thread to one processor after the other.
  const unsigned long flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;
  if (hwloc_topology_set_flags(raw, flags) != 0 || hwloc_topology_load(raw) != 0) return nullptr;
  return machine;
}

struct Bitmap {
  Bitmap() : set(hwloc_bitmap_alloc()) {}
  ~Bitmap() { hwloc_bitmap_free(set); }
  Bitmap(const Bitmap&) = delete;
  Bitmap& operator=(const Bitmap&) = delete;
  hwloc_bitmap_t set;
};

/// A kind of cores, as hwloc describes it.
struct Kind {
  std::string type;                  // "IntelCore", "IntelAtom", or empty
  double capacity = 0, max_mhz = 0;  // 0 if unknown
};

/// Returns whether cores of one kind are so much slower than the best that they are efficiency cores. Kinds of one core
/// type, or with nearly the same capacity, differ in their highest frequency only.
bool is_efficiency(const Kind& kind, const Kind& best) {
  constexpr double slow = 0.6;
  if (!kind.type.empty() && !best.type.empty()) return kind.type != best.type;
  if (kind.capacity > 0 && best.capacity > 0) return kind.capacity < slow * best.capacity;
  return kind.max_mhz > 0 && best.max_mhz > 0 && kind.max_mhz < slow * best.max_mhz;
}

/// Finds the processors of efficiency cores.
void find_efficiency_processors(hwloc_topology_t machine, hwloc_bitmap_t processors) {
  const int kinds = hwloc_cpukinds_get_nr(machine, 0);
  Kind best;
  // Kinds are in ascending order of performance.
  for (int i = kinds - 1; i >= 0; --i) {
    const Bitmap of_kind;
    int efficiency = -1;
    unsigned count = 0;
    hwloc_info_s* infos = nullptr;
    if (hwloc_cpukinds_get_info(machine, static_cast<unsigned>(i), of_kind.set, &efficiency, &count, &infos, 0) != 0 ||
        efficiency < 0) {
      return;
    }
    Kind kind;
    for (unsigned k = 0; k < count; ++k) {
      const std::string name = infos[k].name;
      if (name == "CoreType") kind.type = infos[k].value;
      if (name == "LinuxCapacity") kind.capacity = std::atof(infos[k].value);
      if (name == "FrequencyMaxMHz") kind.max_mhz = std::atof(infos[k].value);
    }
    if (i == kinds - 1) best = kind;
    if (is_efficiency(kind, best)) hwloc_bitmap_or(processors, processors, of_kind.set);
  }
}

/// Returns the data cache of a level above a core.
Topology::Cache cache_above(hwloc_topology_t machine, hwloc_obj_t core, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(machine, type, core);
  if (cache == nullptr) return {};
  const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(machine, cache->cpuset, HWLOC_OBJ_CORE);
  return {static_cast<long long>(cache->attr->cache.size), std::max(1, cores)};
}

/// Returns the topology without caches that is true of any machine.
Topology unknown_machine() {
  Topology unknown;
  const int processors = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  for (int i = 0; i < processors; ++i) unknown.cores.push_back({.processors = {i}});
  return unknown;
}

Topology describe(hwloc_topology_t machine) {
  const int cores = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_CORE);
  if (cores < 1) return unknown_machine();
  Topology found;
  found.nodes = std::max(1, hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_NUMANODE));
  const Bitmap efficiency;
  find_efficiency_processors(machine, efficiency.set);
  bool caches = false;
  for (unsigned i = 0; i < static_cast<unsigned>(cores); ++i) {
    const hwloc_obj_t object = hwloc_get_obj_by_type(machine, HWLOC_OBJ_CORE, i);
    Topology::Core core;
    unsigned processor = 0;
    hwloc_bitmap_foreach_begin(processor, object->cpuset) core.processors.push_back(static_cast<int>(processor));
    hwloc_bitmap_foreach_end();
    core.efficiency = hwloc_bitmap_intersects(efficiency.set, object->cpuset) != 0;
    const int node = object->nodeset == nullptr ? -1 : hwloc_bitmap_first(object->nodeset);
    for (int n = 0; n < found.nodes && node >= 0; ++n) {
      const hwloc_obj_t memory = hwloc_get_obj_by_type(machine, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(n));
      if (memory != nullptr && static_cast<int>(memory->os_index) == node) core.node = n;
    }
    if (!core.efficiency && !caches) {
      found.l1 = cache_above(machine, object, HWLOC_OBJ_L1CACHE);
      found.l2 = cache_above(machine, object, HWLOC_OBJ_L2CACHE);
      found.l3 = cache_above(machine, object, HWLOC_OBJ_L3CACHE);
      caches = true;
    }
    found.cores.push_back(std::move(core));
  }
  return found;
}

}  // namespace

int Topology::fast_cores() const noexcept {
  const auto fast = std::count_if(cores.begin(), cores.end(), [](const Core& core) { return !core.efficiency; });
  return static_cast<int>(fast > 0 ? fast : static_cast<std::ptrdiff_t>(cores.size()));
}

const Topology& topology() {
  static constinit Lazy<const Topology> found;
  // hwloc has locks of its own, and changes the environment for a moment.
  const std::lock_guard lock(fork_lock(ForkLock::topology));
  return found.get(find_topology);
}

Topology find_topology() {
  const HwlocTopology machine = load(nullptr);
  return machine == nullptr ? unknown_machine() : describe(machine.get());
}

Topology synthetic_topology(const std::string& text) {
  const HwlocTopology machine = load(text.c_str());
  if (machine == nullptr) {
    throw InvalidArgument(
        fmt::format("topology '{}': hwloc does not understand it; write for example "
                    "'node:2 l3:1 l2:4 core:1 pu:2'",
                    text));
  }
  return describe(machine.get());
}

}  // namespace convolume
