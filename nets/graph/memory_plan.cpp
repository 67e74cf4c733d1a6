#include "nets/graph/memory_plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "convolume/cpu.hpp"
#include "convolume/machine.hpp"
#include "convolume/memory.hpp"
#include "convolume/net_costs.hpp"
#include "nets/base/memory_limit.hpp"
#include "plan/cost_constants.hpp"

namespace convolume::nets {
namespace {

/// Returns the bytes of the kept spectra that a budget can exclude.
std::size_t kept_bytes(const Network& network) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < network.spec().nodes.size(); ++i) {
    if (network.plan_of(i) == nullptr) continue;
    for (const CacheCost& cache : network.plan_of(i)->caches()) bytes += cache.budgeted && cache.kept ? cache.bytes : 0;
  }
  return bytes;
}

/// Returns the seconds on one core of all convolutions, and of the transforms that are repeated.
double convolution_seconds(const Network& network) {
  double seconds = 0;
  for (std::size_t i = 0; i < network.spec().nodes.size(); ++i) {
    const ConvPlan* plan = network.plan_of(i);
    if (plan == nullptr) continue;
    seconds += plan->seconds();
    for (const CacheCost& cache : plan->caches()) {
      if (!cache.kept && !cache.free_to_drop) seconds += cache.seconds_saved;
    }
  }
  return seconds;
}

/// Returns the factor of time for memory that is reused sooner, which leaves workers fewer tasks to choose from.
double waiting_factor(const Slack& slack) {
  const Slack full;
  return 1 + plan::waiting_per_slack * (full.tensors - slack.tensors + full.working - slack.working);
}

/// Drafts training with other options. The parameters are made once for all drafts.
class Drafts {
 public:
  Drafts(const NetSpec& spec, NetworkOptions options, int threads)
      : spec_(spec), options_(std::move(options)), threads_(threads) {
    options_.batch = spec.training.batch;
    options_.training = true;
    options_.tune_on = nullptr;
  }

  MemoryPlan draft(std::size_t budget, const Slack& slack) {
    MemoryPlan plan{.memory_budget = budget, .slack = slack};
    Network network(spec_, spec_.patch, parameters_, plan.apply(options_), &memory_);
    plan.kept_spectra = kept_bytes(network);
    plan.memory = plan_training_memory(network, parameters_, memory_, threads_);
    const double moved = plan.memory.moved_bytes / (1e9 * machine_model().dram_gb_per_s);
    plan.seconds = (convolution_seconds(network) + moved) / threads_ * waiting_factor(slack);
    return plan;
  }

 private:
  const NetSpec& spec_;
  NetworkOptions options_;
  int threads_;
  SlabResource slabs_;
  CountedMemory memory_{&slabs_};
  Parameters parameters_{spec_, true, 1, &memory_};
};

/// Marks the plan with the least product of time and fourth root of memory. Scratch does not count, because it depends
/// on the number of threads. All plans have the usual slack.
void mark_default(std::vector<MemoryPlan>& plans) {
  const auto cost = [](const MemoryPlan& plan) {
    return plan.seconds * std::pow(static_cast<double>(plan.memory.peak() - plan.memory.scratch), 0.25);
  };
  std::min_element(plans.begin(), plans.end(), [&](const MemoryPlan& a, const MemoryPlan& b) {
    return cost(a) < cost(b);
  })->by_default = true;
}

/// Removes plans that take no less memory than a faster one. The default stays; what would replace it is removed.
std::vector<MemoryPlan> best_of(std::vector<MemoryPlan> plans) {
  const MemoryPlan chosen = *std::find_if(plans.begin(), plans.end(), [](const MemoryPlan& p) { return p.by_default; });
  std::erase_if(plans, [&](const MemoryPlan& plan) {
    return !plan.by_default && plan.seconds <= chosen.seconds && plan.memory.peak() <= chosen.memory.peak();
  });
  std::stable_sort(plans.begin(), plans.end(),
                   [](const MemoryPlan& a, const MemoryPlan& b) { return a.seconds < b.seconds; });
  std::vector<MemoryPlan> best;
  for (MemoryPlan& plan : plans) {
    if (best.empty() || plan.memory.peak() < best.back().memory.peak()) best.push_back(std::move(plan));
  }
  return best;
}

