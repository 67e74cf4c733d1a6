#include "bench/conv/conv_verify.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "bench/common/progress_bar.hpp"
#include "bench/common/report.hpp"
#include "bench/conv/conv_competitor.hpp"
#include "core/random.hpp"

namespace convolume::bench {
namespace {

enum class Numbers { integers, random };
constexpr std::array kinds{Numbers::integers, Numbers::random};

constexpr double largest_sum =
    1 << 18;  // limit for sums of |x| |w|; below it, rounding to an integer gives the exact result

double bound_of(DataType type) { return type == DataType::f32 ? 2e-6 : 1e-13; }

/// An engine that serves the problem, with its type and layout.
struct Case {
  Engine engine;
  ConvProblem problem;
};

/// Fills a tensor with random integers from -most to most, and sets all but a share `density` of them to 0.
void fill_integers(ConvTensor& tensor, std::uint32_t stream, int most, double density) {
  const RandomKey values{.seed = 5, .a = stream}, kept{.seed = 5, .a = stream, .b = 1};
  const auto range = static_cast<std::uint64_t>(2 * most + 1);
  for (index_t i = 0; i < tensor.shape().elements(); ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const bool keep = density >= 1 || uniform(kept, at) < density;
    tensor.set(i, keep ? static_cast<int>(uniform_below(values, at, range)) - most : 0);
  }
}

/// Fills the inputs with integers whose sums of products stay small. The integers are small, and most of them are 0 if
/// a sum has too many terms otherwise.
void fill_integers(const ConvProblem& p, ConvData& data) {
  const auto taps = static_cast<double>(p.kernel.volume() * std::max(p.in_channels, p.out_channels) / p.groups);
  const auto voxels = static_cast<double>(p.batch * p.output().volume());
  const int most = static_cast<int>(std::clamp(std::sqrt(largest_sum / std::max(taps, voxels)), 1.0, 4.0));
  fill_integers(data.x, 1, most, 1);
  fill_integers(data.w, 2, most, largest_sum / taps);
  fill_integers(data.dy, 3, most, largest_sum / voxels);
}

/// The results of the definition, computed in double from numbers that both types hold exactly.
struct Expected {
  Expected(const ConvProblem& p, Numbers numbers, const ConvBenchOptions& o)
      : data(p), y(p.type, p.y_shape()), dx(p.type, p.x_shape()), dw(p.type, p.w_shape()) {
    if (numbers == Numbers::random) {
      data.fill_normal();
    } else {
      fill_integers(p, data);
    }
    PlannedConvolution reference(p, data, {.conv = {.engine = Engine::reference}, .threads = o.threads});
    reference.execute(Direction::training);
    for (const Output output : outputs_of(Direction::training)) reference.read(output, of(output));
  }
  ConvTensor& of(Output output) { return output == Output::y ? y : output == Output::dx ? dx : dw; }

  /// Returns the inputs, converted to the type of `p`.
  ConvData inputs(const ConvProblem& p) const {
    ConvData converted(p);
    for (const auto& [from, to] :
         {std::pair{&data.x, &converted.x}, {&data.w, &converted.w}, {&data.dy, &converted.dy}}) {
      for (index_t i = 0; i < from->shape().elements(); ++i) to->set(i, from->at(i));
    }
    return converted;
  }

  ConvData data;
  ConvTensor y, dx, dw;
};

class Verifier {
 public:
  explicit Verifier(const ConvBenchOptions& options) : o_(options) {}

  int run() {
    double total = 0, done = 0;
    for (const NamedProblem& named : o_.problems) total += named.problem.flops();
    for (const NamedProblem& named : o_.problems) {
      if (stop_.pending()) break;
      share_ = done / total;
      verify(named);
      done += named.problem.flops();
    }
    bar_.clear();
    if (!worst_.empty()) fmt::print("largest error: {:.0f} % of its bound, {}\n", 100 * worst_share_, worst_);
    fmt::print("{} passed, {} failed, {} skipped\n", passed_, failed_, skipped_);
    return stop_.pending() ? interrupted_status : failed_ > 0 ? 1 : 0;
  }

 private:
  void verify(const NamedProblem& named) {
    const std::vector<Case> cases = served(named);
    if (cases.empty()) return;
    ConvProblem exact = named.problem;
    exact.type = DataType::f64;
    for (const Numbers numbers : kinds) {
      if (stop_.pending()) return;
      bar_.show(share_, fmt::format("{}: reference", named.name));
      Expected expected(exact, numbers, o_);
      for (const Case& one : cases) {
        bar_.show(share_, fmt::format("{}: {}", named.name, name_of(one.engine)));
        try {
          verify(one, numbers, expected);
        } catch (const std::exception& error) {
          fail(one, numbers, o_.directions.front(), fmt::format("exception: {}", error.what()));
        }
      }
    }
  }

