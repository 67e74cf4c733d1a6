// Benchmarks convolutions in all directions, from lists of problems in benchdnn's grammar: with Google Benchmark, side
// by side with oneDNN, and as a check of every result.
#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "bench/common/support.hpp"
#include "bench/conv/conv_choices.hpp"
#include "bench/conv/conv_competitor.hpp"
#include "bench/conv/conv_ladder.hpp"
#include "bench/conv/conv_options.hpp"
#include "bench/conv/conv_passes.hpp"
#include "bench/conv/conv_side_by_side.hpp"
#include "bench/conv/conv_speed_up.hpp"
#include "bench/conv/conv_stages.hpp"
#include "bench/conv/conv_streamed.hpp"
#include "bench/conv/conv_verify.hpp"
#include "convolume/cpu.hpp"

namespace convolume::bench {
namespace {

constexpr const char* description =
    "3-D convolutions: forward, backward data, backward weights, and training.\n\n"
    "Modes:\n"
    "  (none)          Google Benchmark: measures every problem, direction and engine by itself.\n"
    "  --side-by-side  Times this library, oneDNN and this library's fft_volume in turn in one process. Prints\n"
    "                  medians and quartiles over many rounds, the ratio of the other times to ours, and\n"
    "                  geometric means. Each timed call follows 50 ms of rest, in which all threads fall asleep,\n"
    "                  and one untimed call. oneDNN selects its own layouts; the reordering of its tensors is not\n"
    "                  timed. All our work that depends on data is timed: fwd and bwd_d include the preparation\n"
    "                  of the weights.\n"
    "  --choices       Compares the cost model's choice with other choices, in turn: with what the model would\n"
    "                  choose under each machine row, with the other engines, and with a fixed grid of tiles.\n"
    "                  Prints the model's choice, the number of choices, the best one, and the ratio of their\n"
    "                  least times. Choices that are several times slower in the first call are left out. In "
    "training,\n"
    "                  the best tiles of each direction that was measured before are combined into one more\n"
    "                  choice. A hash of its text puts a quarter of the problems aside. The constants of the model\n"
    "                  are to be fitted on the others; some of today were fitted on all. At the end it says how\n"
    "                  good the choices of every built-in row are on this machine.\n"
    "  --speed-up      Times one thread and all threads in turn. Prints the speed-up, the speed-up that the floor\n"
    "                  allows, and the quotient of the two. At the end it compares the cost model with one thread,\n"
    "                  and prints how long it takes to make plans.\n"
    "  --stages        Compares the stages of fft_tiled (weight transforms, tile transforms, products, idle\n"
    "                  threads) with the cost model. If directions share tiles, the model's numbers are their\n"
    "                  parts of training.\n"
    "  --streamed      Convolves forward tile by tile, in a quarter of the memory of x and y, between sources and\n"
    "                  sinks whose transfers take a given time: from a quarter of the time of the computation to four\n"
    "                  times as long. Times transfers alone, computation alone, both in turn, and both at once.\n"
    "  --ladder        Times the steps of Figure 8 of the swDNN paper in turn, forward in float: Algorithm 2 in "
    "scalar\n"
    "                  code, vectors of samples, blocks of columns, and then `direct` with a register tile of two\n"
    "                  voxels, with its default nest, and on all threads. Checks each step against the reference.\n"
    "  --passes        Executes passes of one competitor, --rounds of each direction, and does nothing else: for\n"
    "                  profilers and cache simulators.\n"
    "  --verify        Checks results instead of timing them. Compares every engine in every direction, type and\n"
    "                  layout that it supports with the definition in double precision. Small integers must give\n"
    "                  exact results; random numbers must agree within 2e-6 (float) or 1e-13 (double). The exit\n"
    "                  status is 1 if anything fails.\n\n"
    "Terms: fwd computes y from x, bwd_d computes dx from dy, and bwd_w computes dw from x and dy. training is a\n"
    "whole iteration as one task graph: prepared weights (transformed or packed), y, dx and dw, with spectra kept\n"
    "in between. Google Benchmark measures all directions except training with weights that are already prepared.\n"
    "Engines are selected for the work that is measured: fwd as for inference, a single gradient together with\n"
    "fwd, and training with both gradients. GFLOP/s is effective: the multiplications and additions of a direct\n"
    "computation per second, whatever the engine does; training counts three times fwd. MiB is the largest memory\n"
    "so far, tensors included. The label shows the engine and the problem. The floor is the least time of this\n"
    "machine: the operations of overlap-save FFTs, of Toom-Cook (kernels of 3 and 1) or of the direct method at the "
    "peak of\n"
    "all cores, or the bytes that these move at the memory bandwidth. The report gives the floor as a share of our "
    "time. Blocked\n"
    "tensors hold 64 bytes of channels side by side; tensors with fewer than 8 channels stay plain.\n\n"
    "Problems use the grammar of oneDNN's benchdnn, one per line, # for comments:\n"
    "  mb batch, g groups, ic oc channels, i input, o output, k kernel, s stride, p padding, d dilation - 1,\n"
    "  each of the last six followed by d, h or w for Z, Y, X (a missing axis repeats the one before);\n"
    "  n\"...\" at the end is a name.  Example: mb1ic32id52oc32od48kd5n\"paper\"";

/// The convolution that was measured last. It is kept because Google Benchmark calls a benchmark several times, and
/// because the next direction has the same problem.
class Last {
 public:
  PlannedConvolution& get(const std::string& key, const ConvProblem& problem,
                          const PlannedConvolution::Options& options) {
    if (!convolution_ || key_ != key) {
      convolution_.reset();
      ConvData data(problem);
      data.fill_normal();
      convolution_ = std::make_unique<PlannedConvolution>(problem, data, options);
      key_ = key;
    }
    return *convolution_;
  }

