// Times training iterations whose tasks run in different orders, with and without a scratch budget, in turn.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace convolume::bench {

struct OrderContestOptions {
  std::vector<std::string> nets, overrides;
  std::string engine = "automatic";
  bool low_error = false;  ///< see ConvOptions
  std::vector<int> threads{2};
  std::vector<double> scratch_mib;  ///< scratch budgets for further runs of TaskGraph
  std::vector<int> cores{4, 8, 16, 64};
  int rounds = 21;
  double min_seconds = 0.5;  ///< for all rounds of a net together
  std::filesystem::path json;
};

/// Returns the exit status.
int order_contest(const OrderContestOptions& options);

}  // namespace convolume::bench
