#include "convolume/cpu.hpp"

#include <array>
#include <cstdlib>

#include "hwy/highway.h"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include "convolume/error.hpp"
#include "core/instruction_set.hpp"

namespace convolume {
namespace {

struct TargetName {
  const char* name;
  std::int64_t bit;
};

// The targets that the kernels are compiled for, best first. On other processors than x86-64 and ARM, there is only
// Highway's portable emulation EMU128, or SCALAR if the compiler cannot build EMU128.
constexpr std::array targets{TargetName{"AVX3", HWY_AVX3},     TargetName{"AVX2", HWY_AVX2},
                             TargetName{"SSE4", HWY_SSE4},     TargetName{"NEON", HWY_NEON},
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

}  // namespace

std::vector<std::string> available_simd_targets() {
  std::vector<std::string> names;
  for (const auto& target : targets) {
    if (machine_targets() & target.bit) names.emplace_back(target.name);
  }
  return names;
}

std::string simd_target() {
  if (const char* missing = missing_instruction_set()) {
    throw Unsupported(fmt::format("this processor has no {}, which all kernels need", missing));
  }
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

int available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace convolume
