// The iteration spaces of a problem.
#include <algorithm>
#include <numeric>
#include <optional>

#include "convolume/nest.hpp"
#include "plan/groups.hpp"
#include "plan/nest/index_of.hpp"
#include "plan/sides.hpp"

namespace convolume::plan {
namespace {

constexpr std::size_t first_voxel = index_of(Dim::z), first_tap = index_of(Dim::kz);

/// Sets what all directions share. `p` is not transposed; its x is the high-resolution side.
NestSpace common(const ConvProblem& p) {
  NestSpace space;
  space.extent[index_of(Dim::n)] = p.batch;
  space.kernel_extent = p.kernel;
  space.groups = p.groups;
  space.channel_block = convolume::channel_block(p.type);
  return space;
}

/// The space of voxels of the low-resolution side, which reads or updates windows of the high-resolution side.
NestSpace low_res_space(const ConvProblem& p) {
  NestSpace space = common(p);
  const Extent3 output = p.output();
  for (int axis = 0; axis < 3; ++axis) {
    space.extent[first_voxel + static_cast<std::size_t>(axis)] = output[axis];
    space.extent[first_tap + static_cast<std::size_t>(axis)] = p.kernel[axis];
  }
  space.result_step = p.stride;
  space.tap_step = p.dilation;
  space.offset = p.pad_before;
  space.source_extent = p.input;
  space.target_extent = output;
  return space;
}

/// Sets one axis of the space of a phase: high-resolution voxels i with (i + pad) % stride == phase. The voxel of the
/// low-resolution side is (i + pad - tap * dilation) / stride. Returns false if the axis is empty.
bool set_axis(NestSpace& space, const ConvProblem& p, int axis, index_t phase) {
  const index_t s = p.stride[axis], d = p.dilation[axis], k = p.kernel[axis], pad = p.pad_before[axis];
  const index_t first = ((phase - pad) % s + s) % s, step = s / std::gcd(s, d);
  const index_t voxels = first < p.input[axis] ? (p.input[axis] - 1 - first) / s + 1 : 0;
  std::optional<index_t> tap;
  for (index_t j = 0; j < std::min(k, step) && !tap; ++j) {
    if ((phase - j * d) % s == 0) tap = j;
  }
  if (!tap || voxels == 0) return false;
  space.extent[first_voxel + static_cast<std::size_t>(axis)] = voxels;
  space.extent[first_tap + static_cast<std::size_t>(axis)] = (k - 1 - *tap) / step + 1;
  space.tap_step[axis] = -(step * d / s);
  space.offset[axis] = -((first + pad - *tap * d) / s);
  space.target_step[axis] = s;
  space.target_first[axis] = first;
  space.kernel_step[axis] = step;
  space.kernel_first[axis] = *tap;
  return true;
}

std::vector<NestSpace> high_res_spaces(const ConvProblem& p) {
  std::vector<NestSpace> all;
  const Extent3& s = p.stride;
  for (index_t i = 0; i < s.z * s.y * s.x; ++i) {
    NestSpace space = common(p);
    space.source_extent = p.output();
    space.target_extent = p.input;
    const Extent3 phase{i / (s.y * s.x), i / s.x % s.y, i % s.x};
    if (set_axis(space, p, 0, phase.z) && set_axis(space, p, 1, phase.y) && set_axis(space, p, 2, phase.x)) {
      all.push_back(space);
    }
  }
  return all;
}

}  // namespace

double NestSpace::macs() const noexcept {
  double macs = 1;
  for (const index_t n : extent) macs *= static_cast<double>(n);
  return macs;
}

std::vector<NestSpace> spaces(const ConvProblem& problem, Direction direction) {
  problem.validate();
  if (is_depthwise(problem)) {
    throw Unsupported("loop nests do not describe depthwise convolutions, because their channels are not summed");
  }
  const Sides sides(problem);
  const ConvProblem& p = sides.convolution();
  const Direction mapped = sides.direction(direction);
  std::vector<NestSpace> all = mapped == Direction::backward_data ? high_res_spaces(p) : std::vector{low_res_space(p)};
  const std::array written{Operand::y, Operand::x, Operand::w};
  for (NestSpace& space : all) {
    space.extent[index_of(Dim::k)] = problem.out_channels / problem.groups;
    space.extent[index_of(Dim::c)] = problem.in_channels / problem.groups;
    space.written = written[static_cast<std::size_t>(direction)];
    space.windowed = mapped == Direction::backward_weights ? sides.high_res(Operand::x, Operand::y)
                     : space.written == Operand::y         ? Operand::x
                                                           : Operand::y;
    space.transposed = sides.y_is_high_res();
  }
  std::stable_sort(all.begin(), all.end(), [](const NestSpace& a, const NestSpace& b) { return a.macs() > b.macs(); });
  return all;
}

}  // namespace convolume::plan
