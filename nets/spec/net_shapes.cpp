#include "nets/spec/net_shapes.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace convolume::nets {
namespace {

[[noreturn]] void fail(const NetSpec& spec, const NodeSpec& node, const std::string& message) {
  const std::string place = node.line > 0 ? fmt::format("{}:{}", spec.origin, node.line) : spec.origin;
  throw ConfigError(fmt::format("{}: node '{}': {}", place, node.name, message));
}

/// Returns function(), and adds the node to what it throws.
template <class Function>
auto named(const NetSpec& spec, const NodeSpec& node, const Function& function) {
  try {
    return function();
  } catch (const Error& error) {
    fail(spec, node, error.what());
  }
}

class ShapeInference {
 public:
  ShapeInference(const NetSpec& spec, const Extent3& patch) : spec_(spec) {
    shapes_.input.channels = spec.in_channels;
    shapes_.input.extent = patch;
  }

  NetShapes run() {
    if (spec_.nodes.empty()) throw ConfigError(spec_.origin + ": the net has no nodes");
    for (const NodeSpec& node : spec_.nodes) {
      const InputShapes inputs = shapes_.inputs_of(node);
      NodeShape shape = named(spec_, node, [&] { return node.layer->shape(inputs); });
      for (const NodeShape* input : inputs) shape.global = shape.global || input->global;
      shapes_.nodes.push_back(std::move(shape));
    }
    check_used();
    check_output();
    return std::move(shapes_);
  }

 private:
  /// Rejects a node that no other node reads. It would be computed and trained for nothing, so a name must be wrong.
  void check_used() const {
    std::vector<bool> used(spec_.nodes.size(), false);
    used.back() = true;
    for (const NodeSpec& node : spec_.nodes) {
      for (const std::size_t input : node.inputs) {
        if (input > 0) used[input - 1] = true;
      }
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) fail(spec_, spec_.nodes[i], "no other node reads it; the last node is the output");
    }
  }

  void check_output() {
    if (shapes_.input.extent == spec_.patch && shapes_.one_voxel()) return;
    const NodeSpec& last = spec_.nodes.back();
    for (int axis = 0; axis < 3; ++axis) {
      const AxisView& a = shapes_.output().axes[static_cast<std::size_t>(axis)];
      if (a.jump != 1) {
        fail(spec_, last,
             fmt::format("the output has one voxel per {} of the input along {}; upsample it to the input's "
                         "resolution, or make it one voxel at input.patch, which is a classifier",
                         a.jump, "zyx"[axis]));
      }
      const index_t in = shapes_.input.extent[axis], out = shapes_.output().extent[axis];
      if (out > in) {
        fail(spec_, last,
             fmt::format("the output has {} voxels along {}, more than the {} of the input; pad less, or "
                         "crop",
                         out, "zyx"[axis], in));
      }
    }
  }

  const NetSpec& spec_;
  NetShapes shapes_;
};

}  // namespace

Engine engine_for(Engine requested, const ConvProblem& problem) {
  return takes_layer(requested, problem) ? requested : Engine::automatic;
}

std::optional<ConvProblem> conv_problem(const NetSpec& spec, const NodeSpec& node, index_t batch,
                                        const NodeShape& input) {
  return named(spec, node, [&] { return node.layer->convolution(batch, input); });
}

NetShapes infer_shapes(const NetSpec& spec, const Extent3& patch) { return ShapeInference(spec, patch).run(); }

void resolve_layers(NetSpec& spec) {
  const bool any = std::any_of(spec.nodes.begin(), spec.nodes.end(),
                               [](const NodeSpec& node) { return node.layer->takes_extent(); });
  if (!any) return;  // shapes that do not fit together are then found by whoever needs them
  NetShapes shapes;
  shapes.input.channels = spec.in_channels;
  shapes.input.extent = spec.patch;
  for (NodeSpec& node : spec.nodes) {
    const InputShapes inputs = shapes.inputs_of(node);
    if (node.layer->takes_extent()) node.layer = node.layer->resolved(inputs.front()->extent);
    shapes.nodes.push_back(named(spec, node, [&] { return node.layer->shape(inputs); }));
  }
}

