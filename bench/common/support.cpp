#include "bench/common/support.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"
#include "convolume/machine.hpp"
#include "convolume/version.hpp"
#include "core/random.hpp"

namespace convolume::bench {
namespace {

bool any_failed = false;

constexpr const char* footer =
    "Flags of Google Benchmark are accepted too, for example:\n"
    "  --benchmark_filter=REGEX          run only benchmarks whose names match\n"
    "  --benchmark_list_tests            print the names and exit\n"
    "  --benchmark_min_time=SECONDS      measure each for at least this time\n"
    "  --benchmark_repetitions=N         measure each N times and report mean, median and spread\n"
    "  --benchmark_format=console|json|csv, --benchmark_out=FILE, --benchmark_out_format=...";

bool for_google(std::string_view argument) {
  return argument.starts_with("--benchmark_") || argument.starts_with("--v=");
}

int run_mode(const std::string& name, const Mode& mode) {
  try {
    return mode();
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  }
}

template <class T>
void fill(T* data, index_t n, std::uint32_t stream) {
  const RandomKey key{.seed = 7, .a = stream};
  for (index_t i = 0; i < n; ++i) data[i] = static_cast<T>(normal(key, static_cast<std::uint64_t>(i)));
}

}  // namespace

int run(CLI::App& app, int argc, char** argv, const std::function<void()>& add_benchmarks,
        const std::function<Mode()>& other_mode) {
  const std::string name = app.get_name();
  std::vector<char*> google{argv[0]}, ours{argv[0]};
  for (int i = 1; i < argc; ++i) (for_google(argv[i]) ? google : ours).push_back(argv[i]);
  app.footer(footer);
  std::string machine;
  app.add_option("--machine", machine,
                 "Machine row for the cost models: a file, or the name of a built-in row (default: CONVOLUME_MACHINE)")
      ->option_text("ROW");
  try {
    app.parse(static_cast<int>(ours.size()), ours.data());
    if (!machine.empty()) {
      ::setenv("CONVOLUME_MACHINE", machine.c_str(), 1);  // for child processes too
      select_machine(machine);
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 2;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (const Mode mode = other_mode ? other_mode() : Mode()) {
    if (google.size() == 1) return run_mode(name, mode);
    std::fprintf(stderr, "%s: %s has no effect without Google Benchmark; leave it out\n", name.c_str(), google[1]);
    return 2;
  }
  int left = static_cast<int>(google.size());
  google.push_back(nullptr);
  benchmark::Initialize(&left, google.data());
  if (benchmark::ReportUnrecognizedArguments(left, google.data())) return 2;
  try {
    add_benchmarks();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  }
  benchmark::AddCustomContext("convolume", version());
  benchmark::AddCustomContext("processor", cpu_name());
  benchmark::AddCustomContext("simd", simd_target());
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return any_failed ? 1 : 0;
}

void fail(benchmark::State& state, const std::string& why) {
  any_failed = true;
  state.SkipWithError(why.c_str());
}

void fill_normal(float* data, index_t n, std::uint32_t stream) { fill(data, n, stream); }
void fill_normal(double* data, index_t n, std::uint32_t stream) { fill(data, n, stream); }

}  // namespace convolume::bench
