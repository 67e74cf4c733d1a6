// `plan variants`: orders and tiles of a layer's loops, ranked and measured, after paper 004.
#pragma once

#include <cstddef>
#include <string>

namespace CLI {
class App;
}

namespace convolume::tools {

/// What `plan variants` generates.
struct VariantsOptions {
  std::string problem, problems;  ///< one of these
  std::string direction = "fwd", space = "orders";
  std::string rank = "seconds";  ///< "seconds", "reuse", or "dnn:FILE"
  std::size_t limit = 720, top = 1;
  bool measure = false;
  bool time_models = false;  ///< time what the ranks cost
  int threads = 0;           ///< 0: as many as there are processors
  std::string out;           ///< file that keeps finished layers
  std::string dataset;       ///< HDF5 file of pairs for the net that ranks
  bool json = false;
};

void add_variants_options(CLI::App& command, VariantsOptions& options);

/// Prints the variants as tables, or as one JSON object. Returns the exit status: 1 if a problem of the list is not
/// served. Throws InvalidArgument for nonsense, Unsupported if no problem is served.
int plan_variants(const VariantsOptions& options);

}  // namespace convolume::tools
