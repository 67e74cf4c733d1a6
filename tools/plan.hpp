// The `plan` subcommand: loop nests of convolutions, counted, and the report on a plan.
#pragma once

#include <string>

#include "tools/plan_bandwidth.hpp"
#include "tools/plan_energy.hpp"
#include "tools/plan_reuse.hpp"
#include "tools/plan_transfer.hpp"
#include "tools/plan_variants.hpp"

namespace CLI {
class App;
}

namespace convolume::tools {

/// What `plan count` counts.
struct CountOptions {
  std::string problem, nest;
  std::string direction = "fwd", layout = "plain", type = "f32";
  std::string datapath;  ///< channels of x and of y that are multiplied at once, "C,K"
  std::string svg;       ///< picture to write
  int phase = 0;
  bool json = false;
};

/// Returns the counts as a table, or as one JSON object, and writes the picture. Throws InvalidArgument for nonsense.
std::string count_nest(const CountOptions& options);

/// A plan that `plan explain` makes.
struct ExplainOptions {
  std::string problem;
  std::string layout = "plain", type = "f32", engine = "automatic";
  std::string choice;      ///< ConvOptions::choice
  bool low_error = false;  ///< ConvOptions::low_error
  bool json = false;
};

/// Returns the report of the plan, as text or as one JSON object. Throws InvalidArgument for nonsense, Unsupported if
/// the engine cannot serve it.
std::string explain_plan(const ExplainOptions& options);

class PlanCommand {
 public:
  void add_to(CLI::App& app);
  int run() const;

 private:
  CLI::App *count_command_ = nullptr, *energy_command_ = nullptr, *system_command_ = nullptr,
           *transfer_command_ = nullptr, *bandwidth_command_ = nullptr, *reuse_command_ = nullptr,
           *variants_command_ = nullptr;
  CountOptions count_;
  ExplainOptions explain_;
  EnergyOptions energy_;
  SystemOptions system_;
  TransferOptions transfer_;
  BandwidthOptions bandwidth_;
  ReuseOptions reuse_;
  VariantsOptions variants_;
};

}  // namespace convolume::tools
