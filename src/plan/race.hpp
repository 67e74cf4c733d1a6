// Who of several candidates is fastest, by a callback that measures: nothing here looks at a clock.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace convolume::plan {

struct RaceRules {
  int rounds = 5;             ///< at least
  double min_seconds = 0.05;  ///< at least, for all rounds together
  double max_seconds = 2;     ///< after it no round begins, but the first three always do
  double hopeless = 5;        ///< so many times slower than the best in both of two calls: not measured further
  double behind = 1.5;        ///< so many times slower than the best after three rounds: likewise
};

/// The median seconds of each candidate, who take turns; of one that was dropped, what was seen until then. `seconds`
/// is called for each candidate twice before it counts, once where that is far more than hopeless. Ends early, after a
/// whole round, where `go_on` says so.
std::vector<double> race(std::size_t candidates, const RaceRules& rules,
                         const std::function<double(std::size_t)>& seconds, const std::function<bool()>& go_on = {});

/// The fastest; but the first where nobody is faster by more than what two measurements of the same thing differ.
std::size_t winner(const std::vector<double>& seconds);

}  // namespace convolume::plan
