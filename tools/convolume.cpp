// The convolume command: train, infer, eval, info, convert, convolve, machine, plan and others.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/arguments.hpp"
#include "tools/convolve.hpp"
#include "tools/info.hpp"
#include "tools/jemalloc_resource.hpp"
#include "tools/machine.hpp"
#include "tools/plan.hpp"
#include "tools/progress.hpp"
#include "tools/scores.hpp"
#include "tools/simulate.hpp"
#include "tools/stop_on_signal.hpp"
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/cpu.hpp"
#include "convolume/machine.hpp"
#include "convolume/nets.hpp"
#include "convolume/version.hpp"

namespace {

using namespace convolume;
using tools::bytes_of;
using tools::extent_of;
using tools::interrupted;
using tools::numbers_of;
using tools::StopOnSignal;

// Exit codes beside 0. CLI11 uses 100 and more for a wrong command line.
constexpr int failed = 1;

constexpr const char* take_over_help =
    "Write although a process of another host is named as the owner of the output. Use it only if that process is gone";

/// Prints what a user should know to the standard error, so that results stay alone on the standard output.
void print_note(const std::string& note) { fmt::print(stderr, "note: {}\n", note); }

constexpr const char* low_error_help =
    "Leave out engines with a larger error (toom_cook: about 1.3e-6 instead of 3e-7)";

struct Common {
  int threads = 0;
  std::string engine = "automatic";
  bool low_error = false, quiet = false;

  void add_to(CLI::App& app) {
    app.add_option("--threads", threads,
                   "Threads; 0 means one per physical core, as far as affinity and control groups allow")
        ->check(CLI::Range(0, 1024));
    app.add_option("--engine", engine,
                   "Convolution engine: automatic, fft_tiled, fft_volume, toom_cook, direct, reference or onednn")
        ->capture_default_str();
    app.add_flag("--low-error", low_error, low_error_help);
    app.add_flag("--quiet", quiet, "Print results only");
  }
};

struct TrainCommand {
  nets::TrainOptions options;
  Common common;
  std::int64_t iterations = 0;
  std::uint64_t seed = 1;
  std::size_t budget_mib = 0, scratch_mib = 0;
  std::string memory;
  CLI::Option *iterations_given = nullptr, *seed_given = nullptr, *budget_given = nullptr;

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
    app.add_flag("--take-over", options.take_over, take_over_help);
    app.add_flag("--verify-data", options.verify_data,
                 "With --resume: read all volumes again, instead of comparing sizes and times of their files");
    app.add_option("--set", options.overrides, "Replace a value of the net: table.key=value, e.g. generator.width=30");
    app.add_option("--memory", memory,
                   "Bytes that the process may hold, e.g. 4G; default: three quarters of the system's memory. If it is "
                   "small, training takes longer, and volumes that do not fit are read chunk by chunk. It does not "
                   "change the result. See convolume info NET --memory-curve");
    budget_given = app.add_option("--memory-budget", budget_mib,
                                  "MiB that cached spectra may hold; default: those that save much time for their "
                                  "memory, as far as --memory allows")
                       ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 30));
    app.add_option("--scratch-budget", scratch_mib,
                   "MiB of scratch that running tasks may hold together; further tasks wait; 0 means no limit")
        ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 30))
        ->capture_default_str();
    app.add_flag("--tune", options.tune,
                 "Select the fastest convolution of each layer by measurement instead of the cost model. This takes up "
                 "to 2 s per layer, or three executions of each candidate if that is longer (announced). A resumed "
                 "run keeps the measured choices");
    app.add_option("--trace", options.trace,
                   "File for a trace of iterations 2 to 4, for ui.perfetto.dev and convolume simulate");
    app.add_flag("--tensorboard", options.tensorboard,
                 "Also write OUT/tensorboard: the loss and the validation scores by iteration, for TensorBoard");
    common.add_to(app);
  }

  int run() {
    tools::ProgressDisplay display(common.quiet);
    const StopOnSignal stop;
    if (*iterations_given) options.iterations = iterations;
    if (*seed_given) options.seed = seed;
    options.threads = common.threads;
    options.engine = engine_of(common.engine);
    options.low_error = common.low_error;
    if (!memory.empty()) options.memory = bytes_of(memory);
    if (*budget_given) options.memory_budget = budget_mib << 20;
    options.scratch_budget = scratch_mib << 20;
    options.upstream = tools::slab_upstream();
    options.stop = stop.token();
    options.on_note = print_note;
    options.on_progress = [&](const nets::TrainProgress& p) { display.show(p); };
    options.on_tune = [&](const std::string& layer, double seconds) { display.show_tuning(layer, seconds); };
    const auto result = nets::train(options);
    display.finish();
    if (result.checkpoint.empty()) {
      fmt::print("interrupted before the first iteration; there is no checkpoint yet\n");
      return interrupted;
    }
    fmt::print("{} iteration {}, loss {:.4f}\n",
               result.interrupted   ? "interrupted at"
               : result.ended_early ? "ended early at"
                                    : "finished at",
               result.iteration, result.loss);
    if (result.waited > 0) fmt::print("waited {:.3f} s for patches from files\n", result.waited);
    if (result.validation) {
      fmt::print("{}", tools::score_table(*result.validation));
    }
    fmt::print("checkpoint    {}\n", result.checkpoint.string());
    if (const auto& best = result.best) {
      fmt::print("best          {} ({} {:.4f} at iteration {})\n", best->file.string(), best->score.name,
                 best->score.value, best->iteration);
    }
    fmt::print("metrics       {}\nreport        {}\n", result.metrics.string(), result.report.string());
    if (!result.tensorboard.empty()) fmt::print("tensorboard   {}\n", result.tensorboard.string());
    if (!options.trace.empty()) {
      fmt::print("trace         {}\n{}", options.trace.string(), to_string(summarize(result.traced)));
    }
    if (!result.slice.empty()) fmt::print("slice         {} (image | prediction | label)\n", result.slice.string());
    return result.interrupted ? interrupted : 0;
  }
};

