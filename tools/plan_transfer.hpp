// `plan transfer`: tiles of double-buffered transfers, after paper 001.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace convolume::tools {

/// What `plan transfer` searches.
struct TransferOptions {
  std::string problem, problems, layer;  ///< one of these: a problem, a file of problems, a built-in layer
  std::string capacity = "256K";         ///< bytes of the small memory, both halves
  long long element_bytes = 4;
  std::string cost = "5000,20,1", order = "zyxck", footprint = "halo", counts = "equations", pick = "best";
  bool run = false;  ///< measure the transfers of the picked tiles
  bool json = false;
};

void add_transfer_options(CLI::App& command, TransferOptions& options);

/// Returns the tiles and their costs as a table, or as one JSON object. Throws InvalidArgument for nonsense.
std::string plan_transfers(const TransferOptions& options);

}  // namespace convolume::tools
