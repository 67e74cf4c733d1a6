#include "bench/net/net_choice.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "bench/common/support.hpp"
#include "convolume/error.hpp"
#include "nets/spec/net_shapes.hpp"

namespace convolume::bench {
namespace {

constexpr double gib = 1u << 30;

/// Returns the estimated peak bytes of a call, from the plans of the net. It serves to select an extent.
double estimated_bytes(const nets::NetSpec& spec, Engine engine, bool cache, Work work) {
  const bool training = work == Work::training;
  const nets::NetShapes shapes = nets::infer_shapes(spec, spec.patch);
  double kept = 0, transient = 0;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const auto batch = static_cast<double>(spec.training.batch);
    const nets::NodeShape& shape = shapes.nodes[i];
    // Outputs and their gradients.
    kept += (training ? 2 : 1) * sizeof(float) * batch * static_cast<double>(shape.channels * shape.extent.volume());
    const auto planned =
        nets::conv_problem(spec, spec.nodes[i], spec.training.batch, shapes.of(spec.nodes[i].inputs[0]));
    if (!planned) continue;
    const ConvProblem& problem = *planned;
    // Weights, with their gradients and the moments of the optimizer.
    kept += (training ? 4 : 1) * sizeof(float) * static_cast<double>(problem.w_shape().elements());
    // The layout of spectra does not depend on the FFT backend.
    double layer = 0;
    for (const CacheCost& one :
         ConvPlan::make(problem, {.engine = nets::engine_for(engine, problem), .cache_spectra = cache}).caches()) {
      const auto bytes = static_cast<double>(one.bytes);
      using Content = CacheCost::Content;
      if (one.content == Content::gradient && !training) continue;
      if (one.kept && (one.content == Content::weights || (one.content == Content::input && training))) {
        kept += bytes;
      } else if (one.content != Content::weights) {
        layer += bytes;
      }
    }
    transient = std::max(transient, 2 * layer);
  }
  return kept + transient;
}

double estimated_gib(const nets::NetSpec& spec, const NetContestOptions& o) {
  double bytes = 0;
  for (const bool cache : o.caches) {
    for (const Work work : o.works) {
      for (const Engine engine : o.engines) {
        bytes += static_cast<double>(o.backends.size() * o.memory.size() * o.hardened.size() * o.limits.size()) *
                 estimated_bytes(spec, engine, cache, work);
      }
    }
  }
  constexpr double rounding =
      1.1;  // for blocks that are rounded up to size classes, and for small terms that are left out
  return rounding * bytes / gib;
}

nets::NetSpec width_depth_net(const NetContestOptions& o, index_t width, index_t extent) {
  std::vector<std::string> overrides = o.overrides;
  for (const auto& [key, value] : {std::pair<const char*, index_t>{"generator.width", width},
                                   {"generator.depth", o.depth},
                                   {"generator.kernel", o.kernel},
                                   {"input.patch", extent}}) {
    overrides.push_back(fmt::format("{}={}", key, value));
  }
  return nets::load_net(CONVOLUME_ZOO "/width_depth.toml", overrides);
}

[[noreturn]] void refuse_memory(const nets::NetSpec& spec, const NetContestOptions& o, const char* remedy) {
  throw InvalidArgument(fmt::format(
      "{} of {} voxels needs about {:.1f} GiB for {} competitors, --memory-budget allows {}; {}", spec.name,
      to_string(spec.patch), estimated_gib(spec, o),
      o.engines.size() * o.backends.size() * o.caches.size() * o.memory.size() * o.hardened.size() * o.limits.size(),
      o.memory_gib, remedy));
}

/// Returns the net of this width, with the largest extent at which all competitors fit into memory together.
nets::NetSpec width_depth_net(const NetContestOptions& o, index_t width) {
  const index_t smallest = o.depth * (o.kernel - 1) + 1;  // gives one output voxel
  if (o.extent && *o.extent < smallest) {
    throw InvalidArgument(fmt::format("--extent {}: {} layers of kernel {} leave no output voxel; use at least {}",
                                      *o.extent, o.depth, o.kernel, smallest));
  }
  constexpr index_t largest = 48;
  index_t extent = o.extent.value_or(std::max(largest, smallest));
  nets::NetSpec spec = width_depth_net(o, width, extent);
  while (estimated_gib(spec, o) > o.memory_gib) {
    if (o.extent) refuse_memory(spec, o, "use a smaller --extent, fewer competitors, or a larger budget");
    if (extent == smallest) refuse_memory(spec, o, "use fewer competitors or a larger budget");
    spec = width_depth_net(o, width, --extent);
  }
  return spec;
}

}  // namespace

std::vector<nets::NetSpec> make_nets(const NetContestOptions& o) {
  std::vector<nets::NetSpec> specs;
  for (const std::string& file : o.nets) {
    specs.push_back(nets::load_net(file, o.overrides));
    if (estimated_gib(specs.back(), o) > o.memory_gib) {
      refuse_memory(specs.back(), o, "use a smaller patch, fewer competitors, or a larger budget");
    }
  }
  if (!o.nets.empty()) return specs;
  for (const index_t width : o.widths) {
    specs.push_back(width_depth_net(o, width));
    specs.back().name = fmt::format("{} x {} of {}", width, o.depth, to_string(Extent3::all(o.kernel)));
  }
  return specs;
}

}  // namespace convolume::bench
