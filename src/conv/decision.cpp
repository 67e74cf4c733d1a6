#include "conv/decision.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "conv/choice.hpp"
#include "plan/cost_constants.hpp"
#include "plan/polyphase.hpp"

namespace convolume {
namespace conv {
namespace {

constexpr const char* not_requested = "not requested";

/// Returns the choice that is requested, or the engine that is requested by name, or `automatic`.
Choice requested_choice(const ConvOptions& options) {
  if (options.choice.empty()) return {.engine = options.engine};
  Choice choice = parse_choice(options.choice);
  if (options.engine == Engine::automatic || options.engine == choice.engine) return choice;
  throw InvalidArgument(
      fmt::format("choice '{}' is not one of {}; leave the engine automatic", options.choice, name_of(options.engine)));
}

/// Throws InvalidArgument if an engine was requested that low_error excludes.
void require_low_error(const ConvOptions& options, Engine requested) {
  if (!options.low_error || requested == Engine::automatic || !has_larger_error(requested)) return;
  throw InvalidArgument(fmt::format(
      "engine '{}' has a larger error, which low_error (--low-error) excludes; leave low_error out, or the {}",
      name_of(requested), options.choice.empty() ? "engine automatic" : "choice '" + options.choice + "'"));
}

/// Returns why an implementation is not considered, or an empty string.
std::string reason_against(const Implementation& implementation, const ConvOptions& options, Engine requested) {
  if (requested != Engine::automatic) return requested == implementation.engine ? "" : not_requested;
  return options.low_error && implementation.larger_error ? "has a larger error, which low_error excludes" : "";
}

/// Assesses one implementation, and makes it the decision if it is better than what was decided before.
void consider(Decision& decision, const Implementation& implementation, const ConvOptions& options,
              const Choice& choice) {
  Explanation& explanation = decision.explanation;
  Explanation::Candidate& candidate = explanation.candidates.back();
  Assessment assessment = assess(implementation, explanation.problem, options, choice.parts.get());
  candidate.reason = std::move(assessment.reason);
  if (!assessment.estimate) return;
  if (choice.engine == Engine::automatic && implementation.by_name_reason != nullptr) {
    candidate.reason = implementation.by_name_reason();
    candidate.requested = candidate.reason.empty();
    if (!candidate.requested) return;
  }
  Estimate& estimate = *assessment.estimate;
  candidate.seconds = estimate.seconds;
  candidate.bytes = estimate.bytes;
  if (decision.implementation != nullptr) {
    const double factor = implementation.engine == Engine::direct ? plan::near_estimates : 1;
    if (estimate.seconds >= factor * explanation.seconds) return;
    candidate.preferred = estimate.seconds >= explanation.seconds;
  }
  decision.implementation = &implementation;
  explanation.seconds = estimate.seconds;
  explanation.engine = implementation.engine;
  decision.parts = std::move(estimate.parts);
  explanation.bounds = std::move(estimate.bounds);
}

std::string text_of(const Explanation::Candidate& candidate, const std::string& wanted) {
  if (!candidate.requested) return fmt::format("  {}: {}\n", candidate.name, candidate.reason);
  if (!candidate.seconds) return fmt::format("  {}: unsupported, {}\n", candidate.name, candidate.reason);
  std::string text = fmt::format("  {}: {:.3g} ms estimated for {}, {:.3g} MiB beside the tensors\n", candidate.name,
                                 1e3 * *candidate.seconds, wanted, candidate.bytes / (1 << 20));
  if (candidate.preferred) {
    text += fmt::format("  {} is preferred to estimates that are less than {:.0f} % shorter\n",
                        name_of(candidate.engine), 100 * (1 - 1 / plan::near_estimates));
  }
  return text;
}

std::string text_of(const Explanation::Bound& bound) {
  return fmt::format("    {}: {:.3g} ms, {:.0f} % of it {}; the floor of the machine is {:.0f} %\n", bound.result,
                     1e3 * bound.seconds, 100 * bound.part_seconds / bound.seconds, bound.part,
                     100 * bound.floor_seconds / bound.seconds);
}

std::string text_of(const CacheCost& cache) {
  return fmt::format("  {}: {} {} bytes, {:.3g} ms saved per iteration\n", cache.name,
                     cache.kept ? "kept," : "recomputed, would hold", cache.bytes, 1e3 * cache.seconds_saved);
}

}  // namespace

Decision decide(const ConvProblem& problem, const ConvOptions& options) {
  Decision decision;
  Explanation& explanation = decision.explanation;
  explanation.problem = problem;
  explanation.want_dx = options.want_dx;
  explanation.want_dw = options.want_dw;
  const Choice choice = requested_choice(options);
  const Engine requested = choice.engine;
  require_low_error(options, requested);
  for (const Implementation& implementation : implementations()) {
    if (implementation.engine == Engine::onednn && requested != Engine::onednn) continue;
    explanation.candidates.push_back({.engine = implementation.engine, .name = implementation.name});
    Explanation::Candidate& candidate = explanation.candidates.back();
    candidate.reason = reason_against(implementation, options, requested);
    candidate.requested = candidate.reason.empty();
    if (candidate.requested) consider(decision, implementation, options, choice);
  }
  if (decision.implementation != nullptr) {
    explanation.choice = to_string(Choice{.engine = explanation.engine, .parts = decision.parts});
  }
  return decision;
}

}  // namespace conv

std::string to_string(const Explanation& e) {
  const std::string wanted = fmt::format("y{}{}", e.want_dx ? ", dx" : "", e.want_dw ? ", dw" : "");
  std::string text = fmt::format("{}{}\n", to_string(e.problem), e.problem.transposed ? " transposed" : "");
  for (const auto& candidate : e.candidates) text += conv::text_of(candidate, wanted);
  if (!e.choice.empty()) text += fmt::format("  chosen: {}\n", e.choice);
  if (!e.choice.empty() && has_larger_error(e.engine)) {
    text +=
        "  its error is about 1.3e-6 in float, with planar kernels at most 6e-7; low_error (--low-error) leaves this "
        "engine out\n";
  }
  if (!e.bounds.empty() && e.problem.groups > 1) text += "  each group:\n";
  for (const auto& bound : e.bounds) text += conv::text_of(bound);
  for (const auto& cache : e.caches) text += conv::text_of(cache);
  return text;
}

std::vector<LayoutEstimate> ConvPlan::best_layouts(const ConvProblem& wanted, const ConvOptions& options) {
  wanted.validate();
  const ConvProblem problem = plan::with_short_strides(wanted);
  std::vector<LayoutEstimate> served;
  for (const Layout x : {Layout::plain, Layout::blocked}) {
    for (const Layout y : {Layout::plain, Layout::blocked}) {
      ConvProblem one = problem;
      one.x_layout = x;
      one.y_layout = y;
      const conv::Decision decision = conv::decide(one, options);
      if (decision.implementation == nullptr) continue;
      served.push_back({.x_layout = x,
                        .y_layout = y,
                        .engine = decision.explanation.engine,
                        .seconds = decision.explanation.seconds});
    }
  }
  std::stable_sort(served.begin(), served.end(),
                   [](const LayoutEstimate& a, const LayoutEstimate& b) { return a.seconds < b.seconds; });
  return served;
}

}  // namespace convolume
