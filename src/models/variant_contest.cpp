// The measurement of variants, with controls for a machine that is not steady.
#include <algorithm>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "convolume/variants.hpp"

namespace convolume::plan {
namespace {

/// Thrown and caught in this file.
struct Ended {};

/// Counts measurements and ends them.
class Progress {
 public:
  Progress(const VariantTimer& timer, std::size_t all) : timer_(timer), all_(all) {}
  double measure(const LoopNest& nest) { return counted(timer_.measure(nest)); }
  double measure_automatic() { return counted(timer_.measure_automatic()); }
  void expect(std::size_t more) { all_ += more; }

 private:
  double counted(double seconds) {
    if (timer_.on_progress && !timer_.on_progress(++done_, all_)) throw Ended{};
    return seconds;
  }

  const VariantTimer& timer_;
  std::size_t done_ = 0, all_;
};

std::size_t controls_of(std::size_t variants) { return 1 + variants / VariantContest::control_every; }

/// Measures each variant once, and the first one again after every sixteenth.
void measure_all(std::vector<Variant>& variants, VariantContest& contest, Progress& progress) {
  contest.control.assign(1, progress.measure(variants[0].nest));
  for (std::size_t i = 0; i < variants.size(); ++i) {
    variants[i].measured = progress.measure(variants[i].nest);
    if ((i + 1) % VariantContest::control_every == 0) contest.control.push_back(progress.measure(variants[0].nest));
  }
  // The first variant's own measurement is a control too, so that short lists have two.
  auto times = contest.control;
  times.push_back(*variants[0].measured);
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  contest.steady = *most <= VariantContest::steady_ratio * *least;
}

template <class Indices>
std::size_t fastest(const std::vector<Variant>& variants, const Indices& indices) {
  return *std::min_element(indices.begin(), indices.end(),
                           [&](std::size_t a, std::size_t b) { return *variants[a].measured < *variants[b].measured; });
}

void measure_finalists(const std::vector<Variant>& variants, VariantContest& contest, Progress& progress) {
  contest.finalists = {{.name = "pick", .index = contest.pick},
                       {.name = "best", .index = contest.best},
                       {.name = "default", .index = 0},
                       {.name = "automatic", .index = std::nullopt}};
  for (std::size_t round = 0; round < VariantContest::rounds; ++round) {
    for (std::size_t i = 0; i < contest.finalists.size(); ++i) {
      // Each finalist goes first in turn.
      Finalist& one = contest.finalists[(round + i) % contest.finalists.size()];
      one.rounds.push_back(one.index ? progress.measure(variants[*one.index].nest) : progress.measure_automatic());
    }
  }
}

}  // namespace

double Finalist::seconds() const {
  if (rounds.empty()) throw InvalidArgument(fmt::format("finalist {} was not measured; measure it first", name));
  std::vector<double> sorted = rounds;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 4];
}

const Finalist& VariantContest::finalist(std::string_view name) const {
  const auto found =
      std::find_if(finalists.begin(), finalists.end(), [&](const Finalist& one) { return one.name == name; });
  if (found == finalists.end()) {
    throw InvalidArgument(fmt::format("'{}' is no finalist; use pick, best, default or automatic", name));
  }
  return *found;
}

std::optional<VariantContest> measure_variants(std::vector<Variant>& variants, std::span<const std::size_t> first,
                                               const VariantTimer& timer) {
  if (variants.empty() || first.empty()) {
    throw InvalidArgument("there is no variant to measure; give variants, and those that a rank puts first");
  }
  constexpr std::size_t finals = 4 * VariantContest::rounds;
  const std::size_t pass = variants.size() + controls_of(variants.size());
  Progress progress(timer, pass + finals);
  VariantContest contest;
  try {
    measure_all(variants, contest, progress);
    if (!contest.steady) {
      progress.expect(pass);
      contest.passes = 2;
      measure_all(variants, contest, progress);
    }
    std::vector<std::size_t> all(variants.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    contest.best = fastest(variants, all);
    contest.pick = fastest(variants, first);
    measure_finalists(variants, contest, progress);
  } catch (const Ended&) {
    return std::nullopt;
  }
  return contest;
}

}  // namespace convolume::plan
