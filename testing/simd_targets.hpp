// Properties of SIMD targets that tests rely on.
#pragma once

#include <string_view>

namespace convolume::test {

/// Returns whether a SIMD target has fused multiply-adds. The others round every product once more.
inline bool has_fused_multiply_adds(std::string_view target) {
  return target == "AVX3" || target == "AVX2" || target == "NEON";
}

/// Returns how many times the promised error of transforms a SIMD target may have.
inline double slack_of(std::string_view target) { return has_fused_multiply_adds(target) ? 1 : 1.25; }

}  // namespace convolume::test
