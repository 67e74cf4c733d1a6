#include "core/probes.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace convolume::probe {
namespace {

std::atomic<double> sink;  // keeps results alive

void keep(double value) { sink.store(value, std::memory_order_relaxed); }

index_t floats_of(const ProbeKernels& kernels, double bytes) {
  const index_t step = 8 * kernels.vector_bytes;
  return std::max<index_t>(1, static_cast<index_t>(bytes) / step) * step / static_cast<index_t>(sizeof(float));
}

/// Solves a system of three linear equations by Gaussian elimination with pivots. `a` holds the right side in its last
/// column.
std::array<double, 3> solve(std::array<std::array<double, 4>, 3> a) {
  for (std::size_t i = 0; i < 3; ++i) {
    const auto pivot = std::max_element(a.begin() + static_cast<std::ptrdiff_t>(i), a.end(),
                                        [&](const auto& p, const auto& q) { return std::abs(p[i]) < std::abs(q[i]); });
    std::swap(a[i], *pivot);
    for (std::size_t row = 0; row < 3; ++row) {
      if (row == i) continue;
      const double factor = a[row][i] / a[i][i];
      for (std::size_t k = i; k < 4; ++k) a[row][k] -= factor * a[i][k];
    }
  }
  return {a[0][3] / a[0][0], a[1][3] / a[1][1], a[2][3] / a[2][2]};
}

}  // namespace

void PriceFit::add(double runs, double elements, double seconds) {
  const std::array<double, 3> terms{1 / seconds, runs / seconds, elements / seconds};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t k = 0; k < 3; ++k) normal_[i][k] += terms[i] * terms[k];
    normal_[i][3] += terms[i];
  }
}

TransferPrice PriceFit::price() const {
  const auto [start, jump, element] = solve(normal_);
  return {std::max(start, 0.0), std::max(jump, 0.0), element};
}

double ghz(double budget) {
  constexpr int rounds = 200000, unrolled = 16;
  const double seconds = least_seconds(budget, [] {
    std::uint64_t x = 1;
    for (int i = 0; i < rounds; ++i) {
      for (int k = 0; k < unrolled; ++k) {
        x = x << 5 | x >> 59;
        asm volatile("" : "+r"(x));
      }
    }
    keep(static_cast<double>(x));
  });
  return 1e-9 * rounds * unrolled / seconds;
}

double peak(const ProbeKernels& kernels, double budget) {
  constexpr index_t rounds = 200000;
  const double seconds = least_seconds(budget, [&] { keep(static_cast<double>(kernels.multiply_adds(rounds))); });
  return static_cast<double>(kernels.chains * rounds) / seconds;  // vectors per second
}

double multiply_add_latency(const ProbeKernels& kernels, double budget) {
  constexpr index_t rounds = 200000;
  const double seconds =
      least_seconds(budget, [&] { keep(static_cast<double>(kernels.dependent_multiply_adds(rounds))); });
  return seconds / rounds;
}

double loads(const ProbeKernels& kernels, double bytes, double budget) {
  const index_t n = floats_of(kernels, bytes), rounds = std::max<index_t>(1, (1 << 22) / n);
  const Buffer buffer(static_cast<std::size_t>(n) * sizeof(float));
  const double seconds =
      least_seconds(budget, [&] { keep(static_cast<double>(kernels.load(buffer.as<float>(), n, rounds))); });
  return static_cast<double>(n * rounds) * sizeof(float) / seconds;
}

double stores(const ProbeKernels& kernels, double bytes, double budget) {
  const index_t n = floats_of(kernels, bytes), rounds = std::max<index_t>(1, (1 << 22) / n);
  const Buffer buffer(static_cast<std::size_t>(n) * sizeof(float));
  const double seconds = least_seconds(budget, [&] { kernels.store(buffer.as<float>(), n, rounds); });
  return static_cast<double>(n * rounds) * sizeof(float) / seconds;
}

double loads_of_all(const ProbeKernels& kernels, int threads, double bytes, double budget, const Together& together) {
  const index_t n = floats_of(kernels, bytes);
  std::vector<Buffer> buffers;
  for (int i = 0; i < threads; ++i) buffers.emplace_back(static_cast<std::size_t>(n) * sizeof(float));
  const double seconds = least_seconds(budget, [&] {
    together(threads, [&](int i) {
      keep(static_cast<double>(kernels.load(buffers[static_cast<std::size_t>(i)].as<float>(), n, 1)));
    });
  });
  return static_cast<double>(n * threads) * sizeof(float) / seconds;
}

double latency(double bytes, double budget) {
  constexpr std::size_t line = 64;
  const auto count = std::max<std::size_t>(8, static_cast<std::size_t>(bytes) / line);
  const Buffer buffer(count * line);
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  const auto place = [&](std::size_t i) { return buffer.as<char>() + order[i] * line; };
  for (std::size_t i = 0; i < count; ++i) {
    const char* next = place((i + 1) % count);
    std::memcpy(place(i), &next, sizeof next);
  }
  constexpr int steps = 1 << 18;
  // Each call goes on where the last one ended, so that all lines are visited.
  const char* at = place(0);
  const double seconds = least_seconds(budget, [&] {
    for (int i = 0; i < steps; ++i) std::memcpy(&at, at, sizeof(const char*));
    keep(static_cast<double>(reinterpret_cast<std::uintptr_t>(at) & 1));
  });
  return seconds / steps;
}

TransferPrice transfer_price(double bytes, double budget) {
  constexpr std::size_t line = 64, pitch = 4096 + line, most_runs = 16, most_run = 1024, transfers = 256;
  const auto size = static_cast<std::size_t>(bytes);
  const std::size_t places = (size - most_runs * pitch) / line;
  const Buffer source(size), target(most_runs * most_run);
  std::mt19937 random(1);
  PriceFit fit;
  for (const std::size_t runs : {1, 4, 16}) {
    for (const std::size_t run : {64, 256, 1024}) {
      const double seconds = least_seconds(budget / 9,
                                           [&] {
                                             for (std::size_t i = 0; i < transfers; ++i) {
                                               const char* from = source.as<char>() + random() % places * line;
                                               for (std::size_t k = 0; k < runs; ++k)
                                                 std::memcpy(target.as<char>() + k * run, from + k * pitch, run);
                                               asm volatile("" : : "r"(target.as<char>()) : "memory");
                                             }
                                           }) /
                             transfers;
      fit.add(static_cast<double>(runs), static_cast<double>(runs * run) / sizeof(float), seconds);
    }
  }
  return fit.price();
}

}  // namespace convolume::probe
