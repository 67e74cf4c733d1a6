// Convolutions in the directions that training needs, from lists of problems in benchdnn's grammar.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/support.hpp"
#include "convolume/conv.hpp"
#include "convolume/cpu.hpp"
#include "convolume/memory.hpp"

namespace convolume::bench {
namespace {

enum class Direction { forward, backward_data, backward_weights, training };

const std::map<std::string, Direction> direction_names{{"fwd", Direction::forward},
                                                       {"bwd_d", Direction::backward_data},
                                                       {"bwd_w", Direction::backward_weights},
                                                       {"training", Direction::training}};
const std::map<std::string, Engine> engine_names{
    {"automatic", Engine::automatic}, {"fft_volume", Engine::fft_volume}, {"reference", Engine::reference}};
const std::map<std::string, DataType> type_names{{"f32", DataType::f32}, {"f64", DataType::f64}};

/// Run where no file is named.
constexpr const char* built_in =
    "mb1ic2oc2id8kd3n\"smoke\"\n"
    "mb1ic32id52oc32od48kd5n\"paper 5x5x5\"\n"
    "mb1ic32id52oc32od50kd3n\"paper 3x3x3\"\n"
    "mb1ic8id8ih128iw128oc8od8oh128ow128kd1kh5kw5ph2pw2pd0n\"anisotropic, top level\"\n"
    "mb1ic1id64oc16od52kd13n\"first layer, large kernel\"\n";

struct Options {
  std::vector<std::string> files;
  std::vector<Direction> directions{Direction::forward, Direction::backward_data, Direction::backward_weights,
                                    Direction::training};
  std::vector<Engine> engines{Engine::automatic};
  DataType type = DataType::f32;
  int threads = 0;
  double memory_gib = 8;
};

struct NamedProblem {
  std::string name;
  ConvProblem problem;
};

/// What stands in n"..." behind `list`, or the problem's own text, as a part of a benchmark's name.
std::string name_of_line(const std::string& list, const std::string& line, const ConvProblem& problem) {
  const std::size_t mark = line.find("n\"");
  const std::size_t end = mark == std::string::npos ? mark : line.find('"', mark + 2);
  if (end == std::string::npos || end == mark + 2) return to_string(problem);
  std::string name = list.empty() ? std::string() : list + ":";
  for (const char c : line.substr(mark + 2, end - mark - 2)) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_';
    if (plain || (!name.empty() && name.back() != '-')) name += plain ? c : '-';
  }
  return name;
}

/// One problem a line; # begins a comment. `origin` is for errors, `list` for names.
void read_problems(std::istream& in, const std::string& origin, const std::string& list, DataType type,
                   std::vector<NamedProblem>& problems) {
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    line.resize(std::min(line.find('#'), line.size()));
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty()) continue;
    try {
      ConvProblem problem = parse_problem(line);
      problem.type = type;
      std::string name = name_of_line(list, line, problem);
      const auto same = [&](const NamedProblem& other) { return other.name == name; };
      if (std::any_of(problems.begin(), problems.end(), same)) name += ":" + to_string(problem);
      problems.push_back({std::move(name), problem});
    } catch (const Error& error) {
      throw InvalidArgument(fmt::format("{}:{}: {}", origin, number, error.what()));
    }
  }
}

std::vector<NamedProblem> problems_of(const Options& options) {
  std::vector<NamedProblem> problems;
  if (options.files.empty()) {
    std::istringstream text(built_in);
    read_problems(text, "built-in list", "", options.type, problems);
  }
  for (const std::string& file : options.files) {
    std::ifstream in(file);
    if (!in) throw IoError(fmt::format("problem file '{}' cannot be read", file));
    const std::size_t before = problems.size();
    read_problems(in, file, std::filesystem::path(file).stem().string(), options.type, problems);
    if (problems.size() == before) throw FormatError(fmt::format("problem file '{}' holds no problem", file));
  }
  return problems;
}

/// A planned problem with its tensors, and one graph for a whole training iteration.
template <class T>
class Convolution {
 public:
  Convolution(const ConvProblem& problem, const ConvOptions& options, int threads)
      : scheduler_(threads),
        run_{scheduler_, &memory_},
        plan_(ConvPlan::make(problem, options)),
        x_(filled(problem.x_shape(), 1)),
        w_(filled(problem.w_shape(), 2)),
        dy_(filled(problem.y_shape(), 3)),
        y_(problem.y_shape(), &memory_),
        dx_(problem.x_shape(), &memory_),
        dw_(problem.w_shape(), &memory_),
        prepared_(plan_.prepare(run_, w_)),
        x_hat_(plan_.input_spectra(&memory_)),
        dy_hat_(plan_.gradient_spectra(&memory_)) {
    const Ready w = plan_.append_prepare(training_, {}, w_, prepared_);
    const Ready y =
        plan_.append_forward(training_, {.w = w}, {.x = x_, .w = prepared_, .y = y_, .x_hat = &x_hat_}, &memory_);
    plan_.append_backward(
        training_, {.w = w, .dy = y},
        {.x = x_, .y = y_, .dy = dy_, .w = prepared_, .x_hat = &x_hat_, .dy_hat = &dy_hat_, .dx = dx_, .dw = dw_},
        &memory_);
  }

  void execute(Direction direction) {
    switch (direction) {
      case Direction::forward:
        return plan_.forward(run_, {.x = x_, .w = prepared_, .y = y_});
      case Direction::backward_data:
        return plan_.backward(run_, {.dy = dy_, .w = prepared_, .dx = dx_});
      case Direction::backward_weights:
        return plan_.backward(run_, {.x = x_, .dy = dy_, .w = prepared_, .dw = dw_});
      case Direction::training:
        training_.run(scheduler_);
    }
  }
  const ConvPlan& plan() const { return plan_; }
  std::size_t peak_bytes() const { return memory_.statistics().peak_bytes; }

