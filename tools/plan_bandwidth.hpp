// `plan bandwidth`: required against available bandwidth of convolutions, after paper 003.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace convolume::tools {

/// What `plan bandwidth` computes. An empty text is the default of the machine.
struct BandwidthOptions {
  std::string problem, problems;  ///< one of these, or test_sets: a problem, a file of problems
  bool test_sets = false;         ///< the 51 problems of the paper
  std::string machine = "sw26010";
  std::string pattern, issue, type;
  bool single_buffer = false;
  bool json = false;
};

void add_bandwidth_options(CLI::App& command, BandwidthOptions& options);

/// Returns a table, or one JSON object. Throws InvalidArgument for nonsense, Unsupported for problems that the model
/// does not have, FormatError or IoError for a chip file.
std::string plan_bandwidths(const BandwidthOptions& options);

}  // namespace convolume::tools
