#include "convolume/cpu.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "hwy/highway.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convolume/error.hpp"
#include "core/instruction_set.hpp"
#include "core/lazy.hpp"

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

/// Returns the targets that this machine has, whether or not kernels were compiled for them. `forcing_error` calls this
/// while the library is loaded: the targets must be read before a forced target can mask them.
std::int64_t targets_of_processor() {
  static constinit Lazy<const std::int64_t> found;
  return found.get([] {
    hwy::SetSupportedTargetsForTest(0);
    const std::int64_t dispatched = hwy::SupportedTargets();
#if HWY_ARCH_X86
    // A kernel names its instruction set, and all other code is compiled for plain x86-64.
    return dispatched | (has_sse42() ? HWY_SSE4 : 0);
#else
    // The compiler may use the instructions of Highway's baseline anywhere, so every machine that runs this has them.
    return dispatched | HWY_STATIC_TARGET;
#endif
  });
}

std::int64_t machine_targets() { return targets_of_processor() & compiled_targets; }

std::vector<std::string> names_of(std::int64_t bits) {
  std::vector<std::string> names;
  for (const auto& target : targets) {
    if (bits & target.bit) names.emplace_back(target.name);
  }
  return names;
}

/// Returns how to get a library with the kernels of a SIMD target.
std::string how_to_build(const std::string& target) {
  return fmt::format("build the library with -DCONVOLUME_SIMD_TARGETS={} or with -DCONVOLUME_SIMD_TARGETS=all", target);
}

/// Throws Unsupported if the library has no kernels for this processor.
void require_kernels() {
  if (machine_targets() != 0) return;
  const std::vector<std::string> own = names_of(targets_of_processor() & ~(HWY_EMU128 | HWY_SCALAR));
  if (own.empty()) throw Unsupported("this processor has no SSE4.2, which all kernels need");
  throw Unsupported(fmt::format("the kernels of this library were compiled for {} only, and this processor has {}; {}",
                                fmt::join(names_of(compiled_targets), ", "), fmt::join(own, ", "),
                                how_to_build(own.front())));
}

constinit const TargetName* current_target = nullptr;  // null: the best one

const TargetName* best_target() {
  for (const auto& target : targets) {
    if (machine_targets() & target.bit) return &target;
  }
  return &targets.back();
}

/// Applies CONVOLUME_SIMD before any kernel runs. Holds the error message if its value is wrong. simd_target() throws
/// it later, because a static initialiser must not end the process.
const std::string forcing_error = [] {
  targets_of_processor();
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

std::vector<std::string> compiled_simd_targets() { return names_of(compiled_targets); }

std::vector<std::string> available_simd_targets() { return names_of(machine_targets()); }

std::string widest_simd_target() {
  const std::vector<std::string> names = names_of(targets_of_processor());
  return names.empty() ? std::string() : names.front();
}

std::string simd_target() {
  require_kernels();
  const TargetName* target = current_target;
  if (target == nullptr && !forcing_error.empty()) throw Unsupported(forcing_error);
  return target != nullptr ? target->name : best_target()->name;
}

void set_simd_target(const std::string& name) {
  const auto* const target =
      std::find_if(targets.begin(), targets.end(), [&](const TargetName& known) { return name == known.name; });
  const bool exists = target != targets.end();
  if (exists && (machine_targets() & target->bit)) {
    hwy::SetSupportedTargetsForTest(target->bit);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    current_target = target;
    return;
  }
  require_kernels();
  const bool left_out = exists && (targets_of_processor() & target->bit);
  throw Unsupported(fmt::format("SIMD target '{}' is not available here; available: {}{}", name,
                                fmt::join(available_simd_targets(), ", "),
                                left_out ? "; its kernels were left out: " + how_to_build(name) : ""));
}

}  // namespace convolume
