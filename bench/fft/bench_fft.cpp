// Benchmarks transforms of cubes with this library and FFTW on one thread: with Google Benchmark, side by side, the
// algorithms for primes, tiles, and a check of every result.
#include <array>

#include <fmt/format.h>

#include "bench/common/support.hpp"
#include "bench/fft/fft_competitors.hpp"
#include "bench/fft/fft_once.hpp"
#include "bench/fft/fft_options.hpp"
#include "bench/fft/fft_primes.hpp"
#include "bench/fft/fft_report.hpp"
#include "bench/fft/fft_side_by_side.hpp"
#include "bench/fft/fft_tiles.hpp"
#include "bench/fft/fft_verify.hpp"

namespace convolume::bench {
namespace {

constexpr index_t largest_cube = 2048;

constexpr const char* description =
    "Discrete Fourier transforms on one thread: by this library (native) and by FFTW.\n\n"
    "Modes:\n"
    "  (none)          Google Benchmark: measures cubes, every combination of the flags by itself.\n"
    "  --side-by-side  Times cubes with all competitors in turn in one process, with medians over many rounds.\n"
    "                  Prints the ratio of FFTW's time to ours, its spread, and geometric means over all sizes,\n"
    "                  over smooth sizes (no prime factor above 13) and over primes of 17 or more.\n"
    "  --primes        Times 256 complex lines of each prime length with every algorithm for primes, and shows\n"
    "                  the choice of the cost model.\n"
    "  --tiles SIZES   Times 64 cubes of so many voxels per axis and 64 bytes of channels. They are cut from a\n"
    "                  blocked volume, transformed and inverted as in a tiled convolution with kernels of 5\n"
    "                  voxels per axis: three at a time, and all at once. An inverse of the valid part counts as\n"
    "                  many operations as a full one.\n"
    "  --once          Executes one transform --repeat times, for profilers and simulators\n"
    "                  (bench/fft/cache_misses.py).\n"
    "  --verify        Checks results instead of timing them. Compares every result with a reference, on every\n"
    "                  instruction set of this machine (or on CONVOLUME_SIMD, if it is set). The exit status is 1\n"
    "                  if anything fails.\n\n"
    "Terms: r2c is real to half-complex, c2r its inverse, c2c complex to complex (forward). All are unnormalised.\n"
    "A spectrum has the order (Z, Y, X) if it is natural, and (Y, X, Z) if it is rotated: then the outer\n"
    "transform writes its lines side by side. FFTW always computes in natural order, with its own\n"
    "three-dimensional plan: fftw with FFTW_MEASURE, fftw-patient with FFTW_PATIENT. With --once, fftw uses\n"
    "FFTW_ESTIMATE. algorithm2 is this library's volume transform with FFTW's lines and planes, planned with\n"
    "FFTW_ESTIMATE. ducc0 is called from Python, in a process of its own; the report has the cost of a call. mkl is\n"
    "MKL's DFTI. Both are those of build/peers (tools/install_packages.sh --peers). GFLOP/s counts 2.5 n log2 n\n"
    "operations for a real and 5 n log2 n for a complex transform of n points, whatever the algorithm does;\n"
    "this is the convention of FFTW's benchmarks. The floor is the least\n"
    "time of this machine: these operations at the peak of a core, or one pass over input and output at the\n"
    "bandwidth of the smallest cache that holds both. The report gives the floor as a share of our time.\n\n"
    "FFTW's plans are stored on disk (--fftw-wisdom), so that only the first run waits for its planner.";

struct Flags {
  FftOptions options;
  DataType precision = DataType::f32;
  bool side_by_side = false, primes = false, tiles = false, once = false, verify = false;
};

enum Modes : unsigned {
  in_benchmark = 1,
  in_side_by_side = 2,
  in_primes = 4,
  in_tiles = 8,
  in_once = 16,
  in_verify = 32,
  in_all = 63
};

Modes mode_of(const Flags& flags) {
  if (flags.side_by_side) return in_side_by_side;
  if (flags.primes) return in_primes;
  if (flags.tiles) return in_tiles;
  if (flags.once) return in_once;
  return flags.verify ? in_verify : in_benchmark;
}

const char* mode_name(Modes mode) {
  switch (mode) {
    case in_side_by_side:
      return "--side-by-side";
    case in_primes:
      return "--primes";
    case in_tiles:
      return "--tiles";
    case in_once:
      return "--once";
    case in_verify:
      return "--verify";
    default:
      return "a run without --side-by-side, --primes or --tiles";
  }
}

/// A flag that only some modes use. In other modes it is an error, not ignored.
struct Scope {
  const char* flag;
  unsigned modes;
};

constexpr std::array scopes{
    Scope{"--sizes", in_all & ~in_tiles},
    Scope{"--kind", in_all & ~(in_primes | in_tiles)},
    Scope{"--order", in_all & ~(in_primes | in_tiles)},
    Scope{"--impl", in_benchmark | in_side_by_side | in_once},
    Scope{"--algorithm", in_all & ~(in_primes | in_tiles)},
    Scope{"--rounds", in_side_by_side | in_primes | in_tiles},
    Scope{"--min-seconds", in_side_by_side | in_primes | in_tiles},
    Scope{"--repeat", in_once},
    Scope{"--json", in_side_by_side | in_primes | in_tiles},
    Scope{"--fftw-wisdom", in_benchmark | in_side_by_side},
};

void check_scopes(const CLI::App& app, const Flags& flags) {
  const Modes mode = mode_of(flags);
  if (mode != in_side_by_side && (flags.options.has(Implementation::ducc0) || flags.options.has(Implementation::mkl))) {
    throw CLI::ValidationError("--impl", "ducc0 and mkl take part with --side-by-side only");
  }
  for (const Scope& scope : scopes) {
    if ((scope.modes & mode) == 0 && app.count(scope.flag) > 0) {
      throw CLI::ValidationError(scope.flag, fmt::format("{} does not use it; leave it out", mode_name(mode)));
    }
  }
  const bool cubes = (mode & (in_primes | in_tiles | in_verify)) == 0;
  if (!cubes || flags.options.sizes.empty() || flags.options.sizes.back() <= largest_cube) return;
  throw CLI::ValidationError(
      "--sizes", fmt::format("{} is too large for a cube; use 1 to {}", flags.options.sizes.back(), largest_cube));
}

void set_defaults(const CLI::App& app, Flags& flags) {
  FftOptions& o = flags.options;
  using fft::Kind, fft::Order;
  o.types = {flags.precision};
  if (flags.verify && app.count("--precision") == 0) o.types = {DataType::f32, DataType::f64};
  if (o.kinds.empty()) o.kinds = {Kind::r2c};
  if (o.orders.empty()) o.orders = {Order::rotated};
  if (flags.verify && app.count("--kind") == 0) o.kinds = {Kind::r2c, Kind::c2r, Kind::c2c_forward, Kind::c2c_backward};
  if (flags.verify && app.count("--order") == 0) o.orders = {Order::natural, Order::rotated};
  if (flags.tiles && app.count("--rounds") == 0) o.rounds = 15;
  if (flags.once && app.count("--impl") == 0) o.implementations = {Implementation::native};
  if (o.sizes.empty()) {
    o.sizes = parse_sizes(flags.primes   ? "17:300"
                          : flags.verify ? "1:300"
                          : flags.once   ? "64"
                                         : "16,32,48,64,96,113,128");
  }
}

void transform(benchmark::State& state, std::unique_ptr<Competitor> competitor, fft::Kind kind, DataType type,
               index_t n) {
  std::vector<std::unique_ptr<Competitor>> competitors;
  competitors.push_back(std::move(competitor));
  Arena arena(std::move(competitors), type, kind == fft::Kind::c2r);
  double seconds = 0;
  for (auto _ : state) {
    const double call = arena.time(0, 1);
    state.SetIterationTime(call);
    seconds += call;
  }
  const double flops = nominal_flops(kind, static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n));
  state.counters["GFLOP/s"] = 1e-9 * flops * static_cast<double>(state.iterations()) / seconds;
}

using MakeCompetitor = std::function<std::unique_ptr<Competitor>()>;

void add(const std::string& name, fft::Kind kind, DataType type, index_t n, const MakeCompetitor& make) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 try {
                                   transform(state, make(), kind, type, n);
                                 } catch (const std::exception& error) {
                                   fail(state, error.what());
                                 }
                               })
      ->Unit(benchmark::kMicrosecond)
      ->UseManualTime();
}

