#include "core/processors.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sched.h>
#include <unistd.h>

#include "convolume/cpu.hpp"
#include "core/fork.hpp"
#include "core/lazy.hpp"

namespace convolume {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  if (!std::getline(stream, line)) return std::nullopt;
  return line;
}

std::optional<double> number_of(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  try {
    return std::stod(*text);
  } catch (const std::exception&) {
    return std::nullopt;  // "max" is not a number; it means no limit
  }
}

/// Adds the processors that the threads of this process may use.
void add_masks_of_threads(std::set<int>& processors) {
  std::error_code error;
  std::vector<pid_t> threads{0};  // the calling one, which there is without /proc as well
  for (const auto& thread : fs::directory_iterator("/proc/self/task", error)) {
    threads.push_back(static_cast<pid_t>(std::atoi(thread.path().filename().c_str())));
  }
  for (const pid_t thread : threads) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(thread, sizeof set, &set) != 0) continue;  // the thread has ended
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) processors.insert(cpu);
    }
  }
}

/// Adds the processors of the places of a library of GNU OpenMP that is loaded.
void add_places(const char* file, std::set<int>& processors) {
  void* const library = ::dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return;
  const auto places = reinterpret_cast<int (*)()>(::dlsym(library, "omp_get_num_places"));
  const auto count = reinterpret_cast<int (*)(int)>(::dlsym(library, "omp_get_place_num_procs"));
  const auto list = reinterpret_cast<void (*)(int, int*)>(::dlsym(library, "omp_get_place_proc_ids"));
  for (int place = 0; places && count && list && place < places(); ++place) {
    std::vector<int> numbers(static_cast<std::size_t>(std::max(0, count(place))));
    if (!numbers.empty()) list(place, numbers.data());
    processors.insert(numbers.begin(), numbers.end());
  }
  ::dlclose(library);
}

/// Returns the files of GNU OpenMP that are loaded. Wheels bring their own, with a hash in the name.
std::vector<std::string> loaded_openmp() {
  std::vector<std::string> files;
  const auto visit = [](dl_phdr_info* info, std::size_t, void* out) {
    const std::string_view name = info->dlpi_name != nullptr ? info->dlpi_name : "";
    const std::size_t slash = name.rfind('/');
    const std::string_view base = slash == std::string_view::npos ? name : name.substr(slash + 1);
    if (base.starts_with("libgomp")) static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  ::dl_iterate_phdr(visit, &files);
  return files;
}

std::vector<int> find_process_processors() {
  // The loader has locks of its own.
  const std::lock_guard lock(fork_lock(ForkLock::topology));
  std::set<int> processors;
  add_masks_of_threads(processors);
  for (const std::string& file : loaded_openmp()) add_places(file.c_str(), processors);
  return {processors.begin(), processors.end()};
}

/// Returns the number of physical cores with one of the processors: faster cores, or efficiency cores if there are no
/// others.
int cores_of(const std::vector<int>& processors, const Topology& machine) {
  const std::set<int> wanted(processors.begin(), processors.end());
  std::set<int> found;
  int fast = 0, efficiency = 0;
  for (const Topology::Core& core : machine.cores) {
    bool has = false;
    for (const int processor : core.processors) {
      if (!wanted.contains(processor)) continue;
      has = true;
      found.insert(processor);
    }
    if (has) ++(core.efficiency ? efficiency : fast);
  }
  fast += static_cast<int>(wanted.size() - found.size());
  return fast > 0 ? fast : efficiency;
}

/// Returns how many CPUs a control group may keep busy. Version 2 has "quota period" in one file, version 1 has two
/// files.
std::optional<double> quota_of(const fs::path& group) {
  if (const auto line = first_line(group / "cpu.max")) {
    const std::size_t space = line->find(' ');
    const auto quota = number_of(line->substr(0, space));
    const auto period = space == std::string::npos ? 100000.0 : number_of(line->substr(space + 1)).value_or(0);
    return quota && period > 0 ? std::optional(*quota / period) : std::nullopt;
  }
  const auto quota = number_of(first_line(group / "cpu.cfs_quota_us"));
  const auto period = number_of(first_line(group / "cpu.cfs_period_us"));
  return quota && *quota > 0 && period && *period > 0 ? std::optional(*quota / *period) : std::nullopt;
}

/// Returns how many bytes a control group may hold, in version 2 or version 1.
std::optional<double> memory_of(const fs::path& group) {
  const auto limit = first_line(group / "memory.max");
  return number_of(limit ? limit : first_line(group / "memory.limit_in_bytes"));
}

/// Returns the smallest limit of a control group and of the groups that contain it.
template <class Limit>
double least_limit(const fs::path& mount, const fs::path& group, const Limit& limit) {
  double least = HUGE_VAL;
  for (fs::path at = group.relative_path();; at = at.parent_path()) {
    if (const auto one = limit(mount / at)) least = std::min(least, *one);
    if (at.empty()) return least;
  }
}

/// Returns the smallest limit that the control groups of this process set for a controller; limit(folder) reads one.
template <class Limit>
double cgroup_limit(const fs::path& root, const char* controller, const Limit& limit) {
  double least = HUGE_VAL;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // Format: "id:controllers:path". Version 2 has id 0 and names no controller.
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1), mounts = root / "sys/fs/cgroup";
    if (names.empty()) least = std::min(least, least_limit(mounts, group, limit));
    if (fmt::format(",{},", names).find(fmt::format(",{},", controller)) == std::string::npos) continue;
    // Version 1 mounts a controller under its name, and under the names of all that are mounted together.
    for (const std::string& mount : {std::string(controller), names}) {
      least = std::min(least, least_limit(mounts / mount, group, limit));
    }
  }
  return least;
}

/// Returns the bytes of the machine's memory; 0 if the system does not say.
double physical_memory(const fs::path& root) {
  std::ifstream facts(root / "proc/meminfo");
  for (std::string line; std::getline(facts, line);) {
    if (line.starts_with("MemTotal:")) return 1024 * number_of(line.substr(line.find(':') + 1)).value_or(0);
  }
  return 0;
}

}  // namespace

int usable_cores(const std::vector<int>& processors, const Topology& machine, const fs::path& root) {
  const double quota = cgroup_limit(root, "cpu", quota_of);
  const int cores = cores_of(processors, machine);
  const int allowed = quota < cores ? static_cast<int>(std::ceil(quota)) : cores;
  return std::max(1, allowed);
}

std::uint64_t usable_memory(const fs::path& root) {
  const double limit = cgroup_limit(root, "memory", memory_of), physical = physical_memory(root);
  const double least = physical > 0 ? std::min(limit, physical) : limit;
  return least < 9e18 ? static_cast<std::uint64_t>(least) : 0;
}

std::vector<int> process_processors(bool keep) {
  static constinit Lazy<const std::vector<int>> kept;
  if (const auto* processors = kept.there()) return *processors;
  return keep ? kept.get(find_process_processors) : find_process_processors();
}

int available_cpus() {
  const auto processors = static_cast<int>(process_processors().size());
  return std::max(1, processors > 0 ? processors : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

int default_threads() {
  const std::vector<int> processors = process_processors();
  return processors.empty() ? available_cpus() : usable_cores(processors, topology(), "/");
}

}  // namespace convolume
