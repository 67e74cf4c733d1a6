#include "plan/autotune.hpp"

#include <algorithm>

namespace convolume::plan {
namespace {

constexpr double noise = 0.03;
constexpr int rounds_before_dropping = 3;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<double> autotune(std::size_t candidates, const AutotuneRules& rules,
                             const std::function<double(std::size_t)>& seconds, const std::function<bool()>& go_on) {
  if (candidates == 0) return {};
  std::vector<double> seen(candidates);
  std::vector<std::vector<double>> samples(candidates);
  std::vector<bool> running(candidates, true);
  const auto drop = [&](double factor) {
    const double best = *std::min_element(seen.begin(), seen.end());
    for (std::size_t i = 0; i < candidates; ++i) running[i] = running[i] && seen[i] <= factor * best;
  };
  double least = 0, total = 0;
  const auto measured = [&](std::size_t i) {
    const double now = seconds(i);
    total += now;
    return now;
  };
  for (std::size_t i = 0; i < candidates; ++i) {
    seen[i] = measured(i);
    // The first call of a candidate builds and allocates, or may be interrupted, so each candidate is called twice. A
    // candidate that is this much slower is not called again.
    if (i == 0 || seen[i] <= rules.hopeless * rules.hopeless * least) seen[i] = std::min(seen[i], measured(i));
    least = i == 0 ? seen[i] : std::min(least, seen[i]);
  }
  drop(rules.hopeless);
  const double first_calls = total;
  double last_round = 0;
  for (int round = 0;; ++round) {
    const bool enough = round >= rules.rounds && total - first_calls >= rules.min_seconds;
    const bool late = round >= rules.least_rounds && total + last_round > rules.max_seconds;
    if (enough || late || (go_on && !go_on())) break;
    last_round = -total;
    for (std::size_t i = 0; i < candidates; ++i) {
      if (!running[i]) continue;
      samples[i].push_back(measured(i));
      seen[i] = median(samples[i]);
    }
    last_round += total;
    if (round + 1 == rounds_before_dropping) drop(rules.behind);
  }
  return seen;
}

std::size_t winner(const std::vector<double>& seconds) {
  const auto best = std::min_element(seconds.begin(), seconds.end());
  if (best == seconds.end() || *best >= (1 - noise) * seconds.front()) return 0;
  return static_cast<std::size_t>(best - seconds.begin());
}

}  // namespace convolume::plan