std::vector<MemoryPlan> plans_with(const NetSpec& spec, const NetworkOptions& options, int threads,
                                   std::span<const Slack> slacks) {
  if (options.memory_mode != MemoryMode::arena) {
    return {{.memory_budget = options.memory_budget.value_or(usual_memory_budget), .by_default = true}};
  }
  // Shares of the spectra that a budget limits, in eighths.
  constexpr std::array<std::size_t, 5> eighths{6, 4, 2, 1, 0};
  Drafts drafts(spec, options, threads);
  std::vector<MemoryPlan> plans;
  for (const Slack& slack : slacks) {
    plans.push_back(drafts.draft(options.memory_budget.value_or(0), slack));
    if (!options.memory_budget && options.cache_spectra) {
      const std::size_t all = plans.back().kept_spectra;
      for (const std::size_t share : eighths) {
        plans.push_back(drafts.draft(std::max<std::size_t>(1, all / 8 * share), slack));
      }
    }
    if (slack == Slack{}) mark_default(plans);
  }
  return best_of(std::move(plans));
}

}  // namespace

NetworkOptions MemoryPlan::apply(NetworkOptions options) const {
  options.memory_budget = memory_budget;
  options.slack = slack;
  return options;
}

std::vector<MemoryPlan> memory_plans(const NetSpec& spec, const NetworkOptions& options, int threads) {
  constexpr std::array<Slack, 3> slacks{Slack{}, Slack{.tensors = 1, .working = 0}, Slack{.tensors = 0, .working = 0}};
  return plans_with(spec, options, threads, slacks);
}

const MemoryPlan& default_plan(const std::vector<MemoryPlan>& plans) {
  return *std::find_if(plans.begin(), plans.end(), [](const MemoryPlan& plan) { return plan.by_default; });
}

const MemoryPlan* fastest_within(const std::vector<MemoryPlan>& plans, std::size_t bytes) {
  const auto found =
      std::find_if(plans.begin(), plans.end(), [&](const MemoryPlan& plan) { return plan.memory.peak() <= bytes; });
  return found == plans.end() ? nullptr : &*found;
}

std::size_t fixed_process_bytes(const NetSpec& spec, const NetworkOptions& options, int threads) {
  return program_bytes + validation_network_bytes(spec, options, threads) + least_volume_bytes;
}

std::vector<MemoryPoint> memory_curve(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                                      std::optional<Extent3> patch, int threads) {
  NetSpec spec = load_net(file, overrides);
  if (patch) refuse_patch_of_classifier(spec, "--patch");
  spec.patch = patch.value_or(spec.patch);
  const int workers = threads > 0 ? threads : default_threads();
  const auto plans = memory_plans(spec, {}, workers);
  const std::size_t fixed = fixed_process_bytes(spec, {}, workers);
  std::vector<MemoryPoint> points;
  for (const MemoryPlan& plan : plans) {
    const Slack usual;
    points.push_back({.peak = plan.memory.peak(),
                      .process = fixed + plan.memory.peak(),
                      .kept_spectra = plan.kept_spectra,
                      .reuse = usual.tensors - plan.slack.tensors + usual.working - plan.slack.working,
                      .seconds = plan.seconds,
                      .by_default = plan.by_default});
  }
  return points;
}

NetworkOptions with_memory_plan(const NetSpec& spec, const NetworkOptions& options) {
  if (options.memory_budget) return options;
  return default_plan(plans_with(spec, options, 1, std::array{Slack{}})).apply(options);
}

}  // namespace convolume::nets
