// Finds the fastest of several candidates by a callback that measures. This code does not read a clock.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace convolume::plan {

struct AutotuneRules {
  int rounds = 5;             ///< minimum number of rounds
  double min_seconds = 0.05;  ///< minimum for all rounds together
  int least_rounds = 3;       ///< rounds that are always run
  double max_seconds = 2;     ///< of all calls together; no other round begins that would end later
  double hopeless = 5;        ///< drop a candidate that is this many times slower than the best in its first calls
  double behind = 1.5;        ///< drop a candidate that is this many times slower than the best after three rounds
};

/// Runs an autotuning run: measures the candidates in turns. Returns the median seconds of each candidate; for a
/// dropped candidate, what was measured until then. `seconds` is called twice for each candidate before the rounds, or
/// once if it is far slower than `hopeless`. The run ends early, after a whole round, if `go_on` returns false.
std::vector<double> autotune(std::size_t candidates, const AutotuneRules& rules,
                             const std::function<double(std::size_t)>& seconds,
                             const std::function<bool()>& go_on = {});

/// Returns the fastest candidate. Returns the first one if no other is faster by more than the noise of two equal
/// measurements.
std::size_t winner(const std::vector<double>& seconds);

}  // namespace convolume::plan
