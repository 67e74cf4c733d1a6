// Transforms of cubes: every kind, both orders, smooth sizes and primes. One thread.
#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "bench/support.hpp"
#include "convolume/fft.hpp"
#include "convolume/memory.hpp"

namespace convolume::bench {
namespace {

struct Options {
  std::vector<index_t> sizes{16, 32, 48, 64, 96, 113, 128};
  std::vector<fft::Kind> kinds{fft::Kind::r2c, fft::Kind::c2r, fft::Kind::c2c_forward};
  std::vector<fft::Order> orders{fft::Order::natural, fft::Order::rotated};
  DataType type = DataType::f32;
  fft::Rigor rigor = fft::Rigor::estimate;
};

const std::map<std::string, fft::Kind> kind_names{{"r2c", fft::Kind::r2c},
                                                  {"c2r", fft::Kind::c2r},
                                                  {"c2c", fft::Kind::c2c_forward},
                                                  {"c2c_backward", fft::Kind::c2c_backward}};
const std::map<std::string, fft::Order> order_names{{"natural", fft::Order::natural}, {"rotated", fft::Order::rotated}};
const std::map<std::string, fft::Rigor> rigor_names{
    {"estimate", fft::Rigor::estimate}, {"measure", fft::Rigor::measure}, {"patient", fft::Rigor::patient}};
const std::map<std::string, DataType> type_names{{"f32", DataType::f32}, {"f64", DataType::f64}};

template <class Value>
const std::string& name_in(const std::map<std::string, Value>& names, Value value) {
  for (const auto& [name, candidate] : names) {
    if (candidate == value) return name;
  }
  throw InvalidArgument("bench_fft: a value without a name");
}

/// A block of bytes on cache line boundaries.
class Buffer {
 public:
  Buffer(std::pmr::memory_resource* memory, std::size_t bytes)
      : memory_(memory), bytes_(std::max<std::size_t>(bytes, 64)), data_(memory->allocate(bytes_, 64)) {}
  ~Buffer() { memory_->deallocate(data_, bytes_, 64); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* get() const { return data_; }

 private:
  std::pmr::memory_resource* memory_;
  std::size_t bytes_;
  void* data_;
};

void transform(benchmark::State& state, const fft::Problem& problem, fft::Rigor rigor) {
  const fft::Plan plan = fft::Plan::make(problem, {.rigor = rigor});
  SlabResource memory;
  const bool to_space = problem.kind == fft::Kind::c2r || problem.kind == fft::Kind::c2c_backward;
  const std::size_t in_bytes = to_space ? plan.spectrum_bytes() : plan.space_bytes();
  const std::size_t out_bytes = to_space ? plan.space_bytes() : plan.spectrum_bytes();
  const Buffer in(&memory, in_bytes), out(&memory, out_bytes), scratch(&memory, plan.scratch_bytes());
  if (problem.type == DataType::f32) {
    fill_normal(static_cast<float*>(in.get()), static_cast<index_t>(in_bytes / sizeof(float)), 1);
  } else {
    fill_normal(static_cast<double*>(in.get()), static_cast<index_t>(in_bytes / sizeof(double)), 1);
  }
  const Stopwatch watch;
  for (auto _ : state) {
    plan.execute(in.get(), out.get(), scratch.get());
    benchmark::ClobberMemory();
  }
  watch.rate(state, "GFLOP/s", 1e-9 * plan.flops());
}

void add(const Options& options) {
  for (const fft::Kind kind : options.kinds) {
    for (const index_t n : options.sizes) {
      for (const fft::Order order : options.orders) {
        const fft::Problem problem{.type = options.type, .kind = kind, .extent = Extent3::all(n), .order = order};
        const std::string name =
            fmt::format("fft/{}/{}x{}x{}/{}/{}/{}", name_in(kind_names, kind), n, n, n, name_in(order_names, order),
                        name_of(options.type), name_in(rigor_names, options.rigor));
        benchmark::RegisterBenchmark(name.c_str(),
                                     [problem, rigor = options.rigor](benchmark::State& state) {
                                       try {
                                         transform(state, problem, rigor);
                                       } catch (const std::exception& error) {
                                         fail(state, error.what());
                                       }
                                     })
            ->Unit(benchmark::kMicrosecond)
            ->UseRealTime();
      }
    }
  }
}

}  // namespace
}  // namespace convolume::bench

int main(int argc, char** argv) {
  using namespace convolume::bench;
  Options options;
  CLI::App app(
      "Discrete Fourier transforms of cubes, one thread.\n\n"
      "Terms: r2c is real to half-complex, c2r its inverse, c2c complex to complex (forward), all unnormalised. A\n"
      "spectrum in natural order lies as (Z, Y, X), in rotated order as (Y, X, Z): the outer transform writes its "
      "lines\n"
      "side by side. GFLOP/s counts 2.5 n log2 n operations for a real and 5 n log2 n for a complex transform of n\n"
      "points, the convention of FFTW's benchmarks, whatever the algorithm does.",
      "bench_fft");
  app.add_option("--sizes", options.sizes, "Edges of the cubes, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 2048))
      ->option_text("NUMBERS [16,32,48,64,96,113,128]");
  app.add_option("--kinds", options.kinds, "r2c, c2r, c2c, c2c_backward, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(kind_names))
      ->option_text("NAMES [r2c,c2r,c2c]");
  app.add_option("--orders", options.orders, "natural, rotated")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(order_names))
      ->option_text("NAMES [natural,rotated]");
  app.add_option("--type", options.type, "f32 or f64")
      ->transform(CLI::CheckedTransformer(type_names))
      ->option_text("NAME [f32]");
  app.add_option("--rigor", options.rigor, "How long the planner may search: estimate, measure, patient")
      ->transform(CLI::CheckedTransformer(rigor_names))
      ->option_text("NAME [estimate]");
  return run(app, argc, argv, [&] { add(options); });
}
