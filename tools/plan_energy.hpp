// The verbs `plan energy` and `plan system`: the energy of loop nests in memory hierarchies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace convolume::tools {

/// How energies are counted; both verbs take these.
struct EnergyModelOptions {
  std::string counts = "exact", word_bits = "auto", datapath = "16,16", latches = "free";
  double mac_pj = 1.0;
  double register_pj = 0;  ///< 0: by the table
  std::string limit;       ///< bytes of all memories together
  int levels = 3, seeds = 128, top = 10;
  std::uint64_t seed = 1;
  std::int64_t batch = 0;  ///< 0: of the layer
  bool json = false;
};

struct EnergyOptions : EnergyModelOptions {
  std::string layer, problem;      ///< one of these, or dims
  std::vector<std::int64_t> dims;  ///< X,Y,C,K,Fw,Fh and N
  std::string nest, search;        ///< one of these
  std::string hierarchy = "free";
  std::vector<int> cores;
  std::string split = "xy";
};
void add_energy_options(CLI::App& app, EnergyOptions& options);
/// Returns a table, or one JSON object. Throws InvalidArgument for nonsense.
std::string plan_energy(const EnergyOptions& options);

struct SystemOptions : EnergyModelOptions {
  std::vector<std::string> layers, problems;
  double area_mm2 = 0;  ///< instead of limit
};
void add_system_options(CLI::App& app, SystemOptions& options);
/// Returns a table, or one JSON object. Throws InvalidArgument for nonsense.
std::string plan_system(const SystemOptions& options);

}  // namespace convolume::tools
