// Properties of SIMD targets that tests rely on.
#pragma once

#include <string_view>

namespace convolume::test {

/// Returns whether a SIMD target has fused multiply-adds. The others round every product once more.
inline bool has_fused_multiply_adds(std::string_view target) {
  return target == "AVX3" || target == "AVX2" || target == "NEON";
}

}  // namespace convolume::test