void add_size(const FftOptions& options, FftwPlanner& planner, fft::Kind kind, index_t n) {
  const DataType type = options.types.front();
  const std::string name = fmt::format("fft/{}/{}x{}x{}/{}", name_of(kind), n, n, n, precision_name(type));
  for (const Implementation implementation : options.implementations) {
    if (implementation == Implementation::fftw || implementation == Implementation::fftw_patient) {
      add(fmt::format("{}/natural/{}", name, name_of(implementation)), kind, type, n,
          [&planner, kind, n, implementation] { return planner.competitor(kind, n, implementation); });
      continue;
    }
    for (const fft::Order order : options.orders) {
      const fft::Problem problem{.type = type, .kind = kind, .extent = Extent3::all(n), .order = order};
      add(fmt::format("{}/{}/{}", name, name_of(order), name_of(implementation)), kind, type, n,
          [problem, implementation, prime = options.prime] {
            return implementation == Implementation::native ? native_contestant(problem, prime)
                                                            : algorithm2_contestant(problem);
          });
    }
  }
}

CLI::Validator sizes_validator() {
  return CLI::Validator(
      [](const std::string& text) {
        try {
          parse_sizes(text);
        } catch (const std::exception& error) {
          return std::string(error.what());
        }
        return std::string();
      },
      "");
}

