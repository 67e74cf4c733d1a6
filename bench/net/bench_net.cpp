// Benchmarks training iterations and inferences of whole nets, alone or side by side, also with other libraries.
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "bench/common/engine_names.hpp"
#include "bench/common/support.hpp"
#include "bench/net/measured_net.hpp"
#include "bench/net/net_side_by_side.hpp"
#include "bench/peers/peer_net.hpp"
#include "convolume/cpu.hpp"
#include "nets/spec/net_json.hpp"

namespace convolume::bench {
namespace {

struct Options {
  std::vector<std::string> nets, overrides;
  std::vector<Engine> engines{Engine::automatic};
  int threads = 0;
  double memory_gib = 4, scratch_mib = 0;
  NetContestOptions contest;
};

nets::NetworkOptions network_options(const Options& o) {
  return {.engine = o.engines.front(),
          .low_error = o.contest.low_error,
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
    const std::string name = fmt::format("net/{}/{}/threads:{}", spec.name, name_of(options.engines.front()), threads);
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
    "Training iterations of nets: update, forward, loss and backward as one task graph.\n\n"
    "The data are a synthetic volume. Classifiers get two batches of random images and classes: normal and uniform\n"
    "numbers of the counter-based generator Philox4x32-10, whose keys hold the seed 1 and the number of the image.\n"
    "Patch and batch are those of the net's description. Terms: voxels/s counts output voxels that count in the loss; "
    "these\n"
    "are images if the net is a classifier. GFLOP/s counts the multiplications and additions of all convolutions,\n"
    "forward and both gradients, if they are computed directly. fft_x, fft_w and fft_dy are forward transforms of\n"
    "inputs, weights and gradients per iteration; inverse counts inverse transforms. tasks is the number of tasks\n"
    "of the graph. MiB is the largest memory.\n\n"
    "With --side-by-side, or any option that only it has, the same net runs with every FFT backend, with and\n"
    "without cached spectra. Each of these competitors does one iteration per round (with --work inference: one\n"
    "inference), in an order that rotates. Medians and quartiles over the rounds are printed. The nets are the W\n"
    "x D nets of Feinberg 2015, figures 14 and 15 (D valid convolutions of W feature maps), unless --net names\n"
    "others. Without caching, x_hat and w_hat are not kept from forward to backward, and dy_hat is not shared by\n"
    "the two gradients. This gives the same bits, which is checked, from more transforms. With FFTW, kernels are\n"
    "transformed by FFTW's plans of whole volumes; natively, by the faster of two methods. An inference is a\n"
    "forward pass on the same patch and batch, with weights that are already prepared.\n\n"
    "With --peers the same net runs in other libraries too, each setting in a separate process: PyTorch in two\n"
    "memory formats (contiguous, channels_last_3d), and, for inference, onnxruntime and OpenVINO on the net that\n"
    "PyTorch exported to ONNX (OpenVINO also in bfloat16, if the processor has it). Ratios refer to the faster\n"
    "format. One competitor of ours takes part: native, cached, engine automatic. Each timed call follows 50 ms\n"
    "of rest and one untimed call. Version, threads, BLAS and oneDNN of each library are printed. A library that\n"
    "is missing is left out; tools/install_packages.sh --peers installs all. Threads of OpenMP spin while they\n"
    "wait; if the machine has other work, set OMP_WAIT_POLICY=passive in the environment.\n\n"
    "Peak MiB is the largest number of bytes that one of our nets allocated at once, from its second call on;\n"
    "'convolume info' predicts it. Resident is the growth of the process's resident memory, from before the net\n"
    "was built to its peak, for the processes of other libraries as for ours.\n\n"
    "Phases are seconds of all threads together, medians: transform (forward FFTs), product (all other work of\n"
    "convolution tasks), inverse (inverse FFTs), ops (all other tasks: other layers, loss, optimizer, patches,\n"
    "checks), other (no task runs).";

/// The options that only --side-by-side has. Each of them selects it.
constexpr std::array contest_flags{"--backend", "--cache",  "--hardened", "--limit", "--width",   "--depth",
                                   "--kernel",  "--extent", "--rigor",    "--peers", "--work",    "--min-seconds",
                                   "--rounds",  "--json",   "--trace",    "--batch", "--any-blas"};

void add_contest_options(CLI::App& app, NetContestOptions& o) {
  const std::map<std::string, bool> switches{{"on", true}, {"off", false}};
  app.add_option("--backend", o.backends, "FFT backends: native, fftw, separated by commas")
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
         "Whether the allocator checks its use, as with CONVOLUME_HARDENED_MEMORY=1: on, off, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"on", "off"}))
      ->option_text("NAMES [as the environment says]");
  app.add_option("--limit", o.limits,
                 "Memory of training, separated by commas: usual (what `convolume train` takes), all (keeps all "
                 "spectra), or MiB at the peak (the fastest way within them)")
      ->delimiter(',')
      ->check(CLI::IsMember({"usual", "all"}) | CLI::Range(1.0, 1e9))
      ->option_text("NAMES OR NUMBERS [usual]");
  const std::map<std::string, Work> works{{"training", Work::training}, {"inference", Work::inference}};
  app.add_option("--work", o.works, "What is timed: training, inference, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(works))
      ->option_text("NAMES [training; training,inference with --peers]");
  app.add_option("--peers", o.peers, "Other libraries: torch, onnxruntime, openvino, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"torch", "onnxruntime", "openvino"}))
      ->option_text("NAMES [none]");
  app.add_flag(
      "--any-blas", o.any_blas,
      "Measure PyTorch with any BLAS. Otherwise PyTorch needs OpenBLAS, MKL or BLIS, because others hold it back");
  app.add_option("--batch", o.batches, "Batches of all competitors, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536))
      ->option_text("NUMBERS [the net's]");
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
  app.add_option("--rigor", o.rigor, "Planning effort of FFTW: estimate, measure, patient")
      ->transform(CLI::CheckedTransformer(rigor_names()))
      ->option_text("NAME [measure]");
  app.add_option("--rounds", o.rounds, "Least number of rounds")
      ->check(CLI::Range(1, 100000))
      ->option_text("NUMBER [5]");
  app.add_option("--min-seconds", o.min_seconds, "Least total time of all rounds of a net")
      ->check(CLI::Range(0.0, 86400.0))
      ->option_text("NUMBER [2]");
  app.add_option("--json", o.json, "File for the results")->option_text("FILE");
  app.add_option("--trace", o.trace,
                 "File for a trace of the last timed call of each of our competitors, for chrome://tracing or "
                 "ui.perfetto.dev")
      ->option_text("FILE");
}

/// Sets the defaults of a comparison with other libraries: the settings that users would run.
void use_defaults_for_peers(const CLI::App& app, NetContestOptions& o) {
  o.engines = {Engine::automatic};
  if (app.count("--backend") == 0) o.backends = {fft::Backend::native};
  if (app.count("--cache") == 0) o.caches = {true};
  if (app.count("--work") == 0) o.works = {Work::training, Work::inference};
}

/// A library that only infers needs inference.
void check_peers(const NetContestOptions& o) {
  if (std::find(o.works.begin(), o.works.end(), Work::inference) != o.works.end()) return;
  for (const std::string& name : o.peers) {
    if (trains(name)) continue;
    throw CLI::ValidationError("--peers", fmt::format("{} does not train; add inference to --work", name));
  }
}

/// A number of MiB limits training in an arena only.
void check_limits(const NetContestOptions& o) {
  const bool training = o.works == std::vector{Work::training};
  const bool arena = o.memory == std::vector{nets::MemoryMode::arena};
  for (const std::string& limit : o.limits) {
    if (limit == "usual" || limit == "all" || (training && arena)) continue;
    throw CLI::ValidationError("--limit",
                               "MiB limit training in an arena; use --work training and --memory-mode arena");
  }
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
  app.add_option("--net", options.nets,
                 "Net descriptions (TOML); if absent, all nets of the zoo, or W x D nets with --side-by-side")
      ->check(CLI::ExistingFile)
      ->option_text("FILE ...");
  app.add_option("--set", options.overrides, "table.key=value replaces a value of each description; may be repeated")
      ->option_text("KEY=VALUE ...");
  app.add_option(
         "--engine", options.engines,
         "Engine of the convolutions: automatic, fft_tiled, fft_volume, toom_cook, direct, reference or onednn (if the "
         "library was built with it; transposed convolutions stay automatic). With --side-by-side also several, "
         "separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(engine_names()))
      ->option_text("NAMES [automatic; fft_volume with --side-by-side and no peers]");
  app.add_flag("--low-error", options.contest.low_error, "Leave out engines with a larger error (toom_cook)");
  app.add_option("--threads", options.threads, "Threads; 0 means one per physical core")
      ->check(CLI::Range(0, 1024))
      ->option_text("NUMBER [0]");
  const std::map<std::string, nets::MemoryMode> modes{
      {"arena", nets::MemoryMode::arena}, {"slab", nets::MemoryMode::slab}, {"separate", nets::MemoryMode::separate}};
  app.add_option("--memory-mode", options.contest.memory,
                 "Memory mode of tensors and spectra: arena, slab or separate; with --side-by-side also several, "
                 "separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(modes))
      ->option_text("NAMES [arena]");
  app.add_option(
         "--memory-budget", options.memory_gib,
         "GiB that cached spectra may hold, 0 means no limit; with --side-by-side, GiB that all our competitors "
         "may hold together")
      ->check(CLI::Range(0.0, 1048576.0))
      ->option_text("NUMBER [4; 8 with --side-by-side]");
  app.add_option("--scratch-budget", options.scratch_mib,
                 "MiB of scratch that our running tasks may hold together; 0 means no limit")
      ->check(CLI::Range(0.0, 1048576.0))
      ->option_text("NUMBER [0]");
  app.add_flag("--side-by-side", side_by_side, "Compare backends, caching and other libraries, in turn");
  app.add_flag("--describe", describe, "Print the net of --net as JSON, with generators expanded, for bench/peers");
  add_contest_options(app, options.contest);
  app.final_callback([&] {
    if (describe && options.nets.size() != 1) throw CLI::ValidationError("--describe", "name one net with --net");
    for (const char* flag : contest_flags) side_by_side = side_by_side || app.count(flag) > 0;
    if (!side_by_side) return;
    if (describe) throw CLI::ValidationError("--describe", "it times nothing; leave out other modes and their options");
    NetContestOptions& o = options.contest;
    if (!options.nets.empty()) {
      for (const char* flag : {"--width", "--depth", "--kernel", "--extent"}) {
        if (app.count(flag) == 0) continue;
        throw CLI::ValidationError(flag, "nets of --net have their own; leave it out or use --set");
      }
    }
    o.nets = options.nets;
    o.overrides = options.overrides;
    o.scheduling = scheduling(options);
    o.threads = options.threads > 0 ? options.threads : default_threads();
    if (!o.peers.empty()) use_defaults_for_peers(app, o);
    if (app.count("--engine") > 0) o.engines = options.engines;
    if (app.count("--memory-budget") > 0) o.memory_gib = options.memory_gib;
    check_limits(o);
    check_peers(o);
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
