#include "plan/tiled_support.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "plan/groups.hpp"

namespace convolume::plan {
namespace {

constexpr index_t largest_tile = 64, most_components = 4096;

}  // namespace

std::string tiles_unsupported_reason(const ConvProblem& problem) {
  const Extent3 dilation = effective_dilation(problem);
  index_t components = 1;
  if (problem.kernel == Extent3::all(1)) return "a kernel of one voxel needs no transform";
  for (int axis = 0; axis < 3; ++axis) {
    if (problem.stride[axis] > problem.kernel[axis]) {
      return fmt::format("stride {} leaps over voxels of kernel {}", to_string(problem.stride),
                         to_string(problem.kernel));
    }
    if (std::gcd(problem.stride[axis], dilation[axis]) != 1) {
      return fmt::format("stride {} and dilation {} share a factor", to_string(problem.stride),
                         to_string(problem.dilation));
    }
    if (problem.kernel[axis] > largest_tile * problem.stride[axis]) {
      return fmt::format("tiles have up to {} voxels, the kernel {}", largest_tile, problem.kernel[axis]);
    }
    components *= std::min(problem.stride[axis] * dilation[axis], most_components + 1);
  }
  if (components > most_components) {
    return fmt::format("stride {} and dilation {} make more than {} polyphase components", to_string(problem.stride),
                       to_string(problem.dilation), most_components);
  }
  if (problem.kernel == problem.stride) return "with a stride as long as the kernel no voxel is read twice";
  return {};
}

double tiled_bytes(const ConvProblem& problem, const Tilings& tilings) {
  const auto block = channel_block(problem.type);
  const auto padded = [&](index_t channels) { return static_cast<double>((channels + block - 1) / block * block); };
  const double pairs =
      is_depthwise(problem) ? padded(problem.in_channels) : padded(problem.in_channels) * padded(problem.out_channels);
  const Polyphase polyphase(problem);
  double points = 0;
  for (const Direction direction : directions) {
    const Wanted& wanted = tilings.wanted;
    if (direction == Direction::forward         ? !wanted.forward
        : direction == Direction::backward_data ? !wanted.data
                                                : !wanted.weights)
      continue;
    const Extent3& tile = tilings.of(direction).tile;
    points += 2.0 * static_cast<double>(tile.z * tile.y * (tile.x / 2 + 1)) * static_cast<double>(polyphase.phases());
  }
  return pairs * points * static_cast<double>(size_of(problem.type));
}

}  // namespace convolume::plan
