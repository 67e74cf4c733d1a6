// Benchmarks training iterations and inferences of whole nets, alone or side by side, also with PyTorch.
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "bench/common/support.hpp"
#include "bench/net/measured_net.hpp"
#include "bench/net/net_side_by_side.hpp"
#include "convolume/cpu.hpp"
#include "nets/net_json.hpp"

namespace convolume::bench {
namespace {

struct Options {
  std::vector<std::string> nets, overrides;
  std::string engine = "automatic";
  int threads = 0;
  double memory_gib = 4, scratch_mib = 0;
  NetContestOptions contest;
};

nets::NetworkOptions network_options(const Options& o) {
  return {.engine = engine_of(o.engine),
          .memory_budget = static_cast<std::size_t>(o.memory_gib * (1u << 30)),
          .memory_mode = o.contest.memory.front()};
}

SchedulerOptions scheduling(const Options& o) {
  return {.scratch_budget = static_cast<std::size_t>(o.scratch_mib * (1u << 20))};
}

/// The net that was measured last. It is kept because Google Benchmark calls a benchmark several times.
struct Last {
  std::string net;
  std::unique_ptr<MeasuredNet> training;
};

void measure(benchmark::State& state, MeasuredNet& training) {
  training.call();  // the first iteration has no update, and it fills the allocator
  training.call();
  const TransformCounts before = training.transforms();
  const Stopwatch watch;
  for (auto _ : state) training.call();
  watch.rate(state, "voxels/s", training.output_voxels());
  watch.rate(state, "GFLOP/s", 1e-9 * training.flops());
  const TransformCounts counted = training.transforms() - before;
  const auto each = [&](std::int64_t count) {
    return static_cast<double>(count) / static_cast<double>(state.iterations());
  };
  state.counters["fft_x"] = each(counted.input);
  state.counters["fft_w"] = each(counted.weights);
  state.counters["fft_dy"] = each(counted.gradient);
  state.counters["inverse"] = each(counted.inverse);
  state.counters["tasks"] = static_cast<double>(training.graph().size());
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
  const int threads = options.threads > 0 ? options.threads : default_threads();
  for (const std::string& file : options.nets.empty() ? zoo() : options.nets) {
    const nets::NetSpec spec = nets::load_net(file, options.overrides);
    const std::string name = fmt::format("net/{}/{}/threads:{}", spec.name, options.engine, threads);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=, &options, &last](benchmark::State& state) {
                                   try {
                                     if (last.net != file) {
                                       last.training.reset();
                                       last.training = MeasuredNet::make(Work::training, spec, network_options(options),
                                                                         threads, scheduling(options));
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
    "With --side-by-side, or any option of it, the same net works once for every backend of the FFT and with and\n"
    "without cached spectra. In each round each of these contestants does one iteration (--work: or one inference),\n"
    "another one first each time; medians and quartiles over the rounds are printed. The nets are the W x D nets of\n"
    "Feinberg 2015, figures 14 and 15 (D valid convolutions of W feature maps), unless --net names others. Without\n"
    "caching x_hat and w_hat are not kept from forward to backward and dy_hat is not shared by the two gradients: the\n"
    "same bits, which is checked, from more transforms. Kernels are transformed by FFTW's plans of whole volumes with\n"
    "FFTW, and by the faster of two ways natively. An inference is a forward pass of a net whose weights were "
    "prepared\n"
    "before, on the same patch and batch.\n\n"
    "With --peers torch the same net in PyTorch takes its turns too, in a process of its own for each memory format\n"
    "(contiguous, channels_last_3d; ratios are with the faster one), and one contestant of ours: native, cached, "
    "engine\n"
    "automatic. Before every timed call lie 50 ms of rest and a call that is not timed. Where PyTorch is missing, "
    "ours\n"
    "run without it. Its threads spin while they wait: where the machine has other work, set OMP_WAIT_POLICY=passive "
    "in\n"
    "the environment.\n\n"
    "Peak MiB are the most bytes that a net of ours asked for at once, from its second call on; 'convolume info' "
    "tells\n"
    "them beforehand. Resident is the growth of the process's resident memory, from before the net was built up to "
    "its\n"
    "peak, of PyTorch's process as of ours.\n\n"
    "Phases are seconds of all threads together, medians: transform (forward FFTs), product (what else the tasks of\n"
    "convolutions do), inverse (FFTs), ops (all other tasks: other layers, loss, optimizer, patches, checks), other "
    "(no\n"
    "task runs).";

/// The options that only --side-by-side has. Each of them selects it.
constexpr std::array contest_flags{"--backend",     "--cache",  "--hardened", "--width", "--depth",
                                   "--kernel",      "--extent", "--rigor",    "--peers", "--work",
                                   "--min-seconds", "--rounds", "--json",     "--trace"};

void add_contest_options(CLI::App& app, NetContestOptions& o) {
  const std::map<std::string, bool> switches{{"on", true}, {"off", false}};
  app.add_option("--backend", o.backends, "Who transforms: native, fftw, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(backend_names()))
      ->option_text("NAMES [native,fftw; native with --peers]");
  app.add_option("--cache", o.caches, "Whether spectra are cached: on, off, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(switches))
      ->option_text("NAMES [on,off; on with --peers]");
  app.add_option_function<std::vector<std::string>>(
         "--hardened",
         [&o](const std::vector<std::string>& values) {
           o.hardened.clear();
           for (const std::string& value : values) o.hardened.emplace_back(value == "on");
         },
         "Whether memory is checked as with CONVOLUME_HARDENED_MEMORY=1: on, off, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"on", "off"}))
      ->option_text("NAMES [as the environment says]");
  const std::map<std::string, Work> works{{"training", Work::training}, {"inference", Work::inference}};
  app.add_option("--work", o.works, "What is timed: training, inference, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(works))
      ->option_text("NAMES [training; training,inference with --peers]");
  app.add_option_function<std::string>(
         "--peers", [&o](const std::string& peer) { o.torch = peer == "torch"; }, "Who else takes turns: torch, none")
      ->check(CLI::IsMember({"torch", "none"}))
      ->option_text("NAME [none]");
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
      ->option_text("NUMBER [48, or less where --memory-budget ends]");
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
  app.add_option("--trace", o.trace,
                 "Write what each thread did in the last timed call of each of our contestants there, for "
                 "chrome://tracing or ui.perfetto.dev")
      ->option_text("FILE");
}

/// Sets the defaults of a comparison with PyTorch: the settings that users would run.
void use_defaults_for_peers(const CLI::App& app, NetContestOptions& o) {
  o.engine = "automatic";
  if (app.count("--backend") == 0) o.backends = {fft::Backend::native};
  if (app.count("--cache") == 0) o.caches = {true};
  if (app.count("--work") == 0) o.works = {Work::training, Work::inference};
}

int describe_net(const Options& options) {
  fmt::print("{}", nets::to_json(nets::load_net(options.nets.front(), options.overrides)));
  return 0;
}

int run_net(int argc, char** argv) {
  Options options;
  Last last;  // declared here, so that it is destroyed before static objects of the library
  CLI::App app(description, "bench_net");
  bool side_by_side = false, describe = false;
  app.add_option("--net", options.nets, "Net descriptions (TOML); all of the zoo, or W x D nets, without it")
      ->check(CLI::ExistingFile)
      ->option_text("FILE ...");
  app.add_option("--set", options.overrides, "table.key=value on top of each description, may be repeated")
      ->option_text("KEY=VALUE ...");
  app.add_option("--engine", options.engine, "automatic, fft_tiled, fft_volume, direct or reference")
      ->check(CLI::IsMember({"automatic", "fft_tiled", "fft_volume", "direct", "reference"}))
      ->option_text("NAME [automatic; fft_volume with --side-by-side and no peers]");
  app.add_option("--threads", options.threads, "Workers; 0 is one for each physical core")
      ->check(CLI::Range(0, 1024))
      ->option_text("NUMBER [0]");
  const std::map<std::string, nets::MemoryMode> modes{
      {"arena", nets::MemoryMode::arena}, {"slab", nets::MemoryMode::slab}, {"apart", nets::MemoryMode::apart}};
  app.add_option("--memory", options.contest.memory,
                 "Where tensors and spectra live: arena, slab, apart; with --side-by-side also several, separated by "
                 "commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(modes))
      ->option_text("NAMES [arena]");
  app.add_option("--memory-budget", options.memory_gib,
                 "GiB that kept spectra may hold, 0 is no limit; with --side-by-side, what all contestants of "
                 "ours may hold together")
      ->check(CLI::Range(0.0, 1048576.0))
      ->option_text("NUMBER [4; 8 with --side-by-side]");
  app.add_option("--scratch-budget", options.scratch_mib,
                 "MiB of scratch that the running tasks of ours may hold together, 0 is no limit")
      ->check(CLI::Range(0.0, 1048576.0))
      ->option_text("NUMBER [0]");
  app.add_flag("--side-by-side", side_by_side, "Compare backends, caching and PyTorch, in turn");
  app.add_flag("--describe", describe,
               "Write the net of --net as JSON, generators expanded, for torch_net.py, and end");
  add_contest_options(app, options.contest);
  app.final_callback([&] {
    if (describe && options.nets.size() != 1) throw CLI::ValidationError("--describe", "name one net with --net");
    for (const char* flag : contest_flags) side_by_side = side_by_side || app.count(flag) > 0;
    if (!side_by_side) return;
    if (describe) throw CLI::ValidationError("--describe", "nothing is timed; leave other modes and their options out");
    NetContestOptions& o = options.contest;
    if (!options.nets.empty()) {
      for (const char* flag : {"--width", "--depth", "--kernel", "--extent"}) {
        if (app.count(flag) == 0) continue;
        throw CLI::ValidationError(flag, "nets of --net have their own; leave it out, or use --set");
      }
    }
    o.nets = options.nets;
    o.overrides = options.overrides;
    o.scheduling = scheduling(options);
    o.threads = options.threads > 0 ? options.threads : default_threads();
    if (o.torch) use_defaults_for_peers(app, o);
    if (app.count("--engine") > 0) o.engine = options.engine;
    if (app.count("--memory-budget") > 0) o.memory_gib = options.memory_gib;
  });
  return run(
      app, argc, argv, [&] { add(options, last); },
      [&]() -> Mode {
        if (describe) return [&] { return describe_net(options); };
        if (!side_by_side) return {};
        return [&] { return net_side_by_side(options.contest); };
      });
}

}  // namespace
}  // namespace convolume::bench

int main(int argc, char** argv) { return convolume::bench::run_net(argc, argv); }
