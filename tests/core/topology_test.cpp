#include "core/topology.hpp"

#include <cstdlib>

#include <catch2/catch.hpp>
#include <sched.h>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"

using namespace convolume;

TEST_CASE("this machine has cores, and each processor belongs to one of them") {
  const Topology& machine = topology();
  REQUIRE(!machine.cores.empty());
  CHECK(machine.nodes >= 1);
  std::vector<int> processors;
  for (const Topology::Core& core : machine.cores) {
    CHECK(!core.processors.empty());
    CHECK(core.node < machine.nodes);
    processors.insert(processors.end(), core.processors.begin(), core.processors.end());
  }
  std::sort(processors.begin(), processors.end());
  CHECK(std::adjacent_find(processors.begin(), processors.end()) == processors.end());
  CHECK(static_cast<int>(processors.size()) >= available_cpus());
}

TEST_CASE("caches, sharing and memory nodes come from the topology") {
  const Topology machine =
      synthetic_topology("node:2 l3:1(size=33554432) l2:4(size=1048576) l1d:1(size=32768) core:1 pu:2");
  CHECK(machine.cores.size() == 8);
  CHECK(machine.nodes == 2);
  CHECK(machine.l1.bytes == 32 << 10);
  CHECK(machine.l2.bytes == 1 << 20);
  CHECK(machine.l2.cores == 1);
  CHECK(machine.l3.bytes == 32 << 20);
  CHECK(machine.l3.cores == 4);
  CHECK(machine.cores[0].node == 0);
  CHECK(machine.cores[7].node == 1);
  CHECK(machine.cores[3].processors == std::vector<int>{6, 7});
}

TEST_CASE("a topology without caches says so") {
  const Topology machine = synthetic_topology("node:1 core:2 pu:1");
  CHECK(machine.l1.bytes == 0);
  CHECK(machine.l3.bytes == 0);
}

TEST_CASE("variables of hwloc and the affinity of the process do not change the topology") {
  cpu_set_t before, one;
  CPU_ZERO(&before);
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  const std::size_t cores = topology().cores.size();
  ::setenv("HWLOC_SYNTHETIC", "node:1 core:17 pu:1", 1);
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  sched_setaffinity(0, sizeof one, &one);
  const Topology again = find_topology();
  CHECK(again.cores.size() == cores);
  CHECK(std::string(::getenv("HWLOC_SYNTHETIC")) == "node:1 core:17 pu:1");
  cpu_set_t after;
  CPU_ZERO(&after);
  REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&after, &one));
  ::unsetenv("HWLOC_SYNTHETIC");
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}

TEST_CASE("a synthetic text that hwloc does not understand is refused by name") {
  CHECK_THROWS_AS(synthetic_topology("core:nonsense"), InvalidArgument);
  CHECK_THROWS_WITH(synthetic_topology("core:nonsense"), Catch::Contains("core:nonsense"));
}
