// The convolume command: train, infer, eval, info, machine, export, simulate.
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <thread>

#include "tools/info.hpp"
#include "tools/jemalloc_resource.hpp"
#include "tools/machine.hpp"
#include "tools/progress.hpp"
#include "tools/simulate.hpp"
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/cpu.hpp"
#include "convolume/machine.hpp"
#include "convolume/nets.hpp"
#include "convolume/version.hpp"

namespace {

using namespace convolume;

// Exit codes beside 0. CLI11 uses 100 and more for a wrong command line.
constexpr int failed = 1;
constexpr int interrupted = 130;  // as in the shell: 128 + SIGINT

std::atomic<bool> signalled{false};

/// Notes the first signal; a second one ends the process at once.
void on_signal(int number) {
  signalled.store(true);
  std::signal(number, SIG_DFL);
}

/// Turns Ctrl-C and SIGTERM into a stop request, outside the signal handler.
class StopOnSignal {
 public:
  StopOnSignal() : watcher_([this](const std::stop_token& done) { watch(done); }) {
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
  }
  std::stop_token token() const { return source_.get_token(); }

 private:
  void watch(const std::stop_token& done) {
    while (!done.stop_requested()) {
      if (signalled.load()) source_.request_stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  std::stop_source source_;
  std::jthread watcher_;
};

/// Returns the extent of "8,128,128" (z,y,x) or of one number for all axes.
std::optional<Extent3> extent_of(const std::vector<std::int64_t>& values, const char* option) {
  if (values.empty()) return std::nullopt;
  if (values.size() == 1) return Extent3::all(values[0]);
  if (values.size() == 3) return Extent3{values[0], values[1], values[2]};
  throw InvalidArgument(fmt::format("{}: give one number or three (z,y,x), not {}", option, values.size()));
}

struct Common {
  int threads = 0;
  std::string engine = "automatic";
  bool quiet = false;

  void add_to(CLI::App& app) {
    app.add_option("--threads", threads,
                   "Threads; 0 means one per physical core, as far as affinity and control groups allow")
        ->check(CLI::Range(0, 1024));
    app.add_option("--engine", engine,
                   "Convolution engine: automatic, fft_tiled, fft_volume, direct, reference or onednn")
        ->capture_default_str();
    app.add_flag("--quiet", quiet, "Print results only");
  }
};

struct TrainCommand {
  nets::TrainOptions options;
  Common common;
  std::int64_t iterations = 0;
  std::uint64_t seed = 1;
  std::size_t budget_mib = 4096, scratch_mib = 0;
  CLI::Option *iterations_given = nullptr, *seed_given = nullptr;

  void add_to(CLI::App& app) {
    app.add_option("net", options.net, "Net description (TOML), e.g. nets/zoo/unet_anisotropic.toml")->required();
    app.add_option("--data", options.data, "Data description (TOML), e.g. nets/zoo/data/isbi2012.toml")->required();
    app.add_option("--out", options.out, "Folder of the run: checkpoints, metrics.jsonl, report")->required();
    iterations_given = app.add_option("--iterations", iterations, "Total iterations of the run, resumed or not");
    app.add_option("--max-minutes", options.max_minutes,
                   "End after this many minutes, with a checkpoint; 0 means no limit")
        ->check(CLI::Range(0.0, 1e6));
    seed_given = app.add_option("--seed", seed, "Seed of all random numbers (default 1)");
    app.add_flag("--resume", options.resume, "Continue from OUT/checkpoints/last.safetensors, with the same bits");
    app.add_option("--set", options.overrides, "Replace a value of the net: table.key=value, e.g. generator.width=30");
    app.add_option("--memory-budget", budget_mib, "MiB that cached spectra may hold")
        ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 30))
        ->capture_default_str();
    app.add_option("--scratch-budget", scratch_mib,
                   "MiB of scratch that running tasks may hold together; further tasks wait; 0 means no limit")
        ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 30))
        ->capture_default_str();
    app.add_flag("--tune", options.tune,
                 "Select the fastest convolution of each layer by measurement, up to a few seconds per layer, instead "
                 "of the cost model; a resumed run keeps the measured choices");
    app.add_option("--trace", options.trace,
                   "File for a trace of iterations 2 to 4, for ui.perfetto.dev and convolume simulate");
    common.add_to(app);
  }

  int run() {
    tools::ProgressDisplay display(common.quiet);
    const StopOnSignal stop;
    if (*iterations_given) options.iterations = iterations;
    if (*seed_given) options.seed = seed;
    options.threads = common.threads;
    options.engine = engine_of(common.engine);
    options.memory_budget = budget_mib << 20;
    options.scratch_budget = scratch_mib << 20;
    options.upstream = tools::slab_upstream();
    options.stop = stop.token();
    options.on_progress = [&](const nets::TrainProgress& p) { display.show(p); };
    const auto result = nets::train(options);
    display.finish();
    fmt::print("{} iteration {}, loss {:.4f}\n", result.interrupted ? "interrupted at" : "finished at",
               result.iteration, result.loss);
    if (result.validation) {
      fmt::print("pixel error   {:.4f}\nROC AUC       {:.4f}\n", result.validation->pixel_error,
                 result.validation->roc_auc);
    }
    fmt::print("checkpoint    {}\nmetrics       {}\nloss curve    {}\n", result.checkpoint.string(),
               result.metrics.string(), result.loss_curve.string());
    if (!options.trace.empty()) {
      fmt::print("trace         {}\n{}", options.trace.string(), to_string(summarize(result.traced)));
    }
    if (!result.slice.empty()) fmt::print("slice         {} (image | prediction | label)\n", result.slice.string());
    return result.interrupted ? interrupted : 0;
  }
};

