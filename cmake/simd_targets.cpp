// Prints the SIMD targets of x86-64 that this machine has and kernels can be compiled for, the best first, as a CMake
// list.
#include <cstdio>

#include "hwy/targets.h"

int main() {
  const std::int64_t found = hwy::SupportedTargets();
  const char* separator = "";
  const auto print = [&](std::int64_t bit, const char* name) {
    if ((found & bit) == 0) return;
    std::printf("%s%s", separator, name);
    separator = ";";
  };
  print(HWY_AVX3, "AVX3");
  print(HWY_AVX2, "AVX2");
  print(HWY_SSE4, "SSE4");
}
