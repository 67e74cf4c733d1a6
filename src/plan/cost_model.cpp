#include "plan/cost_model.hpp"

#include <algorithm>
#include <cmath>

#include "plan/cost_constants.hpp"
#include "plan/sides.hpp"

namespace convolume::plan {

double share_inside(const ConvProblem& p, int axes) {
  double share = 1;
  const Extent3 output = p.output();
  for (int axis = 0; axis < axes; ++axis) {
    index_t inside = 0;
    for (index_t j = 0; j < p.kernel[axis]; ++j) {
      const index_t shift = p.pad_before[axis] - j * p.dilation[axis], s = p.stride[axis];
      const index_t begin = shift > 0 ? (shift + s - 1) / s : 0, last = p.input[axis] - 1 + shift;
      if (last >= 0) inside += std::max<index_t>(0, std::min(output[axis], last / s + 1) - begin);
    }
    share *= static_cast<double>(inside) / static_cast<double>(p.kernel[axis] * output[axis]);
  }
  return share;
}

bool wide_vectors(const MachineModel& machine) {
  return machine.gflops_per_core / (2 * machine.ghz * machine.issue.multiply_adds) > 12;
}

double seconds(const Work& work, const MachineModel& machine) {
  return std::max(work.flops / (machine.gflops_per_core * 1e9 * work.efficiency),
                  work.bytes / (machine.l3_gb_per_s * 1e9)) +
         work.calls * call_seconds;
}

double transform_seconds(double flops, const MachineModel& machine) {
  return seconds({.flops = flops, .efficiency = machine.volume_transform_share}, machine);
}

double fft_volume_seconds(const ConvProblem& p, const Extent3& transform, index_t transforms, const Wanted& wanted,
                          const MachineModel& machine) {
  const auto points = static_cast<double>(transform.volume());
  const auto planes = static_cast<double>(transforms);
  const auto batch = static_cast<double>(p.batch);
  const double one = 2.5 * points * std::max(1.0, std::log2(points));
  const double pairs =
      static_cast<double>(p.in_channels) * static_cast<double>(p.out_channels) / static_cast<double>(p.groups);
  // x and dy are transformed forward, y and dx backward. w is transformed forward and dw backward once per pair of
  // channels. A kernel transform takes as many complex multiply-adds per frequency as the kernel has voxels along its
  // outermost axis.
  const auto in = static_cast<double>(p.in_channels), out = static_cast<double>(p.out_channels);
  const double x = one_if(wanted.forward || wanted.weights) + one_if(wanted.data);
  const double y = one_if(wanted.data || wanted.weights) + one_if(wanted.forward);
  const double maps = batch * (x * in + y * out) * planes;
  const double kernels = pairs * (one_if(wanted.forward || wanted.data) + one_if(wanted.weights));
  const Work transforming{
      .flops = maps * one, .efficiency = machine.volume_transform_share * volume_engine_share, .calls = maps};
  const auto taps = static_cast<double>(p.kernel.z > 1 ? p.kernel.z : p.kernel.y);
  const Work pruning{.flops = kernels * 8 * taps * points / 2, .efficiency = pruned_transform_share, .calls = kernels};
  const double complex_bytes = 2.0 * static_cast<double>(size_of(p.type));
  const double products = wanted.count() * batch * pairs * planes * points / 2;
  const Work multiplying{
      .flops = 8 * products, .efficiency = volume_product_share, .bytes = 2 * complex_bytes * products};
  return seconds(transforming, machine) + seconds(pruning, machine) + seconds(multiplying, machine);
}

double direct_depthwise_seconds(const ConvProblem& p, const Wanted& wanted, const MachineModel& machine) {
  const index_t block = channel_block(p.type);
  const auto blocks = static_cast<double>((p.in_channels + block - 1) / block);
  const double lanes = blocks * static_cast<double>(block) / static_cast<double>(p.in_channels);
  const double flops = p.flops() * lanes * share_inside(p, 2) * static_cast<double>(size_of(p.type)) / 4;
  const bool wide = wide_vectors(machine);
  const double filled = std::min(1.0, static_cast<double>(p.output().x) / depthwise_row(wide));
  const double share = machine.depthwise_share * depthwise_layer_factor * filled *
                       depthwise_taps_factor(static_cast<double>(p.kernel.x), wide) *
                       (p.stride.x > 1 ? depthwise_strided_factor(wide) : 1);
  const double one = flops / (machine.gflops_per_core * 1e9 * share);
  const double directions =
      one_if(wanted.forward) + one_if(wanted.data) + one_if(wanted.weights) / depthwise_gradient_factor;
  const double transposes = one_if(wanted.forward || wanted.data) + one_if(wanted.weights);
  const auto taps = static_cast<double>(p.in_channels * p.kernel.volume());
  return directions * one + wanted.count() * call_seconds + transposes * taps * depthwise_tap_seconds;
}

double packed_weight_bytes(const ConvProblem& p) {
  const index_t block = channel_block(p.type);
  const auto padded = [&](index_t channels) { return static_cast<double>((channels + block - 1) / block * block); };
  return padded(p.in_channels) * padded(p.out_channels) * static_cast<double>(p.kernel.volume()) *
         static_cast<double>(size_of(p.type));
}

double reference_seconds(const ConvProblem& p, const Wanted& wanted, const MachineModel& machine) {
  // For a transposed convolution, every tap is tried at every output voxel.
  const double tried = p.transposed ? static_cast<double>(p.stride.volume()) : 1.0;
  return seconds({.flops = wanted.count() * tried * p.flops(), .efficiency = reference_share}, machine);
}

double direct_floor_seconds(const ConvProblem& p, const MachineModel& machine) {
  const auto element = static_cast<double>(size_of(p.type));
  const double bytes =
      element * static_cast<double>(p.x_shape().elements() + p.y_shape().elements() + p.w_shape().elements());
  const double from = bytes < static_cast<double>(machine.l3_bytes) ? machine.l3_gb_per_s : machine.dram_gb_per_s;
  const double flops = p.flops() * share_inside(Sides(p).convolution(), 3);
  return std::max(flops * element / 4 / machine.gflops_per_core, bytes / from) * 1e-9;
}

}  // namespace convolume::plan
