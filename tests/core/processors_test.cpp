#include "core/processors.hpp"

#include <fstream>
#include <semaphore>
#include <thread>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>
#include <sched.h>

#include "convolume/cpu.hpp"

using namespace convolume;
namespace fs = std::filesystem;

namespace {

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text << '\n';
}

}  // namespace

TEST_CASE("hyper-threads of one core count once") {
  const test::TemporaryFolder folder;
  const Topology machine = synthetic_topology("node:1 core:4 pu:2");
  CHECK(usable_cores({0, 1, 2, 3, 4, 5, 6, 7}, machine, folder.path()) == 4);
  CHECK(usable_cores({0, 1}, machine, folder.path()) == 1);
  CHECK(usable_cores({0, 2, 3}, machine, folder.path()) == 2);
  CHECK(usable_cores({17, 18}, machine, folder.path()) == 2);  // processors that the topology lacks count as cores
}

TEST_CASE("efficiency cores do not count beside faster ones") {
  const test::TemporaryFolder folder;
  Topology machine = synthetic_topology("node:1 core:6 pu:1");
  for (std::size_t i = 2; i < 6; ++i) machine.cores[i].efficiency = true;
  CHECK(usable_cores({0, 1, 2, 3, 4, 5}, machine, folder.path()) == 2);
  CHECK(usable_cores({1, 2, 3}, machine, folder.path()) == 1);
  CHECK(usable_cores({2, 3, 4}, machine, folder.path()) == 3);  // there are no others in the mask
}

TEST_CASE("a control group's quota limits threads, and so do the groups around it") {
  const test::TemporaryFolder folder;
  const fs::path root = folder.path(), groups = root / "sys/fs/cgroup";
  const std::vector<int> all{0, 1, 2, 3};
  const Topology machine = synthetic_topology("node:1 core:4 pu:1");
  write(root / "proc/self/cgroup", "0::/box/inner");
  CHECK(usable_cores(all, machine, root) == 4);
  write(groups / "box/inner/cpu.max", "max 100000");
  CHECK(usable_cores(all, machine, root) == 4);
  write(groups / "box/cpu.max", "250000 100000");
  CHECK(usable_cores(all, machine, root) == 3);
  write(groups / "box/inner/cpu.max", "50000 100000");
  CHECK(usable_cores(all, machine, root) == 1);
  write(groups / "box/inner/cpu.max", "nonsense");
  CHECK(usable_cores(all, machine, root) == 3);
  write(groups / "cpu.max", "150000 100000");
  CHECK(usable_cores(all, machine, root) == 2);
}

TEST_CASE("quotas of control groups of version 1 count as well") {
  const test::TemporaryFolder folder;
  const fs::path root = folder.path(), group = root / "sys/fs/cgroup/cpu,cpuacct/docker/abc";
  const Topology machine = synthetic_topology("node:1 core:4 pu:1");
  write(root / "proc/self/cgroup", "12:cpuset:/\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/");
  write(group / "cpu.cfs_quota_us", "-1");
  write(group / "cpu.cfs_period_us", "100000");
  CHECK(usable_cores({0, 1, 2}, machine, root) == 3);
  write(group / "cpu.cfs_quota_us", "200000");
  CHECK(usable_cores({0, 1, 2}, machine, root) == 2);
}

TEST_CASE("threads by default keep to the process's affinity") {
  cpu_set_t before, one;
  CPU_ZERO(&before);
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK(default_threads() >= 1);
  CHECK(default_threads() <= available_cpus());
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  // Other threads of this program may use more.
  const auto threads = std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  if (threads == 1) CHECK(default_threads() == 1);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}

TEST_CASE("a thread that is bound to one processor does not hide those of other threads") {
  cpu_set_t before, one;
  CPU_ZERO(&before);
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  std::binary_semaphore end(0);
  std::thread other([&] { end.acquire(); });
  CPU_ZERO(&one);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  CPU_SET(first, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(available_cpus() == CPU_COUNT(&before));
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  end.release();
  other.join();
}

TEST_CASE("memory is that of the machine, unless a control group has less") {
  const test::TemporaryFolder folder;
  const fs::path root = folder.path(), groups = root / "sys/fs/cgroup";
  CHECK(usable_memory(root) == 0);
  write(root / "proc/meminfo", "MemTotal:       24000 kB\nMemFree:  1 kB");
  CHECK(usable_memory(root) == 24000 * 1024);
  write(root / "proc/self/cgroup", "0::/box/inner");
  write(groups / "box/inner/memory.max", "max");
  CHECK(usable_memory(root) == 24000 * 1024);
  write(groups / "box/memory.max", "1048576");
  CHECK(usable_memory(root) == 1048576);
  write(root / "proc/self/cgroup", "4:memory:/docker/abc\n1:name=systemd:/");
  write(groups / "memory/docker/abc/memory.limit_in_bytes", "9223372036854771712");
  CHECK(usable_memory(root) == 24000 * 1024);
  write(groups / "memory/docker/memory.limit_in_bytes", "2097152");
  CHECK(usable_memory(root) == 2097152);
}
