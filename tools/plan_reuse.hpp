// `plan reuse`: where a nest uses data again, after paper 004.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace convolume::tools {

/// What `plan reuse` analyses.
struct ReuseOptions {
  std::string problem, nest;
  std::string direction = "fwd", type = "f32";
  int phase = 0;
  int block = 0;                           ///< channels of y in the microkernel of a nest without one; 0: one block
  std::vector<std::string> caches;         ///< sizes, the smallest first; none: of the machine row
  std::vector<double> latency, bandwidth;  ///< one per cache and that of memory; none: of the machine row
  bool json = false;
};

void add_reuse_options(CLI::App& command, ReuseOptions& options);

/// Returns the dependences and the cost as a table, or as one JSON object. Throws InvalidArgument for nonsense.
std::string plan_reuse(const ReuseOptions& options);

}  // namespace convolume::tools
