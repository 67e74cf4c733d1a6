#include "bench/fft/fft_verify.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "bench/common/progress_bar.hpp"
#include "bench/fft/fft_checks.hpp"
#include "convolume/cpu.hpp"
#include "convolume/error.hpp"

namespace convolume::bench {
namespace {

constexpr index_t lines = 19;  // odd, so that the last vector is never full
constexpr index_t largest_cube = 24, largest_box = 16;

struct Case {
  fft::Problem problem;
  std::string simd;
};

/// Returns a text on one line, shortened if it is long.
std::string short_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n';
    if (!space || (!result.empty() && result.back() != ' ')) result += space ? ' ' : c;
  }
  constexpr std::size_t most = 160;
  return result.size() <= most ? result : result.substr(0, most) + " ...";
}

struct Worst {
  double share = 0;  // error as a share of the bound
  std::string where;
};

class Tally {
 public:
  Tally(const FftOptions& options, ProgressBar& bar) : options_(options), bar_(bar) {}

  void add(const Case& c, const CheckReport& report) {
    for (const Check& check : report.checks) {
      if (check.passed()) {
        ++passed_;
      } else {
        print(c, fmt::format("{}: relative error {:.3g}, at most {:.3g} is allowed; plan: {}", check.name, check.error,
                             check.bound, short_text(report.plan)));
      }
      if (check.name == accuracy_name && check.error / check.bound > worst_.share) {
        worst_ = {check.error / check.bound, text(c)};
      }
    }
  }

  void add_exception(const Case& c, const char* what) { print(c, fmt::format("exception: {}", what)); }

  int finish() {
    bar_.clear();
    if (passed_ > 0) fmt::print("largest error: {:.0f} % of its bound, {}\n", 100 * worst_.share, worst_.where);
    fmt::print("{} passed, {} failed\n", passed_, failed_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  static std::string text(const Case& c) {
    const fft::Problem& p = c.problem;
    return fmt::format("{} {} {} of {}, batch {}, {}", name_of(p.kind), precision_name(p.type), name_of(p.order),
                       to_string(p.extent), p.batch, c.simd);
  }

  void print(const Case& c, const std::string& what) {
    ++failed_;
    bar_.clear();
    const fft::Problem& p = c.problem;
    const index_t n = p.batch > 1 ? p.extent.x : p.extent.z;
    fmt::print("FAILED {}: {}\n  again: CONVOLUME_SIMD={} bench_fft --verify --sizes {} --kind {} --precision {}",
               text(c), what, c.simd, n, name_of(p.kind), precision_name(p.type));
    fmt::print(" --order {} --algorithm {}\n", name_of(p.order), name_of(options_.prime));
    std::fflush(stdout);
  }

  const FftOptions& options_;
  ProgressBar& bar_;
  long long passed_ = 0, failed_ = 0;
  Worst worst_;
};

/// Returns the instruction sets to check. CONVOLUME_SIMD limits the check to one, as in the command that reproduces a
/// failure.
std::vector<std::string> targets() {
  const char* forced = std::getenv("CONVOLUME_SIMD");
  if (forced != nullptr && *forced != '\0') return {simd_target()};
  return available_simd_targets();
}

void verify_case(const FftOptions& options, const CheckInputs& inputs, const Case& c, Tally& tally) {
  try {
    tally.add(c, check(inputs, c.problem, options.prime));
  } catch (const Unsupported& error) {
    // An algorithm that was requested by name need not support every length.
    if (options.prime == fft::PrimeAlgorithm::automatic) tally.add_exception(c, error.what());
  } catch (const std::exception& error) {
    tally.add_exception(c, error.what());
  }
}

void verify_inputs(const FftOptions& options, const CheckInputs& inputs, DataType type,
                   const std::vector<fft::Kind>& kinds, Tally& tally) {
  const Extent3& extent = inputs.extent();
  for (const std::string& target : targets()) {
    set_simd_target(target);
    // Empty the cache, because a plan belongs to the instruction set for which it was made.
    fft::set_plan_cache_capacity(0);
    for (const fft::Kind kind : kinds) {
      for (const fft::Order order : options.orders) {
        // A line has no axes to rotate, so it is checked once.
        if (extent.z == 1 && extent.y == 1 && order != options.orders.front()) continue;
        const fft::Problem problem{
            .type = type, .kind = kind, .extent = extent, .order = order, .batch = inputs.batch()};
        verify_case(options, inputs, {problem, target}, tally);
      }
    }
  }
}

void verify_shape(const FftOptions& options, const Extent3& extent, index_t batch, Tally& tally) {
  using Use = CheckInputs::Use;
  for (const DataType type : options.types) {
    for (const Use use : {Use::complex_or_real_input, Use::hermitian_input}) {
      std::vector<fft::Kind> kinds;
      std::copy_if(options.kinds.begin(), options.kinds.end(), std::back_inserter(kinds),
                   [&](fft::Kind kind) { return CheckInputs::use_for(kind) == use; });
      if (kinds.empty()) continue;
      verify_inputs(options, CheckInputs(extent, batch, type, use), type, kinds, tally);
    }
  }
}

}  // namespace

int verify(const FftOptions& options) {
  ProgressBar bar;
  Tally tally(options, bar);
  double total = 0, done = 0;
  const auto work = [](index_t n) { return n <= largest_cube ? 4.0 : 1.0; };
  for (const index_t n : options.sizes) total += work(n);
  for (const index_t n : options.sizes) {
    bar.show(done / total, fmt::format("length {}", n));
    verify_shape(options, {1, 1, n}, lines, tally);
    if (n <= largest_cube) verify_shape(options, Extent3::all(n), 1, tally);
    if (n <= largest_box) verify_shape(options, {n, n + 1, n / 2 + 1}, 1, tally);
    done += work(n);
  }
  return tally.finish();
}

}  // namespace convolume::bench
