// Training iterations of whole nets on a synthetic volume, by themselves or side by side.
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "bench/net_side_by_side.hpp"
#include "bench/net_training.hpp"
#include "bench/support.hpp"
#include "convolume/cpu.hpp"

namespace convolume::bench {
namespace {

struct Options {
  std::vector<std::string> nets, overrides;
  std::string engine = "automatic";
  int threads = 0;
  double memory_gib = 4;
  NetContestOptions contest;
};

nets::NetworkOptions network_options(const Options& o) {
  return {.engine = engine_of(o.engine), .memory_budget = static_cast<std::size_t>(o.memory_gib * (1u << 30))};
}

/// The net that was measured last: Google Benchmark calls a benchmark several times.
struct Last {
  std::string net;
  std::unique_ptr<NetTraining> training;
};

void measure(benchmark::State& state, NetTraining& training) {
  training.step();  // the first iteration has no update, and fills the allocator
  training.step();
  const TransformCounts before = training.transforms();
  const Stopwatch watch;
  for (auto _ : state) training.step();
  watch.rate(state, "voxels/s", training.output_voxels());
  // Forward, the gradient of the input and the gradient of the weights.
  watch.rate(state, "GFLOP/s", 3e-9 * training.convolution_flops());
  const TransformCounts after = training.transforms();
  const auto each = [&](std::int64_t count) {
    return static_cast<double>(count) / static_cast<double>(state.iterations());
  };
  state.counters["fft_x"] = each(after.input - before.input);
  state.counters["fft_w"] = each(after.weights - before.weights);
  state.counters["fft_dy"] = each(after.gradient - before.gradient);
  state.counters["inverse"] = each(after.inverse - before.inverse);
  state.counters["tasks"] = static_cast<double>(training.tasks());
  state.counters["MiB"] = static_cast<double>(training.peak_bytes()) / (1 << 20);
}

std::vector<std::string> zoo() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(CONVOLUME_ZOO)) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void add(const Options& options, Last& last) {
  const int threads = options.threads > 0 ? options.threads : available_cpus();
  for (const std::string& file : options.nets.empty() ? zoo() : options.nets) {
    const nets::NetSpec spec = nets::load_net(file, options.overrides);
    const std::string name = fmt::format("net/{}/{}/threads:{}", spec.name, options.engine, threads);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=, &options, &last](benchmark::State& state) {
                                   try {
                                     if (last.net != file) {
                                       last.training.reset();
                                       last.training =
                                           std::make_unique<NetTraining>(spec, network_options(options), threads);
                                       last.net = file;
                                     }
                                     measure(state, *last.training);
                                   } catch (const std::exception& error) {
                                     fail(state, error.what());
                                   }
                                 })
        ->Unit(benchmark::kMillisecond)
        ->MeasureProcessCPUTime()
        ->UseRealTime();
  }
}

constexpr const char* description =
    "Training iterations of nets: update, forward, loss, backward, as one task graph.\n\n"
    "The data are a synthetic volume; patches and batch are those of the net's description. Terms: voxels/s counts\n"
    "output voxels that take part in the loss; GFLOP/s counts multiplications and additions of the direct way of all\n"
    "convolutions, forward and both gradients; fft_x, fft_w and fft_dy are forward transforms of inputs, weights and\n"
    "gradients per iteration, inverse what came back; tasks are those of the graph; MiB is the most memory held.\n\n"
    "With --side-by-side, or any option of it, one process trains the same net once for every backend of the FFT and\n"
    "with and without cached spectra. In each round each of these contestants does one iteration, another one first\n"
    "each time; medians and quartiles over the rounds are printed. The nets are the W x D nets of Feinberg 2015,\n"
    "figures 14 and 15 (D valid convolutions of W feature maps), unless --net names others. Without caching x_hat\n"
    "and w_hat are not kept from forward to backward and dy_hat is not shared by the two gradients: the same bits,\n"
    "which is checked, from more transforms. Kernels are transformed by FFTW's plans of whole volumes with FFTW, and\n"
    "by the faster of two ways natively. 'in FFTs' is the share of all workers' time inside transforms.";

/// The options that --side-by-side has by itself; each implies it.
constexpr std::array contest_flags{"--backend", "--cache", "--width",       "--depth",  "--kernel",
                                   "--extent",  "--rigor", "--min-seconds", "--rounds", "--json"};