void refuse_patch_of_classifier(const NetSpec& spec, const std::string& option) {
  if (infer_shapes(spec, spec.patch).keeps_resolution()) return;
  throw InvalidArgument(fmt::format(
      "{}: {} is a classifier, which reads patches of {} alone; leave the option out, or change input.patch", option,
      spec.origin, to_string(spec.patch)));
}

bool NetShapes::keeps_resolution() const {
  return std::all_of(output().axes.begin(), output().axes.end(), [](const AxisView& axis) { return axis.jump == 1; });
}

InputShapes NetShapes::inputs_of(const NodeSpec& node) const {
  InputShapes inputs;
  for (const std::size_t input : node.inputs) inputs.push_back(&of(input));
  return inputs;
}

Extent3 NetShapes::offset() const {
  Extent3 result;
  for (int axis = 0; axis < 3; ++axis) {
    // If padding is uneven (same padding with even kernels), the centres can lie outside the input.
    const auto centre = static_cast<index_t>(std::floor(output().axes[static_cast<std::size_t>(axis)].origin));
    result[axis] = std::clamp<index_t>(centre, 0, input.extent[axis] - output().extent[axis]);
  }
  return result;
}

Extent3 NetShapes::reach_before() const {
  Extent3 result;
  for (int axis = 0; axis < 3; ++axis) {
    const double low = output().axes[static_cast<std::size_t>(axis)].low;
    result[axis] = std::max<index_t>(0, offset()[axis] - static_cast<index_t>(std::floor(low)));
  }
  return result;
}

Extent3 NetShapes::reach_behind() const {
  Extent3 result;
  for (int axis = 0; axis < 3; ++axis) {
    const double high = output().axes[static_cast<std::size_t>(axis)].high;
    result[axis] = std::max<index_t>(0, static_cast<index_t>(std::ceil(high)) - offset()[axis]);
  }
  return result;
}

Extent3 NetShapes::alignment() const {
  Extent3 result;
  for (const NodeShape& node : nodes) {
    for (int axis = 0; axis < 3; ++axis) {
      // -
      const double jump = node.axes[static_cast<std::size_t>(axis)].jump;
      double whole = jump;
      while (whole < 0.5 || std::abs(whole - std::round(whole)) > 1e-6) whole += jump;
      result[axis] = std::lcm(result[axis], static_cast<index_t>(std::round(whole)));
    }
  }
  return result;
}

void require_memory_of_nodes(const NetSpec& spec, std::size_t most) {
  const NetShapes shapes = infer_shapes(spec, spec.patch);
  const auto elements = [&](const NodeShape& shape) {
    return static_cast<double>(spec.training.batch) * static_cast<double>(shape.channels) *
           static_cast<double>(shape.extent.z) * static_cast<double>(shape.extent.y) *
           static_cast<double>(shape.extent.x);
  };
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const NodeSpec& node = spec.nodes[i];
    const NodeShape& input = shapes.of(node.inputs.front());
    double bytes = sizeof(float) * (elements(input) + elements(shapes.nodes[i]));
    for (const ParameterSpec& parameter : node.layer->parameters(input, {})) {
      const Shape5& s = parameter.shape;
      // Values, their gradients, and what an optimiser keeps of them.
      bytes += 4.0 * sizeof(float) * static_cast<double>(s.n) * static_cast<double>(s.c) *
               static_cast<double>(s.extent.z) * static_cast<double>(s.extent.y) * static_cast<double>(s.extent.x);
    }
    if (bytes <= static_cast<double>(most)) continue;
    const std::string line = node.line > 0 ? fmt::format(":{}", node.line) : "";
    throw ConfigError(
        fmt::format("{}{}: node '{}': its tensors alone take {:.4g} GiB, and the system has {:.4g} GiB; use fewer "
                    "channels, a smaller "
                    "patch or a smaller batch",
                    spec.origin, line, node.name, bytes / (1 << 30), static_cast<double>(most) / (1 << 30)));
  }
}

}  // namespace convolume::nets
