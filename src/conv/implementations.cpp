#include "conv/implementations.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

#include "conv/depthwise/depthwise_engines.hpp"
#include "conv/direct/direct_engine.hpp"
#include "conv/grouped_engine.hpp"
#include "conv/onednn/onednn_engine.hpp"
#include "conv/reference/reference_engine.hpp"
#include "conv/tiled/fft_tiled_engine.hpp"
#include "conv/toom_cook/toom_cook_engine.hpp"
#include "conv/volume/fft_volume_engine.hpp"
#include "core/lazy.hpp"
#include "plan/cost_constants.hpp"

namespace convolume {

bool has_larger_error(Engine engine) noexcept {
  const auto all = conv::implementations();
  return std::any_of(all.begin(), all.end(),
                     [&](const conv::Implementation& one) { return one.engine == engine && one.larger_error; });
}

bool takes_layer(Engine engine, const ConvProblem& problem) {
  if (engine == Engine::onednn) return !problem.transposed;
  const auto all = conv::implementations();
  return std::none_of(all.begin(), all.end(), [&](const conv::Implementation& one) {
    return one.engine == engine && one.some_layers_only && !conv::assess(one, problem, {}, nullptr).reason.empty();
  });
}

}  // namespace convolume

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
  static constinit Lazy<const std::array<Implementation, 8>> all;
  return all.get([] {
    return std::array{fft_tiled_implementation(), fft_depthwise_implementation(), fft_volume_implementation(),
                      toom_cook_implementation(), direct_implementation(),        direct_depthwise_implementation(),
                      reference_implementation(), onednn_implementation()};
  });
}

Assessment assess(const Implementation& implementation, const ConvProblem& problem, const ConvOptions& options,
                  const ChoiceParts* parts) {
  const bool grouped = by_groups(implementation, problem);
  std::string reason = grouped ? reason_against_groups(problem) : std::string();
  const ConvProblem part = grouped ? one_group(problem) : problem;
  const ConvOptions part_options = grouped ? options_of_group(problem, options) : options;
  if (reason.empty()) reason = implementation.unsupported_reason(part, part_options, parts);
  if (!reason.empty()) return {.reason = std::move(reason)};
  Estimate estimate = implementation.estimate(part, part_options, machine_model(), parts);
  if (grouped) {
    estimate.seconds *= static_cast<double>(problem.groups);
    estimate.bytes *= static_cast<double>(problem.groups);
  }
  reason = reason_against_memory(problem, estimate.bytes);
  if (!reason.empty()) return {.reason = std::move(reason)};
  return {.estimate = std::move(estimate)};
}

std::vector<Choice> propose(const Implementation& implementation, const ConvProblem& problem,
                            const ConvOptions& options, std::size_t most) {
  const bool grouped = by_groups(implementation, problem);
  const ConvProblem part = grouped ? one_group(problem) : problem;
  if (implementation.propose == nullptr || !implementation.unsupported_reason(part, options, nullptr).empty())
    return {};
  std::vector<Choice> choices;
  for (SharedParts& parts : implementation.propose(part, options, most)) {
    choices.push_back({.engine = implementation.engine, .parts = std::move(parts)});
  }
  return choices;
}

Choice parse_choice(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    std::string forms;
    for (const Implementation& implementation : implementations()) {
      if (*implementation.form != '\0') forms += fmt::format(", or {}", implementation.form);
    }
    throw InvalidArgument(fmt::format("choice '{}': {}; write the name of an engine{}", text, why, forms));
  };
  std::istringstream stream(text);
  const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  if (words.empty()) refuse("it is empty");
  Choice choice{.engine = engine_of(words[0])};
  if (choice.engine == Engine::automatic) refuse("'automatic' is not one");
  if (words.size() == 1) return choice;
  const auto all = implementations();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Implementation& one) {
    return one.engine == choice.engine && one.parse != nullptr;
  });
  if (found == all.end()) refuse(fmt::format("{} has no tiles", words[0]));
  try {
    choice.parts = found->parse(std::span(words).subspan(1));
  } catch (const InvalidArgument& error) {
    refuse(error.what());
  }
  return choice;
}

std::unique_ptr<ConvEngine> create_engine(const Implementation& implementation, const ConvProblem& problem,
                                          const ConvOptions& options, const ChoiceParts* parts) {
  if (!by_groups(implementation, problem)) return implementation.create(problem, options, parts);
  return make_grouped(problem, implementation.create(one_group(problem), options_of_group(problem, options), parts));
}

}  // namespace convolume::conv