struct InferCommand {
  nets::InferOptions options;
  Common common;
  std::vector<std::int64_t> patch, overlap;

  void add_to(CLI::App& app) {
    app.add_option("checkpoint", options.checkpoint, "Checkpoint (*.safetensors); it contains the net")->required();
    app.add_option("volume", options.volume, "Volume to segment: TIFF stack or HDF5 (file.h5:/dataset)")->required();
    app.add_option("--out", options.output, "Probability volume to write: .tif or .h5")->required();
    app.add_flag("--uint8", options.as_uint8, "Write 0..255 instead of float");
    app.add_option("--patch", patch, "Input patch: z,y,x or one number; default: the training patch")->delimiter(',');
    app.add_option("--overlap", overlap,
                   "Overlap of patches: z,y,x or one number; default: 0 for a net without padding, otherwise the field "
                   "of view, but at most half a patch")
        ->delimiter(',');
    common.add_to(app);
  }

  int run() {
    tools::ProgressDisplay display(common.quiet);
    const StopOnSignal stop;
    options.patch = extent_of(patch, "--patch");
    options.overlap = extent_of(overlap, "--overlap");
    options.threads = common.threads;
    options.engine = engine_of(common.engine);
    options.upstream = tools::slab_upstream();
    options.stop = stop.token();
    options.on_progress = [&](double share) { display.show_share("inference", share); };
    const bool done = nets::infer(options);
    display.finish();
    if (!done) {
      fmt::print("interrupted; {} was not written\n", options.output.string());
      return interrupted;
    }
    fmt::print("probabilities {}\n", options.output.string());
    return 0;
  }
};

struct EvalCommand {
  std::string prediction, label;
  std::vector<double> positive;
  std::vector<std::int64_t> slices;
  double threshold = 0.5;
  bool json = false;

  void add_to(CLI::App& app) {
    app.add_option("prediction", prediction, "Probability volume (TIFF or HDF5)")->required();
    app.add_option("label", label, "Label volume")->required();
    app.add_option("--positive", positive, "Label values that count as positive, e.g. 0; default: 0.5 and above")
        ->delimiter(',');
    app.add_option("--slices", slices, "First slice and end slice (exclusive) of the label volume, e.g. 24 30")
        ->expected(2);
    app.add_option("--threshold", threshold, "Probability from which on a voxel is positive")->capture_default_str();
    app.add_flag("--json", json, "Print one JSON object instead of a table");
  }

  int run() const {
    std::optional<std::pair<index_t, index_t>> range;
    if (slices.size() == 2) range = {slices[0], slices[1]};
    const auto s = nets::evaluate_files(prediction, label, positive, threshold, range);
    if (json) {
      nlohmann::ordered_json object{
          {"pixel_error", s.pixel_error}, {"roc_auc", nullptr},      {"dice", s.dice}, {"iou", s.iou},
          {"voxels", s.voxels},           {"positives", s.positives}};
      if (std::isfinite(s.roc_auc)) object["roc_auc"] = s.roc_auc;
      fmt::print("{}\n", object.dump());
      return 0;
    }
    fmt::print("pixel error   {:.4f}\nROC AUC       {:.4f}\nDice          {:.4f}\nIoU           {:.4f}\n",
               s.pixel_error, s.roc_auc, s.dice, s.iou);
    fmt::print("voxels        {} ({} positive)\n", s.voxels, s.positives);
    return 0;
  }
};

struct InfoCommand {
  std::string net;
  std::vector<std::string> overrides;
  std::vector<std::int64_t> patch;
  int threads = 0;

  void add_to(CLI::App& app) {
    app.add_option("net", net, "Net description (TOML); if absent, only the machine and the libraries are described");
    app.add_option("--set", overrides, "Replace a value of the net: table.key=value");
    app.add_option("--patch", patch, "Input patch: z,y,x or one number")->delimiter(',');
    app.add_option("--threads", threads,
                   "Threads of the training whose memory is computed; 0 means the default of train")
        ->check(CLI::Range(0, 1024));
  }