 private:
  std::string key_;
  std::unique_ptr<PlannedConvolution> convolution_;
};

void measure(benchmark::State& state, PlannedConvolution& convolution, Direction direction) {
  convolution.execute(direction);  // builds the graph and fills the allocator
  const Stopwatch watch;
  for (auto _ : state) convolution.execute(direction);
  const double passes = direction == Direction::training ? 3 : 1;
  const ConvPlan& plan = convolution.plan(direction);
  watch.rate(state, "GFLOP/s", 1e-9 * passes * plan.problem().flops());
  state.counters["MiB"] = static_cast<double>(convolution.peak_bytes()) / (1 << 20);
  state.SetLabel(fmt::format("{} {}", name_of(plan.engine()), to_string(plan.problem())));
}

void add(const ConvBenchOptions& o, Last& last) {
  std::set<std::string> names;
  for (NamedProblem named : o.problems) {
    named.problem.type = o.types.front();
    for (const Engine engine : o.engines) {
      const std::string key = fmt::format("{}/{}/threads:{}", named.name, name_of(engine), o.threads);
      if (!names.insert(key).second) continue;
      const PlannedConvolution::Options options{.conv = o.conv(engine),
                                                .threads = o.threads,
                                                .prepare_forward = false,
                                                .prepare_backward = false,
                                                .tune = o.tune};
      for (const Direction direction : o.directions) {
        const auto body = [=, problem = named.problem, &last](benchmark::State& state) {
          try {
            measure(state, last.get(key, problem, options), direction);
          } catch (const std::exception& error) {
            fail(state, error.what());
          }
        };
        benchmark::RegisterBenchmark(("conv/" + name_of(direction) + "/" + key).c_str(), body)
            ->Unit(benchmark::kMillisecond)
            ->MeasureProcessCPUTime()
            ->UseRealTime();
      }
    }
  }
}

struct Flags {
  ConvBenchOptions options;
  std::vector<std::string> texts, files;
  std::vector<index_t> batches;
  DataType type = DataType::f32;
  std::string layout = "both", weights = "fresh", passes;
  bool side_by_side = false, verify = false, choices = false, speed_up = false, stages = false, streamed = false,
       ladder = false;
};

enum Modes : unsigned {
  in_benchmark = 1,
  in_side_by_side = 2,
  in_verify = 4,
  in_choices = 8,
  in_speed_up = 16,
  in_stages = 32,
  in_streamed = 64,
  in_passes = 128,
  in_ladder = 256
};

Modes mode_of(const Flags& flags) {
  return flags.side_by_side        ? in_side_by_side
         : flags.verify            ? in_verify
         : flags.choices           ? in_choices
         : flags.speed_up          ? in_speed_up
         : flags.stages            ? in_stages
         : flags.streamed          ? in_streamed
         : flags.ladder            ? in_ladder
         : flags.passes.size() > 0 ? in_passes
                                   : in_benchmark;
}

const char* name_of(Modes mode) {
  switch (mode) {
    case in_side_by_side:
      return "--side-by-side";
    case in_verify:
      return "--verify";
    case in_choices:
      return "--choices";
    case in_speed_up:
      return "--speed-up";
    case in_stages:
      return "--stages";
    case in_streamed:
      return "--streamed";
    case in_passes:
      return "--passes";
    case in_ladder:
      return "--ladder";
    case in_benchmark:
      break;
  }
  return "a run of Google Benchmark";
}

void check_scopes(const CLI::App& app, const Flags& flags) {
  struct Scope {
    const char* flag;
    unsigned modes;
  };
  constexpr unsigned in_contest = in_side_by_side | in_choices | in_speed_up,
                     in_reports = in_contest | in_stages | in_streamed | in_ladder;
  constexpr std::array scopes{
      Scope{"--weights", in_contest | in_passes},
      Scope{"--peers", in_side_by_side},
      Scope{"--batch", in_side_by_side},
      Scope{"--recorded", in_choices},
      Scope{"--json", in_reports},
      Scope{"--rounds", in_reports | in_passes},
      Scope{"--min-seconds", in_reports},
      Scope{"--max-seconds", in_reports},
      Scope{"--dir", ~static_cast<unsigned>(in_streamed | in_ladder)},
      Scope{"--engine", in_benchmark | in_side_by_side | in_verify | in_speed_up | in_streamed | in_passes},
      Scope{"--choice", in_benchmark | in_side_by_side | in_speed_up | in_passes},
      Scope{"--tune", in_benchmark | in_side_by_side | in_speed_up | in_passes},
      Scope{"--layout", in_contest | in_stages | in_verify | in_passes}};
  const Modes mode = mode_of(flags);
  for (const Scope& scope : scopes) {
    if ((scope.modes & mode) != 0 || app.count(scope.flag) == 0) continue;
    throw CLI::ValidationError(scope.flag, fmt::format("{} does not use it; leave it out", name_of(mode)));
  }
}

/// Passes have one competitor, and a peer has no options of ours.
void check_passes(const CLI::App& app, const Flags& flags) {
  if (flags.options.engines.size() > 1) throw CLI::ValidationError("--engine", "--passes takes one engine");
  if (flags.passes == "ours") return;
  for (const char* const flag : {"--engine", "--choice", "--layout", "--weights", "--tune"}) {
    if (app.count(flag) == 0) continue;
    throw CLI::ValidationError(flag, fmt::format("--passes {} does not use it; leave it out", flags.passes));
  }
}

void set_defaults(const CLI::App& app, Flags& flags) {
  ConvBenchOptions& o = flags.options;
  if (mode_of(flags) == in_passes) check_passes(app, flags);
  if (o.rounds == 0 && mode_of(flags) != in_passes) {
    throw CLI::ValidationError("--rounds", "0 is valid with --passes only; use at least 1");
  }
  for (std::string& choice : o.choices) {
    if (choice == "automatic") choice.clear();
  }
  if (o.choices.size() > 1 && mode_of(flags) != in_side_by_side) {
    throw CLI::ValidationError("--choice", "only --side-by-side takes several; leave one");
  }
  o.choice = o.choices.front();
  o.types = {flags.type};
  if (flags.verify && app.count("--precision") == 0) o.types = {DataType::f32, DataType::f64};
  if (flags.verify && app.count("--engine") == 0) {
    // The reference engine is not verified, because it provides the expected results.
    o.engines = all_engines();
    o.engines.erase(std::remove(o.engines.begin(), o.engines.end(), Engine::reference), o.engines.end());
  }
  const bool plain_only = mode_of(flags) == in_benchmark || (mode_of(flags) == in_passes && flags.layout == "both");
  o.layouts = plain_only ? std::vector{Layout::plain} : layout_names().at(flags.layout);
  if (mode_of(flags) == in_passes && flags.passes != "ours") o.passes_of = peer_names().at(flags.passes);
  o.cached_weights = flags.weights == "cached";
  if (o.threads == 0) o.threads = default_threads();
}

void add_options(CLI::App& app, Flags& flags) {
  ConvBenchOptions& o = flags.options;
  auto* side_by_side = app.add_flag("--side-by-side", flags.side_by_side, "Compare with oneDNN in one process");
  app.add_flag("--verify", flags.verify, "Check results instead of timing them")->excludes(side_by_side);
  app.add_flag("--choices", flags.choices, "Compare the cost model's choice with other choices")
      ->excludes(side_by_side)
      ->excludes("--verify");
  app.add_flag("--speed-up", flags.speed_up, "Compare one thread with all threads")
      ->excludes(side_by_side)
      ->excludes("--verify")
      ->excludes("--choices");
  app.add_flag("--stages", flags.stages, "Compare the stages of fft_tiled with its cost model")
      ->excludes(side_by_side)
      ->excludes("--verify")
      ->excludes("--choices")
      ->excludes("--speed-up");
  app.add_flag("--streamed", flags.streamed, "Overlap transfers and computation of tensors that do not fit into memory")
      ->excludes(side_by_side)
      ->excludes("--verify")
      ->excludes("--choices")
      ->excludes("--speed-up")
      ->excludes("--stages");
  app.add_flag("--ladder", flags.ladder, "Time the steps from scalar loops to all threads (Figure 8 of swDNN)")
      ->excludes(side_by_side)
      ->excludes("--verify")
      ->excludes("--choices")
      ->excludes("--speed-up")
      ->excludes("--stages")
      ->excludes("--streamed");
  app.add_option("--passes", flags.passes, "Execute passes of one competitor: ours, or one of --peers")
      ->check(CLI::IsMember({"ours", "onednn", "fft_volume", "im2col:openblas", "im2col:atlas", "c_loops"}))
      ->excludes(side_by_side)
      ->excludes("--verify")
      ->excludes("--choices")
      ->excludes("--speed-up")
      ->excludes("--stages")
      ->excludes("--streamed")
      ->excludes("--ladder")
      ->option_text("NAME");
  app.add_flag("--one-thread-too", o.one_thread_too,
               "With --side-by-side: measure one thread beside all threads. The summary then takes the worse ratio of "
               "each problem: on all threads that of the lower quartiles, on one thread that of the medians")
      ->needs(side_by_side);
  app.add_flag("--tune", o.tune, "Select choices by measurement instead of the cost model (ConvPlan::tune)");
  app.add_option("--problem", flags.texts, "Problems; without this and --problems, a short built-in list")
      ->option_text("PROBLEM ...");
  app.add_option("--problems", flags.files, "Files of problems")->check(CLI::ExistingFile)->option_text("FILE ...");
  app.add_option("--dir", o.directions, "fwd, bwd_d, bwd_w, training, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(direction_names()))
      ->option_text("NAMES [fwd,bwd_d,bwd_w,training]");
  app.add_option("--engine", o.engines, list_of(engine_names()) + ", separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(engine_names()))
      ->option_text("NAMES [automatic; all but reference with --verify]");
  app.add_flag("--low-error", o.low_error, "Leave out engines with a larger error (toom_cook)");
  app.add_option("--choice", o.choices,
                 "Choice text of our plans, as convolume plan explain prints it. With --side-by-side there may be "
                 "several, which are measured in turn; `automatic` is the cost model's")
      ->option_text("TEXT ... [automatic]");
  app.add_option("--precision,--type", flags.type, "float or double (also f32 and f64)")
      ->transform(CLI::CheckedTransformer(type_names()))
      ->option_text("NAME [float; both with --verify]");
  app.add_option("--layout", flags.layout, "Layout of x and y: plain, blocked, or both if the engine supports both")
      ->check(CLI::IsMember({"plain", "blocked", "both"}))
      ->option_text("NAME [both]");
  app.add_option("--threads", o.threads, "Threads; 0 means one per physical core")
      ->check(CLI::Range(0, 1024))
      ->option_text("NUMBER [0]");
  app.add_option("--memory-budget", o.memory_gib, "GiB that cached spectra may hold; 0 means no limit")
      ->check(CLI::Range(0.0, 1048576.0))
      ->option_text("NUMBER [8]");
}

void add_contest_options(CLI::App& app, Flags& flags) {
  ConvBenchOptions& o = flags.options;
  app.add_option("--weights", flags.weights,
                 "Whether fwd includes the preparation of the weights: fresh (yes) or cached (no)")
      ->check(CLI::IsMember({"fresh", "cached"}))
      ->option_text("NAME [fresh]");
  app.add_option(
         "--peers", o.peers,
         "Competitors: onednn, fft_volume, torch (PyTorch in a separate process, fwd and training, the fastest of its "
         "memory formats), im2col:openblas and im2col:atlas (windows copied to a matrix that a BLAS multiplies), "
         "c_loops "
         "(fwd of blocked loops in C that the compiler vectorises: Figure 6 of PolyScientist), separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(peer_names()))
      ->option_text("NAMES [onednn,fft_volume]");
  app.add_option("--batch", flags.batches, "With --side-by-side: batches of every problem, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536))
      ->option_text("NUMBERS [the problem's]");
  app.add_option("--rounds", o.rounds, "Least number of rounds; with --passes, the number of passes, which may be 0")
      ->check(CLI::Range(0, 1000000))
      ->option_text("NUMBER [9]");
  app.add_option("--min-seconds", o.min_seconds, "Least total time of all rounds of a problem in a direction")
      ->check(CLI::Range(0.0, 3600.0))
      ->option_text("NUMBER [0.5]");
  app.add_option("--max-seconds", o.max_seconds,
                 "No round begins that would end after this time, except the first three")
      ->check(CLI::Range(0.0, 86400.0))
      ->option_text("NUMBER [30]");
  app.add_option("--json", o.json, "File for the results")->option_text("FILE");
  app.add_option(
         "--recorded", o.recorded,
         "With --choices: judge today's choices by the seconds of an earlier run (its --json) instead of measuring")
      ->check(CLI::ExistingFile)
      ->option_text("FILE");
}

int run_conv(int argc, char** argv) {
  Flags flags;
  Last last;  // declared here so that it is destroyed before static objects of the library
  CLI::App app(description, "bench_conv");
  flags.options.threads = 0;
  add_options(app, flags);
  add_contest_options(app, flags);
  app.final_callback([&] {
    check_scopes(app, flags);
    set_defaults(app, flags);
  });
  const auto read = [&] {
    std::vector<NamedProblem>& problems = flags.options.problems;
    problems = read_problems(flags.texts, flags.files);
    if (problems.empty()) {
      problems = flags.verify   ? problems_to_check()
                 : flags.ladder ? read_problems({"mb16ic128ih34oc128oh32kh3"}, {})
                                : problems_to_time();
    }
    if (!flags.batches.empty()) problems = with_batches(problems, flags.batches);
  };
  const auto add_benchmarks = [&] {
    read();
    add(flags.options, last);
  };
  return run(app, argc, argv, add_benchmarks, [&]() -> Mode {
    const Modes mode = mode_of(flags);
    if (mode == in_benchmark) return {};
    return [&, mode] {
      read();
      return mode == in_verify ? conv_verify(flags.options)
             : mode == in_choices
                 ? flags.options.recorded.empty() ? conv_choices(flags.options) : judge_recorded_choices(flags.options)
             : mode == in_speed_up ? conv_speed_up(flags.options)
             : mode == in_stages   ? conv_stages(flags.options)
             : mode == in_streamed ? conv_streamed(flags.options)
             : mode == in_passes   ? conv_passes(flags.options)
             : mode == in_ladder   ? conv_ladder(flags.options)
                                   : conv_side_by_side(flags.options);
    };
  });
}

}  // namespace
}  // namespace convolume::bench

int main(int argc, char** argv) { return convolume::bench::run_conv(argc, argv); }