void add_contest_options(CLI::App& app, NetContestOptions& o) {
  const std::map<std::string, bool> switches{{"on", true}, {"off", false}};
  app.add_option("--backend", o.backends, "Who transforms: native, fftw, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(backend_names()))
      ->option_text("NAMES [native,fftw]");
  app.add_option("--cache", o.caches, "Whether spectra are cached: on, off, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(switches))
      ->option_text("NAMES [on,off]");
  app.add_option("--width", o.widths, "Feature maps per layer, a net for each, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 100000))
      ->option_text("NUMBERS [30,100]");
  app.add_option("--depth", o.depth, "Layers")->check(CLI::Range(1, 1000))->option_text("NUMBER [8]");
  app.add_option("--kernel", o.kernel, "Voxels of a kernel along each axis")
      ->check(CLI::Range(1, 1000))
      ->option_text("NUMBER [5]");
  app.add_option("--extent", o.extent, "Voxels of the input along each axis")
      ->check(CLI::Range(1, 100000))
      ->option_text("NUMBER [48, or less where --memory ends]");
  app.add_option("--rigor", o.rigor, "How FFTW plans: estimate, measure, patient")
      ->transform(CLI::CheckedTransformer(rigor_names()))
      ->option_text("NAME [measure]");
  app.add_option("--rounds", o.rounds, "Least number of rounds")
      ->check(CLI::Range(1, 100000))
      ->option_text("NUMBER [5]");
  app.add_option("--min-seconds", o.min_seconds, "Least time of all rounds of a net together")
      ->check(CLI::Range(0.0, 86400.0))
      ->option_text("NUMBER [2]");
  app.add_option("--json", o.json, "Write the results there")->option_text("FILE");
}

int run_net(int argc, char** argv) {
  Options options;
  Last last;  // here, so that it is gone before static objects of the library are
  CLI::App app(description, "bench_net");
  bool side_by_side = false;
  app.add_option("--net", options.nets, "Net descriptions (TOML); all of the zoo, or W x D nets, without it")
      ->check(CLI::ExistingFile)
      ->option_text("FILE ...");
  app.add_option("--set", options.overrides, "table.key=value on top of each description, may be repeated")
      ->option_text("KEY=VALUE ...");
  app.add_option("--engine", options.engine, "automatic, fft_tiled, fft_volume, direct or reference")
      ->check(CLI::IsMember({"automatic", "fft_tiled", "fft_volume", "direct", "reference"}))
      ->option_text("NAME [automatic; fft_volume with --side-by-side]");
  app.add_option("--threads", options.threads, "Workers; 0 is one for each processor")
      ->check(CLI::Range(0, 1024))
      ->option_text("NUMBER [0]");
  app.add_option("--memory", options.memory_gib,
                 "GiB that kept weight spectra may hold, 0 is no limit; with --side-by-side, what all contestants may "
                 "hold together")
      ->check(CLI::Range(0.0, 1048576.0))
      ->option_text("NUMBER [4; 8 with --side-by-side]");
  app.add_flag("--side-by-side", side_by_side, "Compare backends and caching in one process");
  add_contest_options(app, options.contest);
  app.final_callback([&] {
    for (const char* flag : contest_flags) side_by_side = side_by_side || app.count(flag) > 0;
    if (!side_by_side) return;
    NetContestOptions& o = options.contest;
    if (!options.nets.empty()) {
      for (const char* flag : {"--width", "--depth", "--kernel", "--extent"}) {
        if (app.count(flag) == 0) continue;
        throw CLI::ValidationError(flag, "nets of --net have their own; leave it out, or use --set");
      }
    }
    o.nets = options.nets;
    o.overrides = options.overrides;
    o.threads = options.threads > 0 ? options.threads : available_cpus();
    if (app.count("--engine") > 0) o.engine = options.engine;
    if (app.count("--memory") > 0) o.memory_gib = options.memory_gib;
  });
  return run(
      app, argc, argv, [&] { add(options, last); },
      [&]() -> Mode {
        if (!side_by_side) return {};
        return [&] { return net_side_by_side(options.contest); };
      });
}

}  // namespace
}  // namespace convolume::bench

int main(int argc, char** argv) { return convolume::bench::run_net(argc, argv); }
