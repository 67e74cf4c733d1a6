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

/// Returns the view of a window of `span` voxels that moves by `stride` over an input padded by `pad`.
AxisView windowed(AxisView a, index_t span, index_t stride, index_t pad) {
  const double s = static_cast<double>(span), p = static_cast<double>(pad);
  a.origin += ((s - 1) / 2 - p) * a.jump;
  a.low -= p * a.jump;
  a.high += (s - 1 - p) * a.jump;
  a.jump *= static_cast<double>(stride);
  return a;
}

AxisView transposed(AxisView a, index_t span, index_t stride, index_t pad) {
  const double s = static_cast<double>(span), p = static_cast<double>(pad);
  a.jump /= static_cast<double>(stride);
  a.origin -= ((s - 1) / 2 - p) * a.jump;
  a.low -= (s - 1 - p) * a.jump;
  a.high += p * a.jump;
  return a;
}

index_t floor_div(index_t a, index_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

class ShapeInference {
 public:
  ShapeInference(const NetSpec& spec, const Extent3& patch) : spec_(spec) {
    shapes_.input.channels = spec.in_channels;
    shapes_.input.extent = patch;
  }

  NetShapes run() {
    if (spec_.nodes.empty()) throw ConfigError(spec_.origin + ": the net has no nodes");
    for (const NodeSpec& node : spec_.nodes) {
      node_ = &node;
      NodeShape shape = shapes_.of(node.inputs[0]);
      shape.crop.clear();
      out_ = &shape;
      std::visit(*this, node.kind);
      for (const std::size_t input : node.inputs) shape.global = shape.global || shapes_.of(input).global;
      shapes_.nodes.push_back(std::move(shape));
    }
    check_used();
    check_output();
    return std::move(shapes_);
  }

  void operator()(const ConvNode& conv) {
    const ConvProblem p = conv_problem(spec_, *node_, conv, 1, input());
    out_->channels = conv.out_channels;
    out_->extent = p.output();
    for (int axis = 0; axis < 3; ++axis) {
      AxisView& a = out_->axes[static_cast<std::size_t>(axis)];
      const index_t span = p.span()[axis];
      a = conv.transposed ? transposed(a, span, p.stride[axis], p.pad_before[axis])
                          : windowed(a, span, p.stride[axis], p.pad_before[axis]);
      if (conv.transposed) {
        pad_transposed(axis, span, p.stride[axis], p.pad_before[axis]);
      } else {
        pad_window(axis, span, p.stride[axis], p.pad_before[axis]);
      }
    }
  }
  void operator()(const MaxPoolNode& n) {
    try {
      out_->extent = ops::pooled_extent(input().extent, n.pool);
    } catch (const Error& error) {
      fail(spec_, *node_, error.what());
    }
    for (int axis = 0; axis < 3; ++axis) {
      AxisView& a = out_->axes[static_cast<std::size_t>(axis)];
      const index_t span = (n.pool.window[axis] - 1) * n.pool.dilation[axis] + 1;
      a = windowed(a, span, n.pool.stride[axis], 0);
      pad_window(axis, span, n.pool.stride[axis], 0);
    }
  }
  void operator()(const UpsampleNode& n) {
    out_->extent = input().extent * n.factor;
    for (int axis = 0; axis < 3; ++axis) {
      AxisView& a = out_->axes[static_cast<std::size_t>(axis)];
      const double f = static_cast<double>(n.factor[axis]);
      a.jump /= f;
      a.origin -= (f - 1) / 2 * a.jump;
      a.low -= (f - 1) * a.jump;
      out_->padded_before[axis] *= n.factor[axis];
      out_->padded_behind[axis] *= n.factor[axis];
    }
  }
  void operator()(const CropNode& n) {
    out_->extent = input().extent - n.before - n.after;
    for (int axis = 0; axis < 3; ++axis) {
      if (out_->extent[axis] < 1) {
        fail(spec_, *node_,
             fmt::format("cropping {} by {} and {} leaves nothing; crop less or enlarge the patch",
                         to_string(input().extent), to_string(n.before), to_string(n.after)));
      }
      AxisView& a = out_->axes[static_cast<std::size_t>(axis)];
      const double shift = static_cast<double>(n.before[axis]) * a.jump;
      a.origin += shift;
      a.low += shift;
      a.high += shift;
      set_padded(axis, out_->padded_before[axis] - n.before[axis], out_->padded_behind[axis] - n.after[axis]);
    }
  }
  void operator()(const ConcatNode&) {
    align();
    out_->channels = 0;
    for (const std::size_t i : node_->inputs) out_->channels += shapes_.of(i).channels;
  }
  void operator()(const AddNode&) {
    align();
    for (const std::size_t i : node_->inputs) {
      if (shapes_.of(i).channels != out_->channels) {
        fail(spec_, *node_,
             fmt::format("adds {} and {} channels; they must be equal", out_->channels, shapes_.of(i).channels));
      }
    }
  }
  void operator()(const GroupNormNode& n) {
    const index_t groups = n.groups == 0 ? out_->channels : n.groups;
    if (out_->channels % groups != 0) {
      fail(spec_, *node_, fmt::format("{} groups do not divide {} channels", groups, out_->channels));
    }
    out_->global = true;
  }
  void operator()(const ActivationNode&) {}
  void operator()(const DropoutNode&) {}

 private:
  const NodeShape& input() const { return shapes_.of(node_->inputs[0]); }

  void set_padded(int axis, index_t before, index_t behind) {
    out_->padded_before[axis] = std::clamp<index_t>(before, 0, out_->extent[axis]);
    out_->padded_behind[axis] = std::clamp<index_t>(behind, 0, out_->extent[axis]);
  }
  /// Marks outputs whose window touches padding, or touches an input voxel that depends on padding.
  void pad_window(int axis, index_t span, index_t stride, index_t pad) {
    const NodeShape& in = input();
    const index_t touched = in.padded_before[axis] + pad;
    const index_t last_clean = floor_div(in.extent[axis] - in.padded_behind[axis] + pad - span, stride);
    set_padded(axis, (touched + stride - 1) / stride, out_->extent[axis] - 1 - last_clean);
  }
  /// Marks outputs that receive a term from an input voxel that depends on padding, or would receive one from outside
  /// the input.
  void pad_transposed(int axis, index_t span, index_t stride, index_t pad) {
    const NodeShape& in = input();
    set_padded(axis, (in.padded_before[axis] - 1) * stride + span - pad,
               out_->extent[axis] - ((in.extent[axis] - in.padded_behind[axis]) * stride - pad));
  }

  /// Crops the inputs to their common part: from the largest of the first positions to the smallest of the last ones.
  void align() {
    out_->crop.assign(node_->inputs.size(), Extent3{0, 0, 0});
    for (int axis = 0; axis < 3; ++axis) {
      const auto view = [&](std::size_t i) { return shapes_.of(i).axes[static_cast<std::size_t>(axis)]; };
      const double jump = view(node_->inputs[0]).jump;
      double first = -1e300;
      for (const std::size_t i : node_->inputs) {
        if (view(i).jump != jump) {
          fail(spec_, *node_,
               fmt::format("joins feature maps of different resolution along {}; pool or upsample one of "
                           "them",
                           "zyx"[axis]));
        }
        first = std::max(first, view(i).origin);
      }
      AxisView& a = out_->axes[static_cast<std::size_t>(axis)];
      index_t common = -1;
      a.low = 1e300;
      a.high = -1e300;
      for (std::size_t k = 0; k < node_->inputs.size(); ++k) {
        const AxisView v = view(node_->inputs[k]);
        const double skip = (first - v.origin) / jump;
        // Maps that lie half a voxel apart (an odd kernel behind an even one) are aligned at the voxel before.
        const auto offset = static_cast<index_t>(std::floor(skip));
        out_->crop[k][axis] = offset;
        const index_t left = shapes_.of(node_->inputs[k]).extent[axis] - offset;
        common = common < 0 ? left : std::min(common, left);
        a.low = std::min(a.low, v.low + static_cast<double>(offset) * jump);
        a.high = std::max(a.high, v.high + static_cast<double>(offset) * jump);
      }
      if (common < 1) fail(spec_, *node_, "joins feature maps that have no voxel in common; enlarge the patch");
      a.origin = first;
      out_->extent[axis] = common;
      index_t before = 0, behind = 0;
      for (std::size_t k = 0; k < node_->inputs.size(); ++k) {
        const NodeShape& in = shapes_.of(node_->inputs[k]);
        const index_t cut = out_->crop[k][axis];
        before = std::max(before, in.padded_before[axis] - cut);
        behind = std::max(behind, in.padded_behind[axis] - (in.extent[axis] - cut - common));
      }
      set_padded(axis, before, behind);
    }
  }

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
    const NodeSpec& last = spec_.nodes.back();
    for (int axis = 0; axis < 3; ++axis) {
      const AxisView& a = shapes_.output().axes[static_cast<std::size_t>(axis)];
      if (a.jump != 1) {
        fail(spec_, last,
             fmt::format("the output has one voxel per {} of the input along {}; upsample it to the input's "
                         "resolution",
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
  const NodeSpec* node_ = nullptr;
  NodeShape* out_ = nullptr;
};

}  // namespace

Engine engine_for(Engine requested, const ConvProblem& problem) noexcept {
  return requested == Engine::onednn && problem.transposed ? Engine::automatic : requested;
}

ConvProblem conv_problem(const NetSpec& spec, const NodeSpec& node, const ConvNode& conv, index_t batch,
                         const NodeShape& input) {
  ConvProblem p;
  p.batch = batch;
  p.in_channels = input.channels;
  p.out_channels = conv.out_channels;
  p.groups = conv.groups;
  p.input = input.extent;
  p.kernel = conv.kernel;
  p.stride = conv.stride;
  p.dilation = conv.dilation;
  p.pad_before = p.pad_after = conv.padding;
  p.transposed = conv.transposed;
  p.output_padding = conv.output_padding;
  p.epilogue = {conv.bias, conv.activation};
  if (conv.same) {
    const Extent3 margin = p.span() - Extent3::all(1);
    p.pad_before = {margin.z / 2, margin.y / 2, margin.x / 2};
    p.pad_after = margin - p.pad_before;
  }
  try {
    p.validate();
  } catch (const Error& error) {
    fail(spec, node, error.what());
  }
  return p;
}

NetShapes infer_shapes(const NetSpec& spec, const Extent3& patch) { return ShapeInference(spec, patch).run(); }

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
    if (const auto* const conv = std::get_if<ConvNode>(&node.kind)) {
      // Values, their gradients, and what an optimiser keeps of them.
      bytes += 4.0 * sizeof(float) * static_cast<double>(input.channels) * static_cast<double>(conv->out_channels) /
               static_cast<double>(conv->groups) * static_cast<double>(conv->kernel.z) *
               static_cast<double>(conv->kernel.y) * static_cast<double>(conv->kernel.x);
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
