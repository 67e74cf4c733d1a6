// What all benchmarks share: the command line, the clock, and test data.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <CLI/CLI.hpp>
#include <benchmark/benchmark.h>

#include "convolume/tensor.hpp"

namespace convolume::bench {

/// Runs a benchmark; the body of its main(). Passes arguments that begin with --benchmark_ or --v= to Google Benchmark,
/// and all others to `app`. Unknown arguments are an error. Calls `add_benchmarks` after the options are read. Returns
/// the exit status: 0, or 2 for a wrong command line, or 1 for an exception or a failed benchmark.
///
/// `other_mode` is called after the options are read. If it returns a function, that function runs instead of Google
/// Benchmark, and its result is the exit status. Flags of Google Benchmark are then an error.
using Mode = std::function<int()>;
int run(CLI::App& app, int argc, char** argv, const std::function<void()>& add_benchmarks,
        const std::function<Mode()>& other_mode = {});

/// Marks a benchmark as failed. The process then ends with status 1.
void fail(benchmark::State& state, const std::string& why);

/// Measures the wall-clock time from its construction on.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  /// Sets a counter to units per second of wall-clock time. Each iteration does `per_iteration` units.
  void rate(benchmark::State& state, const char* name, double per_iteration) const {
    state.counters[name] = per_iteration * static_cast<double>(state.iterations()) / seconds();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Fills `data` with independent normal random numbers. Equal streams give equal numbers.
void fill_normal(float* data, index_t n, std::uint32_t stream);
void fill_normal(double* data, index_t n, std::uint32_t stream);

}  // namespace convolume::bench