/// Returns the range [first, end) of "0:64" along an axis; a number alone is a range of one voxel.
void add_range(const std::string& text, int axis, Extent3& begin, Extent3& end) {
  const auto colon = text.find(':');
  const auto number = [&](const std::string& digits) -> index_t {
    const bool good = !digits.empty() && digits.size() < 18 && digits.find_first_not_of("0123456789") == digits.npos;
    if (!good)
      throw InvalidArgument(fmt::format("--box: '{}' is no range of voxels; write FIRST:END, e.g. 0:64", text));
    return std::stoll(digits);
  };
  begin[axis] = number(text.substr(0, colon));
  end[axis] = colon == std::string::npos ? begin[axis] + 1 : number(text.substr(colon + 1));
}

/// Reads --box into a begin and an end; they stay empty without the option.
void read_box(const std::vector<std::string>& box, std::optional<Extent3>& begin, std::optional<Extent3>& end) {
  if (box.empty()) return;
  Extent3 first, last;
  for (int axis = 0; axis < 3; ++axis) add_range(box[static_cast<std::size_t>(axis)], axis, first, last);
  begin = first;
  end = last;
}

CLI::Option* add_box(CLI::App& app, std::vector<std::string>& box, const char* what) {
  return app.add_option("--box", box, what)->delimiter(',')->expected(3);
}

struct InferCommand {
  nets::InferOptions options;
  Common common;
  std::vector<std::string> patch;
  std::vector<std::int64_t> overlap;
  std::vector<std::string> volumes, box, flip;
  std::vector<double> spacing;
  std::string memory, blend = "ramp";
  bool dry_run = false;

