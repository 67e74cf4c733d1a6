#include "conv/implementations.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "conv/depthwise/depthwise_engines.hpp"
#include "conv/direct/direct_engine.hpp"
#include "conv/grouped_engine.hpp"
#include "conv/onednn/onednn_engine.hpp"
#include "conv/reference/reference_engine.hpp"
#include "conv/tiled/fft_tiled_engine.hpp"
#include "conv/volume/fft_volume_engine.hpp"
#include "plan/cost_constants.hpp"

namespace convolume::conv {
namespace {

/// Returns whether `implementation` computes the problem one group at a time.
bool by_groups(const Implementation& implementation, const ConvProblem& problem) {
  return implementation.group_by_group && problem.groups > 1 && !is_depthwise(problem);
}

/// Returns the options for one group. The memory budget is divided equally among the groups.
ConvOptions options_of_group(const ConvProblem& problem, ConvOptions options) {
  if (options.memory_budget != 0) {
    options.memory_budget = std::max<std::size_t>(1, options.memory_budget / static_cast<std::size_t>(problem.groups));
  }
  return options;
}

std::string reason_against_groups(const ConvProblem& problem) {
  const ConvProblem one = one_group(problem);
  const index_t block = channel_block(problem.type);
  for (const auto& [layout, channels] :
       {std::pair{problem.x_layout, one.in_channels}, std::pair{problem.y_layout, one.out_channels}}) {
    if (layout == Layout::blocked && channels % block != 0) {
      return fmt::format("groups of {} channels do not fill blocks of {}; use plain tensors", channels, block);
    }
  }
  return {};
}

/// Returns why the estimated memory is out of proportion to the tensors, or an empty string.
std::string reason_against_memory(const ConvProblem& problem, double bytes) {
  const double tensors =
      static_cast<double>(size_of(problem.type)) *
      static_cast<double>(problem.x_shape().elements() + problem.y_shape().elements() + problem.w_shape().elements());
  if (bytes <= plan::proportionate_bytes || bytes <= plan::proportionate_factor * tensors) return {};
  return fmt::format("would hold {:.1f} GiB beside tensors of {:.1f} GiB", bytes / (1 << 30), tensors / (1 << 30));
}

}  // namespace

std::span<const Implementation> implementations() {
  static const std::array all{
      fft_tiled_implementation(), fft_depthwise_implementation(),    fft_volume_implementation(),
      direct_implementation(),    direct_depthwise_implementation(), reference_implementation(),
      onednn_implementation()};
  return all;
}

Assessment assess(const Implementation& implementation, const ConvProblem& problem, const ConvOptions& options) {
  const bool grouped = by_groups(implementation, problem);
  std::string reason = grouped ? reason_against_groups(problem) : std::string();
  const ConvProblem part = grouped ? one_group(problem) : problem;
  const ConvOptions part_options = grouped ? options_of_group(problem, options) : options;
  if (reason.empty()) reason = implementation.unsupported_reason(part, part_options);
  if (!reason.empty()) return {.reason = std::move(reason)};
  Estimate estimate = implementation.estimate(part, part_options, machine_model());
  if (grouped) {
    estimate.seconds *= static_cast<double>(problem.groups);
    estimate.bytes *= static_cast<double>(problem.groups);
  }
  if (estimate.choice.empty()) estimate.choice = name_of(implementation.engine);
  reason = reason_against_memory(problem, estimate.bytes);
  if (!reason.empty()) return {.reason = std::move(reason)};
  return {.estimate = std::move(estimate)};
}

std::unique_ptr<ConvEngine> create_engine(const Implementation& implementation, const ConvProblem& problem,
                                          const ConvOptions& options, const std::string& choice) {
  ConvOptions chosen = options;
  chosen.choice = choice;
  if (!by_groups(implementation, problem)) return implementation.create(problem, chosen);
  return make_grouped(problem, implementation.create(one_group(problem), options_of_group(problem, chosen)));
}

}  // namespace convolume::conv
