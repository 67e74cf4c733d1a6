// Training iterations whose tasks are taken in one order or another, with and without a budget of scratch, in turn.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace convolume::bench {

struct OrderContestOptions {
  std::vector<std::string> nets, overrides;
  std::string engine = "automatic";
  std::vector<int> threads{2};
  std::vector<double> scratch_mib;  ///< budgets that TaskGraph is run with, beside none
  std::vector<int> cores{4, 8, 16, 64};
  int rounds = 21;
  double min_seconds = 0.5;  ///< of all rounds of a net together
  std::filesystem::path json;
};

/// Returns the exit status.
int order_contest(const OrderContestOptions& options);

}  // namespace convolume::bench
