// Benchmarks convolutions in all directions, from lists of problems in benchdnn's grammar: with Google Benchmark, side
// by side with oneDNN, and as a check of every result.
#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "bench/common/support.hpp"
#include "bench/conv/conv_choices.hpp"
#include "bench/conv/conv_contestant.hpp"
#include "bench/conv/conv_options.hpp"
#include "bench/conv/conv_side_by_side.hpp"
#include "bench/conv/conv_speed_up.hpp"
#include "bench/conv/conv_stages.hpp"
#include "bench/conv/conv_verify.hpp"
#include "convolume/cpu.hpp"

namespace convolume::bench {
namespace {

constexpr const char* description =
    "3-D convolutions, forward and back.\n\n"
    "Modes:\n"
    "  (none)          Google Benchmark: every problem, direction and engine by itself.\n"
    "  --side-by-side  This library, oneDNN and this library's fft_volume in turn in one process: medians and "
    "quartiles\n"
    "                  over many rounds, the ratio of their times to ours, and geometric means. Between two "
    "contestants\n"
    "                  lie 50 ms of rest, in which all threads fall asleep, and a call that is not timed. oneDNN "
    "chooses\n"
    "                  its own layouts, and what brings tensors into them is not timed. Everything of ours that "
    "depends\n"
    "                  on data is: fwd and bwd_d begin with the preparation of weights.\n"
    "  --choices       What the cost model picks against every engine and other tiles, each by explicit choice, in "
    "turn:\n"
    "                  the pick, the best choice, and the ratio of their times. What the model or the first call "
    "holds\n"
    "                  for several times slower is left out. In training the best tiles of each direction that was\n"
    "                  measured before take part together.\n"
    "  --speed-up      One thread and all of them in turn: how many times faster all are, how many times the floor "
    "says,\n"
    "                  and the quotient of the two.\n"
    "  --stages        fft_tiled: transforms of weights, of tiles, products and idle workers, by the cost model and\n"
    "                  measured; where directions share tiles, the model's are their parts of training.\n"
    "  --verify        No timing: every engine that serves a problem, in every direction, type and layout, is held\n"
    "                  against the definition, in double. Small integers have to come out exactly, random numbers "
    "within\n"
    "                  2e-6 (float) or 1e-13 (double). Status 1 when anything fails.\n\n"
    "Terms: fwd is y from x; bwd_d is dx from dy; bwd_w is dw from x and dy; training is a whole iteration as one\n"
    "task graph: weights prepared (transformed or packed), y, dx and dw, spectra kept in between. Without --side-\n"
    "by-side all but training find their weights prepared. Engines are chosen for what is measured: fwd as for\n"
    "inference, a gradient together with fwd, training for both gradients. GFLOP/s is effective: multiplications\n"
    "and additions of the direct way (three times those of fwd for training) per second, whatever the engine\n"
    "does. MiB is the most memory held so far, tensors included. The label is the engine that ran and the\n"
    "problem. The floor is the least time that this machine could take: the operations of convolving by\n"
    "transformed tiles, or of the direct way, at the peak of all cores, or the bytes that either moves at the\n"
    "bandwidth of memory; the report gives it as a share of our time. Blocked tensors hold 64 bytes of channels\n"
    "side by side; those of fewer than 8 channels stay plain.\n\n"
    "Problems are written in the descriptor grammar of oneDNN's benchdnn, one a line, # for comments:\n"
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
  DataType type = DataType::f32;
  std::string layout = "both", weights = "fresh";
  bool side_by_side = false, verify = false, choices = false, speed_up = false, stages = false;
};

enum Modes : unsigned {
  in_benchmark = 1,
  in_side_by_side = 2,
  in_verify = 4,
  in_choices = 8,
  in_speed_up = 16,
  in_stages = 32
};

Modes mode_of(const Flags& flags) {
  return flags.side_by_side ? in_side_by_side
         : flags.verify     ? in_verify
         : flags.choices    ? in_choices
         : flags.speed_up   ? in_speed_up
         : flags.stages     ? in_stages
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
  constexpr unsigned in_contest = in_side_by_side | in_choices | in_speed_up, in_reports = in_contest | in_stages;
  constexpr std::array scopes{Scope{"--weights", in_contest},
                              Scope{"--peers", in_side_by_side},
                              Scope{"--json", in_reports},
                              Scope{"--rounds", in_reports},
                              Scope{"--min-seconds", in_reports},
                              Scope{"--max-seconds", in_reports},
                              Scope{"--engine", in_benchmark | in_side_by_side | in_verify | in_speed_up},
                              Scope{"--tune", in_benchmark | in_side_by_side | in_speed_up},
                              Scope{"--layout", in_reports | in_verify}};
  const Modes mode = mode_of(flags);
  for (const Scope& scope : scopes) {
    if ((scope.modes & mode) != 0 || app.count(scope.flag) == 0) continue;
    throw CLI::ValidationError(scope.flag, fmt::format("{} does not look at it; leave it out", name_of(mode)));
  }
}

void set_defaults(const CLI::App& app, Flags& flags) {
  ConvBenchOptions& o = flags.options;
  o.types = {flags.type};
  if (flags.verify && app.count("--precision") == 0) o.types = {DataType::f32, DataType::f64};
  if (flags.verify && app.count("--engine") == 0) {
    // The reference engine is not verified, because it provides the expected results.
    o.engines = all_engines();
    o.engines.erase(std::remove(o.engines.begin(), o.engines.end(), Engine::reference), o.engines.end());
  }
  o.layouts = mode_of(flags) == in_benchmark ? std::vector{Layout::plain} : layout_names().at(flags.layout);
  o.cached_weights = flags.weights == "cached";
  if (o.threads == 0) o.threads = default_threads();
}

void add_options(CLI::App& app, Flags& flags) {
  ConvBenchOptions& o = flags.options;
  auto* side_by_side = app.add_flag("--side-by-side", flags.side_by_side, "Compare with oneDNN in one process");
  app.add_flag("--verify", flags.verify, "Check results instead of timing them")->excludes(side_by_side);
  app.add_flag("--choices", flags.choices, "Measure how good the cost model's choice is")
      ->excludes(side_by_side)
      ->excludes("--verify");
  app.add_flag("--speed-up", flags.speed_up, "Compare one thread with all of them")
      ->excludes(side_by_side)
      ->excludes("--verify")
      ->excludes("--choices");
  app.add_flag("--stages", flags.stages, "What the cost model of fft_tiled expects of each stage, and what it takes")
      ->excludes(side_by_side)
      ->excludes("--verify")
      ->excludes("--choices")
      ->excludes("--speed-up");
  app.add_flag("--tune", o.tune, "Measure choices before, instead of asking the cost model (ConvPlan::tune)");
  app.add_option("--problem", flags.texts, "Problems; a short built-in list without this and --problems")
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
  app.add_option("--precision,--type", flags.type, "float or double, which are also called f32 and f64")
      ->transform(CLI::CheckedTransformer(type_names()))
      ->option_text("NAME [float; both with --verify]");
  app.add_option("--layout", flags.layout, "Of x and y: plain, blocked, or both where an engine serves both")
      ->check(CLI::IsMember({"plain", "blocked", "both"}))
      ->option_text("NAME [both]");
  app.add_option("--threads", o.threads, "Workers; 0 is one for each physical core")
      ->check(CLI::Range(0, 1024))
      ->option_text("NUMBER [0]");
  app.add_option("--memory", o.memory_gib, "GiB that kept spectra may hold; 0 is no limit")
      ->check(CLI::Range(0.0, 1048576.0))
      ->option_text("NUMBER [8]");
}

void add_contest_options(CLI::App& app, Flags& flags) {
  ConvBenchOptions& o = flags.options;
  app.add_option("--weights", flags.weights, "Whether fwd begins with the preparation of weights: fresh or cached")
      ->check(CLI::IsMember({"fresh", "cached"}))
      ->option_text("NAME [fresh]");
  app.add_option(
         "--peers", o.peers,
         "Who takes part beside us: onednn, fft_volume, torch (PyTorch in a process of its own, fwd and training), "
         "separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(peer_names()))
      ->option_text("NAMES [onednn,fft_volume]");
  app.add_option("--rounds", o.rounds, "Least number of rounds")
      ->check(CLI::Range(1, 1000000))
      ->option_text("NUMBER [9]");
  app.add_option("--min-seconds", o.min_seconds, "Least time of all rounds of a problem in a direction together")
      ->check(CLI::Range(0.0, 3600.0))
      ->option_text("NUMBER [0.5]");
  app.add_option("--max-seconds", o.max_seconds, "After it no round begins, but three are always made")
      ->check(CLI::Range(0.0, 86400.0))
      ->option_text("NUMBER [30]");
  app.add_option("--json", o.json, "Write the results there")->option_text("FILE");
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
    if (problems.empty()) problems = flags.verify ? problems_to_check() : problems_to_time();
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
      return mode == in_verify     ? conv_verify(flags.options)
             : mode == in_choices  ? conv_choices(flags.options)
             : mode == in_speed_up ? conv_speed_up(flags.options)
             : mode == in_stages   ? conv_stages(flags.options)
                                   : conv_side_by_side(flags.options);
    };
  });
}

}  // namespace
}  // namespace convolume::bench

int main(int argc, char** argv) { return convolume::bench::run_conv(argc, argv); }