 private:
  Tensor<T> filled(const Shape5& shape, std::uint32_t stream) {
    Tensor<T> tensor(shape, &memory_);
    fill_normal(tensor.data(), tensor.elements(), stream);
    return tensor;
  }

  SlabResource memory_;
  Scheduler scheduler_;
  Execution run_;
  ConvPlan plan_;
  Tensor<T> x_, w_, dy_, y_, dx_, dw_;
  PreparedWeights prepared_;
  Spectra x_hat_, dy_hat_;
  TaskGraph training_;
};

/// The convolution that was measured last: Google Benchmark calls a benchmark several times, and the next direction
/// is the same problem.
template <class T>
class Last {
 public:
  Convolution<T>& get(const std::string& key, const ConvProblem& problem, const ConvOptions& options, int threads) {
    if (!convolution_ || key_ != key) {
      convolution_.reset();
      convolution_ = std::make_unique<Convolution<T>>(problem, options, threads);
      key_ = key;
    }
    return *convolution_;
  }

 private:
  std::string key_;
  std::unique_ptr<Convolution<T>> convolution_;
};

struct Lasts {
  Last<float> f32;
  Last<double> f64;
};

template <class T>
void measure(benchmark::State& state, Convolution<T>& convolution, Direction direction) {
  convolution.execute(direction);  // builds graphs and fills the allocator
  const Stopwatch watch;
  for (auto _ : state) convolution.execute(direction);
  const double passes = direction == Direction::training ? 3 : 1;
  watch.rate(state, "GFLOP/s", 1e-9 * passes * convolution.plan().problem().flops());
  state.counters["MiB"] = static_cast<double>(convolution.peak_bytes()) / (1 << 20);
  const ConvPlan& plan = convolution.plan();
  state.SetLabel(fmt::format("{} {}", name_of(plan.engine()), to_string(plan.problem())));
}

void add(const Options& options, Lasts& lasts) {
  const int threads = options.threads > 0 ? options.threads : available_cpus();
  std::set<std::string> names;
  for (const auto& [problem_name, problem] : problems_of(options)) {
    for (const Engine engine : options.engines) {
      const std::string key = fmt::format("{}/{}/threads:{}", problem_name, name_of(engine), threads);
      if (!names.insert(key).second) continue;
      const ConvOptions conv{.engine = engine,
                             .memory_budget = static_cast<std::size_t>(options.memory_gib * (1u << 30))};
      for (const Direction direction : options.directions) {
        std::string term;
        for (const auto& [name, value] : direction_names) {
          if (value == direction) term = name;
        }
        const auto body = [=, problem = problem, &lasts](benchmark::State& state) {
          try {
            if (problem.type == DataType::f32) {
              measure(state, lasts.f32.get(key, problem, conv, threads), direction);
            } else {
              measure(state, lasts.f64.get(key, problem, conv, threads), direction);
            }
          } catch (const std::exception& error) {
            fail(state, error.what());
          }
        };
        benchmark::RegisterBenchmark(("conv/" + term + "/" + key).c_str(), body)
            ->Unit(benchmark::kMillisecond)
            ->MeasureProcessCPUTime()
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
  Lasts lasts;  // here, so that it is gone before static objects of the library are
  CLI::App app(
      "3-D convolutions, forward and back.\n\n"
      "Terms: fwd is y from x; bwd_d is dx from dy; bwd_w is dw from x and dy; all three with weights that were "
      "prepared\n"
      "(transformed or packed) beforehand. training is a whole iteration as one task graph: weights prepared, y, dx "
      "and\n"
      "dw, spectra kept in between. GFLOP/s is effective: multiplications and additions of the direct way (three "
      "times\n"
      "those of fwd for training) per second, whatever the engine does. MiB is the most memory held so far, tensors\n"
      "included. The label is the engine that ran and the problem.\n\n"
      "Problems are written in the descriptor grammar of oneDNN's benchdnn, one a line, # for comments:\n"
      "  mb batch, g groups, ic oc channels, i input, o output, k kernel, s stride, p padding, d dilation - 1,\n"
      "  each of the last six followed by d, h or w for Z, Y, X (a missing axis repeats the one before);\n"
      "  n\"...\" at the end is a name.  Example: mb1ic32id52oc32od48kd5n\"paper\"",
      "bench_conv");
  app.add_option("--problems", options.files, "Problem files; a short built-in list without it")
      ->check(CLI::ExistingFile)
      ->option_text("FILE ...");
  app.add_option("--directions", options.directions, "fwd, bwd_d, bwd_w, training, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(direction_names))
      ->option_text("NAMES [fwd,bwd_d,bwd_w,training]");
  app.add_option("--engines", options.engines, "automatic, fft_volume, reference, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(engine_names))
      ->option_text("NAMES [automatic]");
  app.add_option("--type", options.type, "f32 or f64")
      ->transform(CLI::CheckedTransformer(type_names))
      ->option_text("NAME [f32]");
  app.add_option("--threads", options.threads, "Workers; 0 is one for each processor")
      ->check(CLI::Range(0, 1024))
      ->option_text("NUMBER [0]");
  app.add_option("--memory", options.memory_gib, "GiB that kept weight spectra may hold; 0 is no limit")
      ->check(CLI::Range(0.0, 1048576.0))
      ->option_text("NUMBER [8]");
  return run(app, argc, argv, [&] { add(options, lasts); });
}
