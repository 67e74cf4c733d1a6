// What all benchmarks share: the command line, the clock, and data.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <CLI/CLI.hpp>
#include <benchmark/benchmark.h>

#include "convolume/tensor.hpp"

namespace convolume::bench {

/// main() of a benchmark. Arguments that begin with --benchmark_ or --v go to Google Benchmark, all others to `app`;
/// what neither knows is an error. `add_benchmarks` runs when the options are known. Returns the exit status: 0, 2 for
/// a wrong command line, 1 for an exception or a benchmark that failed.
///
/// `other_mode` may return, when the options are known, what to do in place of benchmarks: its result is the exit
/// status, and flags of Google Benchmark are then an error.
using Mode = std::function<int()>;
int run(CLI::App& app, int argc, char** argv, const std::function<void()>& add_benchmarks,
        const std::function<Mode()>& other_mode = {});

/// Marks a benchmark as failed; the process ends with status 1.
void fail(benchmark::State& state, const std::string& why);

/// Measures the wall clock of the loop between its construction and rate().
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  /// A counter in units per second of wall time, for `per_iteration` units in each iteration.
  void rate(benchmark::State& state, const char* name, double per_iteration) const {
    state.counters[name] = per_iteration * static_cast<double>(state.iterations()) / seconds();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Independent normal numbers; the same for the same stream.
void fill_normal(float* data, index_t n, std::uint32_t stream);
void fill_normal(double* data, index_t n, std::uint32_t stream);

}  // namespace convolume::bench
