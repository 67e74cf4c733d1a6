#include "convolume/cpu.hpp"

#include <array>
#include <cstdlib>
#include <cstring>

#include "hwy/highway.h"
#include <cpuid.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include "convolume/error.hpp"

namespace convolume {
namespace {

struct TargetName {
  const char* name;
  std::int64_t bit;
};

// The targets that the kernels are compiled for, best first. Highway 1.0.3 has no SSE2. The x86-64 baseline is
// therefore its portable emulation EMU128, or SCALAR if the compiler cannot build EMU128.
constexpr std::array targets{TargetName{"AVX3", HWY_AVX3}, TargetName{"AVX2", HWY_AVX2}, TargetName{"SSE4", HWY_SSE4},
                             TargetName{"EMU128", HWY_EMU128}, TargetName{"SCALAR", HWY_SCALAR}};

constexpr std::int64_t compiled_targets = HWY_TARGETS;

std::int64_t machine_targets() {
  // Read the targets once, before a forced target can mask them.
  static const std::int64_t found = [] {
    hwy::SetSupportedTargetsForTest(0);
    return (hwy::SupportedTargets() | HWY_STATIC_TARGET) & compiled_targets;
  }();
  return found;
}

const TargetName*& current_target() {
  static const TargetName* current = nullptr;
  return current;
}

const TargetName* best_target() {
  for (const auto& target : targets) {
    if (machine_targets() & target.bit) return &target;
  }
  return &targets.back();
}

/// Applies CONVOLUME_SIMD before any kernel runs. Holds the error message if its value is wrong. simd_target() throws
/// it later, because a static initialiser must not end the process.
const std::string forcing_error = [] {
  const char* name = std::getenv("CONVOLUME_SIMD");
  if (name == nullptr || *name == '\0') return std::string();
  try {
    set_simd_target(name);
    return std::string();
  } catch (const Error& error) {
    return std::string("CONVOLUME_SIMD: ") + error.what();
  }
}();

struct ModelRow {
  unsigned family;
  const char* simd;
  MachineModel model;
};

// Constants measured by bandwidth and arithmetic probes, keyed by CPU family and SIMD target. The first row that
// fits is used, so that the choice of a plan depends neither on the clock nor on the load.
const std::array model_rows{
    ModelRow{0x19, "AVX3", {"zen4/AVX3", 32 << 10, 1 << 20, 32 << 20, 117, 117, 98, 31, 51}},
    ModelRow{0x19, "AVX2", {"zen4/AVX2", 32 << 10, 1 << 20, 32 << 20, 117, 100, 90, 31, 51}},
    ModelRow{0, "AVX3", {"default/AVX3", 32 << 10, 1 << 20, 16 << 20, 80, 80, 40, 12, 20}},
    ModelRow{0, "AVX2", {"default/AVX2", 32 << 10, 512 << 10, 8 << 20, 60, 60, 30, 12, 20}},
    ModelRow{0, nullptr, {"default", 32 << 10, 256 << 10, 8 << 20, 20, 30, 20, 10, 16}},
};

unsigned cpu_family() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return 0;
  const unsigned base = (a >> 8) & 0xF;
  return base == 0xF ? base + ((a >> 20) & 0xFF) : base;
}

}  // namespace

std::vector<std::string> available_simd_targets() {
  std::vector<std::string> names;
  for (const auto& target : targets) {
    if (machine_targets() & target.bit) names.emplace_back(target.name);
  }
  return names;
}

std::string simd_target() {
  const TargetName* target = current_target();
  if (target == nullptr && !forcing_error.empty()) throw Unsupported(forcing_error);
  return target != nullptr ? target->name : best_target()->name;
}

void set_simd_target(const std::string& name) {
  for (const auto& target : targets) {
    if (name == target.name && (machine_targets() & target.bit)) {
      hwy::SetSupportedTargetsForTest(target.bit);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      current_target() = &target;
      return;
    }
  }
  throw Unsupported(fmt::format("SIMD target '{}' is not available here; available: {}", name,
                                fmt::join(available_simd_targets(), ", ")));
}

const MachineModel& machine_model() {
  const unsigned family = cpu_family();
  const std::string simd = simd_target();
  for (const auto& row : model_rows) {
    if ((row.family == 0 || row.family == family) && (row.simd == nullptr || simd == row.simd)) return row.model;
  }
  return model_rows.back().model;
}

std::string cpu_name() {
  std::array<unsigned, 12> words{};
  if (static_cast<unsigned>(__get_cpuid_max(0x80000000, nullptr)) < 0x80000004u) return "unknown";
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    __get_cpuid(0x80000002 + leaf, &words[4 * leaf], &words[4 * leaf + 1], &words[4 * leaf + 2], &words[4 * leaf + 3]);
  }
  std::array<char, 49> text{};
  std::memcpy(text.data(), words.data(), 48);
  std::string name(text.data());
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name;
}

int available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace convolume