  /// Returns all cases of a problem. Prints and counts unsupported ones as skipped.
  std::vector<Case> served(const NamedProblem& named) {
    std::vector<Case> cases;
    for (const DataType type : o_.types) {
      for (const Layout layout : o_.layouts) {
        ConvProblem problem = with_layout(named.problem, layout);
        if (layout_of(problem) != layout) continue;  // too few channels: the problem equals the plain one
        problem.type = type;
        for (const Engine engine : o_.engines) {
          try {
            static_cast<void>(ConvPlan::make(problem, o_.conv(engine)));
            cases.push_back({engine, problem});
          } catch (const Unsupported& error) {
            ++skipped_;
            bar_.clear();
            fmt::print("skipped {}: {}\n", text({engine, problem}), refusal(error, engine));
          }
        }
      }
    }
    return cases;
  }

  void verify(const Case& one, Numbers numbers, Expected& expected) {
    const ConvData inputs = expected.inputs(one.problem);
    PlannedConvolution convolution(one.problem, inputs, {.conv = o_.conv(one.engine), .threads = o_.threads});
    for (const Direction direction : o_.directions) {
      std::string wrong;
      try {
        wrong = run_and_compare(one, numbers, direction, convolution, expected);
      } catch (const std::exception& error) {
        wrong = fmt::format("exception: {}", error.what());
      }
      if (wrong.empty()) {
        ++passed_;
      } else {
        fail(one, numbers, direction, wrong);
      }
    }
  }

  /// Executes one direction and returns what is wrong with its results, or an empty string.
  std::string run_and_compare(const Case& one, Numbers numbers, Direction direction, PlannedConvolution& convolution,
                              Expected& expected) {
    for (const Output output : outputs_of(direction)) convolution.poison(output);
    convolution.execute(direction);
    for (const Output output : outputs_of(direction)) {
      ConvTensor got(one.problem.type, shape_of(one.problem, output));
      convolution.read(output, got);
      std::string wrong = compare(one, numbers, output, got, expected.of(output));
      if (!wrong.empty()) return wrong;
      if (!convolution.clean_padding(output)) {
        return fmt::format("{}: pad lanes are not zero", name_of(output));
      }
    }
    return {};
  }

  /// Returns what is wrong, or an empty string.
  std::string compare(const Case& one, Numbers numbers, Output output, const ConvTensor& got,
                      const ConvTensor& wanted) {
    if (numbers == Numbers::random) {
      const double error = relative_error(got, wanted), bound = bound_of(one.problem.type);
      if (error / bound > worst_share_) {
        worst_share_ = error / bound;
        worst_ = fmt::format("{} of {}", name_of(output), text(one));
      }
      if (error <= bound) return {};  // false for NaN
      return fmt::format("{}: relative error {:.3g}, at most {:.3g} is allowed", name_of(output), error, bound);
    }
    for (index_t i = 0; i < wanted.shape().elements(); ++i) {
      if (std::nearbyint(got.at(i)) == wanted.at(i)) continue;
      return fmt::format("{}: element {} is {}, expected {}", name_of(output), i, got.at(i), wanted.at(i));
    }
    return {};
  }

  static std::string text(const Case& one) {
    return fmt::format("{} {} {} {}", name_of(one.engine), one.problem.type == DataType::f32 ? "float" : "double",
                       name_of(layout_of(one.problem)), to_string(one.problem));
  }

  void fail(const Case& one, Numbers numbers, Direction direction, const std::string& what) {
    ++failed_;
    bar_.clear();
    const ConvProblem& p = one.problem;
    fmt::print("FAILED {} {}, {}: {}\n", text(one), name_of(direction),
               numbers == Numbers::integers ? "integers" : "random numbers", what);
    fmt::print("  again: bench_conv --verify --problem {} --engine {} --dir {} --precision {} --layout {}\n",
               to_string(p), name_of(one.engine), name_of(direction), p.type == DataType::f32 ? "float" : "double",
               name_of(layout_of(p)));
    std::fflush(stdout);
  }

  const ConvBenchOptions& o_;
  const StopRequest stop_;
  ProgressBar bar_;
  double share_ = 0, worst_share_ = 0;
  std::string worst_;
  long long passed_ = 0, failed_ = 0, skipped_ = 0;
};

}  // namespace

int conv_verify(const ConvBenchOptions& options) { return Verifier(options).run(); }

}  // namespace convolume::bench
