// Prints the SIMD targets of x86-64 that this machine has and kernels can be compiled for, the best first, as a CMake
// list. src/core/cpu.cpp decides in the same way when the library runs.
#include <cstdio>

#include "hwy/targets.h"

int main() {
  const auto found = hwy::SupportedTargets();
  if (found & HWY_AVX3) std::printf("AVX3;");
  if (found & HWY_AVX2) std::printf("AVX2;");
  if (__builtin_cpu_supports("sse4.2")) std::printf("SSE4");
}