  void add_to(CLI::App& app) {
    app.add_option("checkpoint", options.checkpoint, "Checkpoint (*.safetensors); it contains the net")->required();
    app.add_option("volume", volumes,
                   "Volume to segment, in any format that convert reads. A classifier reads one or more, each a case")
        ->required()
        ->expected(1, -1);
    app.add_option("--out", options.output,
                   "Volume to write: .tif, .h5, .nii, .nii.gz or .zarr. Finished parts lie in OUT.part until the end. "
                   "For a classifier: a table, .csv, with the case, its class and one probability per class")
        ->required();
    app.add_option("--channel", options.channels,
                   "Another volume of the same extent, whose channels follow; may be repeated")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    auto* bytes = app.add_flag("--uint8", options.as_uint8, "Write probabilities as 0..255 instead of float");
    app.add_flag("--labels", options.labels,
                 "Write labels instead of probabilities: the most probable class, or 0 and 1 for each region")
        ->excludes(bytes);
    add_box(app, box, "Part of the volume to segment: three ranges z,y,x, e.g. 0:64,0:512,0:512");
    app.add_option(
           "--patch", patch,
           "Input patch: z,y,x or one number; default: the training patch. auto: patch and overlap that take "
           "the least time within --memory, see --dry-run; this changes the result a little. Not of a classifier")
        ->delimiter(',');
    app.add_option("--overlap", overlap,
                   "Overlap of patches: z,y,x or one number; default: 0 for a net without padding, otherwise the field "
                   "of view, but at most half a patch")
        ->delimiter(',');
    app.add_option(
           "--spacing", spacing,
           "Lengths of a voxel, z,y,x, in the unit of the training data, where the volume has none or wrong ones; "
           "only for nets that were trained with [spacing]")
        ->delimiter(',')
        ->expected(3)
        ->check(CLI::PositiveNumber);
    app.add_option("--orientation", options.orientation,
                   "Turn the volume before the net reads it, e.g. to RAS, or none; default: as in the training. The "
                   "output has the orientation of the volume");
    app.add_option("--blend", blend,
                   "Weights of overlapping patches: ramp (linear in the overlap), gaussian (around the centre of a "
                   "patch) or uniform")
        ->check(CLI::IsMember({"ramp", "gaussian", "uniform"}))
        ->capture_default_str();
    app.add_option("--flip", flip, "Axes, e.g. y,x: the result is the mean over all mirrored forms of a patch")
        ->delimiter(',')
        ->check(CLI::IsMember({"z", "y", "x"}));
    app.add_option("--batch", options.batch, "Patches that are computed together")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    app.add_option("--memory", memory,
                   "Bytes that the process may hold, e.g. 512M or 2G; default: three quarters of the system's memory. "
                   "It does not change the result");
    app.add_flag("--resume", options.resume, "Continue an interrupted inference from OUT.part, with the same bits");
    app.add_flag("--take-over", options.take_over, take_over_help);
    app.add_flag("--dry-run", dry_run, "Print what the inference would take, and write nothing");
    app.add_option("--trace", options.trace, "File for a trace of the tasks of three patches, for ui.perfetto.dev");
    common.add_to(app);
  }

  void read_options() {
    options.volume = volumes.front();
    options.cases.assign(volumes.begin() + 1, volumes.end());
    read_box(box, options.begin, options.end);
    if (!spacing.empty()) options.spacing = {spacing[0], spacing[1], spacing[2]};
    options.cheapest_patch = patch == std::vector<std::string>{"auto"};
    if (!options.cheapest_patch) options.patch = extent_of(numbers_of(patch, "--patch"), "--patch");
    options.overlap = extent_of(overlap, "--overlap");
    options.blend = blend == "gaussian"  ? nets::Blend::gaussian
                    : blend == "uniform" ? nets::Blend::uniform
                                         : nets::Blend::ramp;
    for (const std::string& axis : flip) options.flip[axis == "z" ? 0 : axis == "y" ? 1 : 2] = true;
    if (!memory.empty()) options.memory = bytes_of(memory);
    options.threads = common.threads;
    options.engine = engine_of(common.engine);
    options.low_error = common.low_error;
    options.upstream = tools::slab_upstream();
    options.on_note = print_note;
  }

  int print_plan() const {
    const nets::InferencePlan plan = nets::plan_inference(options);
    const auto mebibytes = [](auto bytes) { return static_cast<double>(bytes) / (1 << 20); };
    fmt::print("patches       {} of {}, overlap {}\n", plan.patches, to_string(plan.patch), to_string(plan.overlap));
    fmt::print("windows       {}; {} passes of the net\n", plan.windows, plan.computed);
    fmt::print("memory        {:.0f} MiB of {:.0f} MiB\n", mebibytes(plan.memory_bytes), mebibytes(plan.memory_limit));
    fmt::print("disk          {:.0f} MiB at most; {:.0f} MiB are free\n", mebibytes(plan.disk_bytes),
               mebibytes(plan.disk_free));
    fmt::print("time          about {} ({:.1f} s), from one measured pass\n", tools::clock_text(plan.seconds),
               plan.seconds);
    fmt::print("\n{:15}{:<18}{:<18}{:>8}{:>8}{:>7}{:>11}{:>11}\n", "by cost models", "patch", "overlap", "windows",
               "passes", "halo", "net", "reading");
    const auto print = [](const char* name, const nets::PatchEstimate& e) {
      fmt::print("{:15}{:<18}{:<18}{:>8}{:>8}{:>6.0f}%{:>9.2f} s{:>9.2f} s\n", name, to_string(e.patch),
                 to_string(e.overlap), e.windows, e.computed, 100 * e.halo, e.compute_seconds, e.read_seconds);
    };
    print("this plan", plan.chosen);
    if (!options.cheapest_patch) print("--patch auto", plan.cheapest);
    if (plan.layerwise_compute_seconds > 0) {
      fmt::print("{:15}{:<18}{:<18}{:>8}{:>8}{:>6.0f}%{:>9.2f} s{:>9.2f} s\n", "layer by layer", "-", "-", "-", "-",
                 0.0, plan.layerwise_compute_seconds, plan.layerwise_transfer_seconds);
    }
    if (!plan.patch_note.empty()) fmt::print("--patch auto keeps the patch: {}\n", plan.patch_note);
    return 0;
  }

