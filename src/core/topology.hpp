// Finds the cores, caches and memory nodes of the machine, with hwloc. No hwloc type appears here.
#pragma once

#include <string>
#include <vector>

namespace convolume {

/// What a machine consists of. It depends neither on the affinity of the process, nor on its control groups, nor on
/// HWLOC_* variables of the environment, because cost models read it and their choices decide rounding.
struct Topology {
  struct Core {
    std::vector<int> processors;  ///< numbers of its logical processors (hyper-threads), in ascending order
    bool efficiency = false;      ///< a slower core of a machine that has two kinds of cores
    int node = 0;                 ///< index of its NUMA node
  };
  struct Cache {
    long long bytes = 0;  ///< 0 if unknown
    int cores = 1;        ///< cores that share it
  };
  std::vector<Core> cores;  ///< never empty
  Cache l1, l2, l3;         ///< data caches of the first core that is not an efficiency core
  int nodes = 1;            ///< NUMA nodes

  /// Returns the number of cores that are not efficiency cores, or of all cores if there are no others.
  int fast_cores() const noexcept;
};

/// Returns the topology of this machine, which is found at the first call. If nothing can be found out, it has one core
/// for each online processor and no caches. Thread-safe.
const Topology& topology();

/// Finds the topology of this machine anew.
Topology find_topology();

/// Returns the topology that a text in hwloc's synthetic notation describes, e.g. "node:2 l3:1 l2:4 core:1 pu:2".
/// Throws InvalidArgument that names the text.
Topology synthetic_topology(const std::string& text);

}  // namespace convolume
