#include "core/instruction_set.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace convolume {

#if defined(__x86_64__) || defined(__i386__)

CpuIdentity read_cpu_identity() {
  CpuIdentity found;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return found;
  std::array<char, 13> vendor{};
  std::memcpy(vendor.data(), &b, 4);
  std::memcpy(vendor.data() + 4, &d, 4);
  std::memcpy(vendor.data() + 8, &c, 4);
  found.vendor = vendor.data();
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return found;
  const unsigned family = (a >> 8) & 0xF, model = (a >> 4) & 0xF;
  found.family = family == 0xF ? family + ((a >> 20) & 0xFF) : family;
  found.model = family == 0x6 || family == 0xF ? model + ((a >> 12) & 0xF0) : model;
  return found;
}

std::string read_cpu_brand() {
  std::array<unsigned, 12> words{};
  if (static_cast<unsigned>(__get_cpuid_max(0x80000000, nullptr)) < 0x80000004u) return {};
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    __get_cpuid(0x80000002 + leaf, &words[4 * leaf], &words[4 * leaf + 1], &words[4 * leaf + 2], &words[4 * leaf + 3]);
  }
  std::array<char, 49> text{};
  std::memcpy(text.data(), words.data(), 48);
  std::string name(text.data());
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name;
}

bool has_sse42() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }

namespace {

constexpr std::uint32_t simd_default = 0x1F80, simd_flags = 0x3F;
constexpr std::uint16_t x87_default = 0x037F, x87_flags = 0x3F;

std::uint16_t x87_control() {
  std::uint16_t control = 0;
  __asm__ volatile("fnstcw %0" : "=m"(control));
  return control;
}
bool has_x87_flags() {
  std::uint16_t status = 0;
  __asm__ volatile("fnstsw %0" : "=m"(status));
  return (status & x87_flags) != 0;
}

}  // namespace

bool has_default_fp_environment() noexcept {
  return x87_control() == x87_default && !has_x87_flags() && (_mm_getcsr() & ~simd_flags) == simd_default;
}

std::uint32_t simd_fp_flags() noexcept { return _mm_getcsr(); }

void restore_default_fp_environment(std::uint32_t flags) noexcept {
  _mm_setcsr(flags);
  if (has_x87_flags()) __asm__ volatile("fnclex");
  if (x87_control() != x87_default) __asm__ volatile("fldcw %0" : : "m"(x87_default));
}

void spin_pause() noexcept { _mm_pause(); }

#else

namespace {

/// Returns the largest value of a field of /proc/cpuinfo, or 0. Of two kinds of cores, the faster one has the larger
/// part number.
unsigned cpuinfo_value(const char* field) {
  std::ifstream stream("/proc/cpuinfo");
  unsigned largest = 0;
  for (std::string line; std::getline(stream, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(field) || colon == std::string::npos) continue;
    largest = std::max(largest, static_cast<unsigned>(std::strtoul(line.c_str() + colon + 1, nullptr, 0)));
  }
  return largest;
}

}  // namespace

CpuIdentity read_cpu_identity() {
  return {.implementer = cpuinfo_value("CPU implementer"), .part = cpuinfo_value("CPU part")};
}

std::string read_cpu_brand() { return {}; }

bool has_sse42() noexcept { return false; }

bool has_default_fp_environment() noexcept { return false; }
std::uint32_t simd_fp_flags() noexcept { return 0; }
void restore_default_fp_environment(std::uint32_t /*flags*/) noexcept {}

#if defined(__aarch64__)
// On most cores `yield` does nothing. `isb` takes about as long as the pause of x86; Rust's spin_loop() uses it too.
void spin_pause() noexcept { asm volatile("isb" : : : "memory"); }
#else
void spin_pause() noexcept { std::this_thread::yield(); }
#endif

#endif

}  // namespace convolume