  int run() {
    read_options();
    if (dry_run) return print_plan();
    tools::ProgressDisplay display(common.quiet);
    const StopOnSignal stop;
    options.stop = stop.token();
    options.on_progress = [&](double share) { display.show_share("inference", share); };
    const bool done = nets::infer(options);
    display.finish();
    if (!done) {
      const bool kept = std::filesystem::exists(options.output.string() + ".part");
      fmt::print("interrupted; {} was not written. {}\n", options.output.string(),
                 kept ? "Continue with --resume" : "No part is finished, so run it again");
      return interrupted;
    }
    const bool table = options.output.extension() == ".csv";
    const char* const what = table ? "classes      " : options.labels ? "labels       " : "probabilities";
    fmt::print("{} {}\n", what, options.output.string());
    return 0;
  }
};

struct EvalCommand {
  nets::EvaluateOptions options;
  std::vector<std::int64_t> slices;
  std::vector<std::string> box, metrics;
  std::string regions;
  CLI::Option* regions_given = nullptr;
  bool json = false;

  void add_to(CLI::App& app) {
    app.add_option("prediction", options.prediction,
                   "Probability volume, in any format that convert reads; with several channels, those of classes, or "
                   "of regions with --regions. Or a folder with one volume per case")
        ->required();
    app.add_option("label", options.label, "Label volume, or the folder of the labels, which have the same names")
        ->required();
    auto* positive = app.add_option("--positive", options.positive,
                                    "Label values that count as positive, e.g. 0; default: 0.5 and above")
                         ->delimiter(',');
    app.add_option(
           "--classes", options.classes,
           "The prediction holds the numbers of so many classes, not probabilities; 2 with --regions: it holds 0 "
           "and 1 for each region, as infer --labels writes them")
        ->check(CLI::Range(2, 65536))
        ->excludes(positive);
    regions_given = app.add_option("--regions", regions,
                                   "Label values of regions that may overlap, e.g. \"1,2,3;2,3;3\"; the prediction has "
                                   "one channel per region")
                        ->excludes(positive);
    app.add_option("--ignore", options.ignore, "Label values that do not count, e.g. 255")->delimiter(',');
    auto* range =
        app.add_option("--slices", slices, "First slice and end slice (exclusive) of the label volume, e.g. 24 30")
            ->expected(2);
    add_box(app, box, "Part of the label volume that was predicted: three ranges z,y,x, e.g. 0:64,0:512,0:512")
        ->excludes(range);
    app.add_option("--metrics", metrics, "Scores to print, separated by commas, e.g. dice,iou; default: all")
        ->delimiter(',');
    app.add_option("--threshold", options.threshold,
                   "Probability from which on a voxel is positive; default: 0.5. With it, a binary prediction may hold "
                   "any floats");
    app.add_flag("--json", json, "Print one JSON object instead of a table");
  }

  int run() {
    read_box(box, options.begin, options.end);
    if (slices.size() == 2) options.slices = {slices[0], slices[1]};
    if (*regions_given) options.regions = tools::regions_of(regions);
    options.on_note = print_note;
    const auto cases = tools::evaluate_cases(options);
    fmt::print("{}", json ? tools::scores_json(cases, metrics) : tools::scores_text(cases, metrics));
    return 0;
  }
};

struct ConvertCommand {
  nets::ConvertOptions options;
  std::vector<std::string> box;
  std::vector<std::int64_t> chunk;
  std::int64_t channel = 0;
  CLI::Option* channel_given = nullptr;
  bool quiet = false;