  int run() const {
    fmt::print("{}", tools::machine_text());
    if (!net.empty()) fmt::print("\n{}", nets::describe_net(net, overrides, extent_of(patch, "--patch"), threads));
    return 0;
  }
};

struct MachineCommand {
  std::string save;
  bool json = false, row = false;
  int threads = 0;

  void add_to(CLI::App& app) {
    auto* file = app.add_option("--save", save,
                                "Measure this machine, in about a minute, and write its row to this file (TOML)");
    app.add_flag("--json", json, "Print one JSON object instead of a table")->excludes(file);
    app.add_flag("--row", row, "Print the row in use as a file that --machine accepts")->excludes(file);
    app.add_option("--threads", threads, "Threads that load from memory together; 0 means the default of train")
        ->check(CLI::Range(0, 1024));
  }

  int run() const {
    if (save.empty()) {
      fmt::print("{}", json ? tools::machine_json() : row ? machine_row_text() : tools::machine_table());
      return 0;
    }
    tools::ProgressDisplay display(false);
    fmt::print("{}", tools::save_machine(save, threads, display));
    return 0;
  }
};

struct ExportCommand {
  std::string data, split = "validation", image, label;

  void add_to(CLI::App& app) {
    app.add_option("data", data, "Data description (TOML), e.g. nets/zoo/data/synthetic.toml")->required();
    app.add_option("--split", split, "train or validation")->capture_default_str();
    app.add_option("--image", image, "Image volume to write: .tif or .h5")->required();
    app.add_option("--label", label, "Label volume to write: .tif or .h5")->required();
  }

  int run() const {
    nets::export_split(data, split, image, label);
    fmt::print("image         {}\nlabel         {}\n", image, label);
    return 0;
  }
};

struct SimulateCommand {
  std::string trace;
  std::vector<int> cores{1, 2, 4, 8, 16, 32, 64, 128, 256};

  void add_to(CLI::App& app) {
    app.add_option("--trace", trace, "Trace from train --trace or bench_net --trace")->required();
    app.add_option("--cores", cores, "Numbers of cores")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
  }

  int run() const {
    fmt::print("{}", tools::simulation_text(tools::read_chrome_trace(trace), cores));
    return 0;
  }
};

template <class Command>
CLI::App* add_command(CLI::App& app, const char* name, const char* what, Command& command) {
  CLI::App* sub = app.add_subcommand(name, what);
  sub->fallthrough();  // options of the command itself may follow the subcommand
  command.add_to(*sub);
  return sub;
}

int run(int argc, char** argv) {
  CLI::App app{"Trains and runs 3D ConvNets on CPUs. Convolutions use FFTs where these are faster."};
  app.set_version_flag("--version", std::string("convolume ") + version());
  app.require_subcommand(1);
  TrainCommand train;
  InferCommand infer;
  EvalCommand eval;
  InfoCommand info;
  MachineCommand machine;
  ExportCommand export_split;
  SimulateCommand simulate;
  const auto* train_app = add_command(app, "train", "Train a net", train);
  const auto* infer_app = add_command(app, "infer", "Write the probability volume of a trained net", infer);
  const auto* eval_app = add_command(app, "eval", "Compare a probability volume with labels", eval);
  const auto* info_app = add_command(app, "info", "Describe the machine, the libraries and a net", info);
  const auto* simulate_app = add_command(
      app, "simulate", "Show how the time of a trace was spent, and simulate its tasks on more cores", simulate);
  add_command(app, "export", "Write a data description's volumes as training reads them", export_split);
  const auto* machine_app =
      add_command(app, "machine", "Print the machine row in use, or measure this machine", machine);
  std::string selected;
  app.add_option(
      "--machine", selected,
      "Machine row for all choices: a name from `convolume machine`, or a file from `convolume machine --save`; "
      "default: CONVOLUME_MACHINE, or this machine");
  CLI11_PARSE(app, argc, argv);
  static_cast<void>(simd_target());  // an unknown CONVOLUME_SIMD throws here
  if (!selected.empty()) select_machine(selected);
  static_cast<void>(machine_model());  // a wrong CONVOLUME_MACHINE throws here
  if (*train_app) return train.run();
  if (*infer_app) return infer.run();
  if (*eval_app) return eval.run();
  if (*info_app) return info.run();
  if (*machine_app) return machine.run();
  if (*simulate_app) return simulate.run();
  return export_split.run();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "convolume: out of memory; make the patch, batch or net smaller\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "convolume: {}\n", error.what());
  }
  return failed;
}
