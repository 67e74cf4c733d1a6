#include "convolume/conv_problem.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/checked.hpp"

namespace convolume {
namespace {

constexpr const char* axis_name[] = {"z", "y", "x"};

// Plans go through the taps of a kernel, and padding is what lets a kernel be longer than the input.
constexpr index_t most_padding = index_t{1} << 20;
constexpr index_t most_bytes = index_t{1} << 47;  // the addresses of a process

void require(bool condition, const std::string& field, index_t value, const char* remedy) {
  if (!condition) throw InvalidArgument(fmt::format("convolution: {} is {}; {}", field, value, remedy));
}

index_t output_along(const ConvProblem& p, int axis) {
  const index_t span = (p.kernel[axis] - 1) * p.dilation[axis] + 1;
  const index_t padding = checked_add(p.pad_before[axis], p.pad_after[axis], "padding");
  if (p.transposed) {
    const index_t sum = checked_add(checked_mul(p.input[axis] - 1, p.stride[axis], "output"), span, "output");
    const index_t out = checked_add(sum, p.output_padding[axis] - padding, "output");
    if (out < 1) {
      throw InvalidArgument(fmt::format("convolution: output along {} would be {} voxels; lower the padding ({})",
                                        axis_name[axis], out, padding));
    }
    return out;
  }
  const index_t padded = checked_add(p.input[axis], padding, "padded input");
  if (padded < span) {
    throw InvalidArgument(
        fmt::format("convolution: along {} the kernel spans {} voxels, but the padded input has {}; enlarge the input "
                    "or the padding",
                    axis_name[axis], span, padded));
  }
  return (padded - span) / p.stride[axis] + 1;
}

}  // namespace

Extent3 ConvProblem::output() const { return {output_along(*this, 0), output_along(*this, 1), output_along(*this, 2)}; }

void ConvProblem::validate() const {
  require(batch >= 1, "batch", batch, "at least 1 is needed");
  require(in_channels >= 1, "in_channels", in_channels, "at least 1 is needed");
  require(out_channels >= 1, "out_channels", out_channels, "at least 1 is needed");
  require(groups >= 1, "groups", groups, "at least 1 is needed");
  require(in_channels % groups == 0, "groups", groups, "it must divide in_channels");
  require(out_channels % groups == 0, "groups", groups, "it must divide out_channels");
  for (int axis = 0; axis < 3; ++axis) {
    const auto field = [&](const char* name) { return fmt::format("{}.{}", name, axis_name[axis]); };
    require(input[axis] >= 1, field("input"), input[axis], "at least 1 voxel is needed");
    require(kernel[axis] >= 1, field("kernel"), kernel[axis], "at least 1 voxel is needed");
    require(stride[axis] >= 1, field("stride"), stride[axis], "at least 1 is needed");
    require(dilation[axis] >= 1, field("dilation"), dilation[axis], "at least 1 is needed");
    require(pad_before[axis] > -input[axis], field("pad_before"), pad_before[axis],
            "it cannot leave out all voxels of the input");
    require(std::max(pad_before[axis], pad_after[axis]) <= most_padding, field("padding"),
            std::max(pad_before[axis], pad_after[axis]), "at most 1048576 voxels are possible");
    require(pad_after[axis] > -input[axis], field("pad_after"), pad_after[axis],
            "it cannot leave out all voxels of the input");
    require(
        output_padding[axis] >= 0 && output_padding[axis] < stride[axis] && (transposed || output_padding[axis] == 0),
        field("output_padding"), output_padding[axis], "use 0 to stride - 1, and 0 unless transposed");
    const std::string span = "convolution: the span of the kernel along " + std::string(axis_name[axis]);
    checked_add(checked_mul(kernel[axis] - 1, dilation[axis], span), 1, span);
  }
  if (epilogue.activation.kind == Activation::Kind::leaky_relu && !(epilogue.activation.slope > 0)) {
    throw InvalidArgument(
        fmt::format("convolution: leaky_relu slope is {}; the slope of a fused activation must be positive",
                    epilogue.activation.slope));
  }
  for (const auto& [name, shape] : {std::pair("x", x_shape()), std::pair("y", y_shape()), std::pair("w", w_shape())}) {
    try {
      // Every engine counts bytes, and plans take a time and memory that follow the tensors.
      if (checked_mul(shape.elements(), static_cast<index_t>(size_of(type)), "tensor") <= most_bytes) continue;
    } catch (const OverflowError&) {
    }
    throw OverflowError(
        fmt::format("convolution: {} of {} has more than 2^47 bytes; make it smaller", name, to_string(shape)));
  }
}

double ConvProblem::flops() const {
  const Extent3 voxels = transposed ? input : output();
  return 2.0 * static_cast<double>(batch) * static_cast<double>(in_channels) * static_cast<double>(out_channels) /
         static_cast<double>(groups) * static_cast<double>(kernel.volume()) * static_cast<double>(voxels.volume());
}

namespace plan {

const char* name_of(Direction direction) noexcept {
  constexpr std::array names{"fwd", "bwd_d", "bwd_w"};
  return names[static_cast<std::size_t>(direction)];
}

}  // namespace plan
}  // namespace convolume