  void add_to(CLI::App& app) {
    app.add_option("input", options.input,
                   "Volume: a.tif, a.h5:/data, a.nii, a.nii.gz, a.hdr, a.zarr, a.zarr:/s0, 'slices/*.png'")
        ->required();
    app.add_option("output", options.output, "Volume to write; its name decides the format")->required();
    add_box(app, box, "Part to copy: three ranges z,y,x, e.g. 0:64,0:512,0:512");
    channel_given = app.add_option("--channel", channel, "Channel to copy, counted from 0; default: all");
    app.add_option("--orientation", options.orientation,
                   "Turn the volume so that x, y and z point this way, e.g. RAS: axes are exchanged and mirrored, and "
                   "nothing is interpolated");
    app.add_option("--nan", options.nan, "Replace NaN by this number");
    app.add_option("--type", options.type,
                   "Type of the written voxels: uint8, int8, uint16, int16, uint32, int32, uint64, int64, float32 or "
                   "float64; default: that of the input");
    app.add_option("--chunk", chunk, "Extent of chunks of HDF5 and Zarr: z,y,x or one number")->delimiter(',');
    app.add_option("--codec", options.codec, "Compression: raw, deflate (TIFF, HDF5), zstd or blosc (Zarr)");
    app.add_flag("--take-over", options.take_over, take_over_help);
    app.add_flag("--quiet", quiet, "Print results only");
  }

  int run() {
    tools::ProgressDisplay display(quiet);
    read_box(box, options.begin, options.end);
    if (*channel_given) options.channel = channel;
    options.chunk = extent_of(chunk, "--chunk");
    if (options.chunk && std::min({options.chunk->z, options.chunk->y, options.chunk->x}) < 1) {
      throw InvalidArgument(
          fmt::format("--chunk {}: a chunk has at least one voxel along each axis", to_string(*options.chunk)));
    }
    options.on_note = print_note;
    options.on_progress = [&](double share) { display.show_share("converting", share); };
    nets::convert_volume(options);
    display.finish();
    fmt::print("volume        {}\n", options.output);
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

struct PreviewCommand {
  nets::PreviewOptions options;

  void add_to(CLI::App& app) {
    app.add_option("data", options.data, "Data description (TOML)")->required();
    app.add_option("--net", options.net, "Net description (TOML), whose patches are drawn")->required();
    app.add_option("--out", options.out, "Picture to write (PNG)")->required();
    app.add_option("--count", options.count, "Number of patches")->check(CLI::Range(1, 1024))->capture_default_str();
    app.add_option("--seed", options.seed, "Seed of the training run whose patches are drawn")->capture_default_str();
    app.add_option("--set", options.overrides, "Replace a value of the net: table.key=value, e.g. input.patch=64");
  }

  int run() {
    options.on_note = print_note;
    nets::preview(options);
    fmt::print("preview       {} (middle slices of {} patches; labels are outlined, classes are frames)\n",
               options.out.string(), options.count);
    return 0;
  }
};

struct ConvolveCommand {
  tools::ConvolveCommand command;

  void add_to(CLI::App& app) { command.add_to(app); }
  int run() {
    const StopOnSignal stop;
    if (command.run(stop.token())) return 0;
    fmt::print("interrupted; nothing was written\n");
    return interrupted;
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
  tools::InfoCommand info;
  MachineCommand machine;
  ConvertCommand convert;
  ExportCommand export_split;
  SimulateCommand simulate;
  PreviewCommand preview;
  tools::PlanCommand plan;
  ConvolveCommand convolve;
  const auto* train_app = add_command(app, "train", "Train a net", train);
  const auto* infer_app =
      add_command(app, "infer", "Write the probability volume of a trained net, or the classes of cases", infer);
  const auto* eval_app = add_command(app, "eval", "Compare a probability volume with labels", eval);
  const auto* info_app = add_command(app, "info", "Describe a net, a checkpoint or a volume, or the machine", info);
  const auto* simulate_app = add_command(
      app, "simulate", "Show how the time of a trace was spent, and simulate its tasks on more cores", simulate);
  add_command(app, "export", "Write a data description's volumes as training reads them", export_split);
  const auto* convert_app = add_command(app, "convert", "Copy a volume, or a part of it, to another format", convert);
  const auto* preview_app =
      add_command(app, "preview", "Draw patches of a data set as a net gets them, with labels outlined", preview);
  const auto* machine_app =
      add_command(app, "machine", "Print the machine row in use, or measure this machine", machine);
  const auto* plan_app = add_command(app, "plan", "Count the memory traffic of loop nests", plan);
  const auto* convolve_app =
      add_command(app, "convolve", "Convolve tensors in files that need not fit into memory", convolve);
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
  if (*convert_app) return convert.run();
  if (*simulate_app) return simulate.run();
  if (*preview_app) return preview.run();
  if (*plan_app) return plan.run();
  if (*convolve_app) return convolve.run();
  return export_split.run();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "convolume: out of memory; make the patch, batch, net or problem smaller\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "convolume: {}\n", error.what());
  }
  return failed;
}