void add_options(CLI::App& app, Flags& flags, std::string& sizes, std::string& tile_sizes) {
  FftOptions& o = flags.options;
  auto* side_by_side = app.add_flag("--side-by-side", flags.side_by_side, "Compare with FFTW in one process");
  auto* primes = app.add_flag("--primes", flags.primes, "Compare the algorithms for primes")->excludes(side_by_side);
  auto* tiles =
      app.add_option("--tiles", tile_sizes, "Time tiles with these numbers of voxels per axis, e.g. 8,12,16,24,32")
          ->check(sizes_validator())
          ->option_text("SIZES")
          ->excludes(side_by_side)
          ->excludes(primes);
  auto* once = app.add_flag("--once", flags.once, "Execute one transform --repeat times, without timing it")
                   ->excludes(side_by_side)
                   ->excludes(primes)
                   ->excludes(tiles);
  app.add_option("--repeat", o.repeat, "Executions with --once")
      ->check(CLI::Range(1, 1000000))
      ->option_text("NUMBER [1]");
  app.add_flag("--verify", flags.verify, "Check results instead of timing them")
      ->excludes(side_by_side)
      ->excludes(primes)
      ->excludes(tiles)
      ->excludes(once);
  app.add_option("--sizes", sizes, "Lengths, e.g. 16,17,20:24 or 8:256:8 (first:last:step)")
      ->check(sizes_validator())
      ->option_text("SIZES [16,32,48,64,96,113,128; 17:300 with --primes; 1:300 with --verify; 64 with --once]");
  app.add_option("--kind", o.kinds, "r2c, c2r, c2c, c2c_backward, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(kind_names()))
      ->option_text("NAMES [r2c; all with --verify]");
  app.add_option("--precision", flags.precision, "float or double")
      ->transform(CLI::CheckedTransformer(precision_names()))
      ->option_text("NAME [float; both with --verify]");
  app.add_option("--order", o.orders, "Order of native spectra: rotated, natural, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(order_names()))
      ->option_text("NAMES [rotated; both with --verify]");
  app.add_option("--impl", o.implementations,
                 "native, fftw, fftw-patient, algorithm2, and with --side-by-side ducc0 and mkl, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(implementation_names()))
      ->option_text("NAMES [native,fftw; native with --once]");
  app.add_option("--algorithm", o.prime,
                 "How native transforms primes above 13: automatic, generic, rader, rader-padded, bluestein")
      ->transform(CLI::CheckedTransformer(algorithm_names()))
      ->option_text("NAME [automatic]");
  app.add_option("--rounds", o.rounds, "Least number of rounds per size")
      ->check(CLI::Range(1, 1000000))
      ->option_text("NUMBER [9; 15 with --tiles]");
  app.add_option("--min-seconds", o.min_seconds, "Least total time of all rounds of a size")
      ->check(CLI::Range(0.0, 3600.0))
      ->option_text("NUMBER [0.15]");
  app.add_option("--json", o.json, "File for the results of --side-by-side, --primes or --tiles")->option_text("FILE");
  app.add_option("--fftw-wisdom", o.fftw_wisdom, "File for FFTW's measured plans; patient plans are in FILE-patient")
      ->option_text("FILE [~/.cache/convolume/fftw-wisdom-PRECISION]");
}

int run_fft(int argc, char** argv) {
  Flags flags;
  std::string sizes, tile_sizes;
  CLI::App app(description, "bench_fft");
  add_options(app, flags, sizes, tile_sizes);
  app.final_callback([&] {
    flags.tiles = !tile_sizes.empty();
    if (!sizes.empty() || flags.tiles) flags.options.sizes = parse_sizes(flags.tiles ? tile_sizes : sizes);
    check_scopes(app, flags);
    set_defaults(app, flags);
  });
  const FftOptions& options = flags.options;
  std::unique_ptr<FftwPlanner> planner;  // outlives the benchmarks that refer to it
  const auto add_benchmarks = [&] {
    planner = std::make_unique<FftwPlanner>(options.types.front(), options.fftw_wisdom);
    for (const fft::Kind kind : options.kinds) {
      for (const index_t n : options.sizes) add_size(options, *planner, kind, n);
    }
  };
  return run(app, argc, argv, add_benchmarks, [&]() -> Mode {
    if (flags.side_by_side) return [&] { return side_by_side(options); };
    if (flags.primes) return [&] { return primes(options); };
    if (flags.tiles) return [&] { return tiles(options); };
    if (flags.once) return [&] { return once(options); };
    if (flags.verify) return [&] { return verify(options); };
    return {};
  });
}

}  // namespace
}  // namespace convolume::bench

int main(int argc, char** argv) { return convolume::bench::run_fft(argc, argv); }
