#include "conv/tensor_io/bias_gradient.hpp"

#include <array>

#include "conv/caches/scratch.hpp"
#include "conv/tensor_io/tile_io.hpp"
#include "ops/activation.hpp"
#include "ops/norm_kernels.hpp"
#include "ops/reduce.hpp"

namespace convolume::conv {
namespace {

template <class T>
using Sums = std::array<double, static_cast<std::size_t>(fft::tile_lanes<T>)>;

/// Adds a row of voxels to the sums. The row has one channel block if it is blocked, or one channel of the block if it
/// is plain.
template <class T>
void add_row(const T* row, index_t voxels, bool blocked, index_t channel, Sums<T>& sums) {
  if (!blocked) {
    sums[static_cast<std::size_t>(channel)] += ops::sum(row, voxels);
    return;
  }
  ops::LaneSums<T> of_row;
  ops::norm_kernels<T>().sum(row, voxels * fft::tile_lanes<T>, of_row);
  for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += of_row.value[lane];
}

/// Returns the bytes of a row with all lanes.
template <class T>
std::size_t row_bytes(const Extent3& extent) {
  return static_cast<std::size_t>(extent.x * fft::tile_lanes<T>) * sizeof(T);
}

}  // namespace

template <class T>
void bias_gradient(const BackwardArguments& a, const ConvProblem& problem, index_t first) {
  const bool activated = problem.epilogue.activation.kind != Activation::Kind::none;
  const View<const T> dy = a.dy.as<T>();
  const Extent3& extent = dy.shape.extent;
  Scratch scratch(a.memory, row_bytes<T>(extent));
  T* row = scratch.take<T>(row_bytes<T>(extent));
  Sums<T> sums{};
  BlockView<const T> block;
  for (index_t n = 0; n < problem.batch; ++n) {
    block = block_of(dy, problem.y_layout, n, first);
    const T* outputs = activated ? block_of(a.y.as<T>(), problem.y_layout, n, first).data : nullptr;
    const auto y_stride = activated ? a.y.stride : dy.stride;
    for (index_t channel = 0; channel < (block.blocked ? 1 : block.channels); ++channel) {
      for (index_t z = 0; z < extent.z; ++z) {
        for (index_t y = 0; y < extent.y; ++y) {
          const T* from = block.data + channel * block.channel_stride + z * block.plane_stride + y * block.row_stride;
          if (activated) {
            const T* at = outputs + (block.blocked ? 0 : channel * y_stride[1]) + z * y_stride[2] + y * y_stride[3];
            const index_t count = extent.x * (block.blocked ? fft::tile_lanes<T> : 1);
            ops::activation_gradient(problem.epilogue.activation, at, from, row, count);
            from = row;
          }
          add_row(from, extent.x, block.blocked, channel, sums);
        }
      }
    }
  }
  const View<T> dbias = a.dbias.as<T>();
  for (index_t channel = 0; channel < block.channels; ++channel) {
    T& to = dbias(0, first + channel, 0, 0, 0);
    to = static_cast<T>(sums[static_cast<std::size_t>(channel)]) + (a.add_dw ? to : T{0});
  }
}

template <class T>
Ready append_bias_gradient(TaskGraph& graph, const Ready& dy_ready, const ConvProblem& problem,
                           const std::shared_ptr<const BackwardArguments>& a) {
  constexpr index_t lanes = fft::tile_lanes<T>;
  std::vector<TaskId> tasks;
  for (index_t first = 0; first < problem.out_channels; first += lanes) {
    std::vector<TaskId> after;
    for (index_t n = 0; n < problem.batch; ++n) {
      dy_ready.collect(n, first, std::min(first + lanes, problem.out_channels), after);
    }
    tasks.push_back(graph.add(
        {.name = "bias gradient",
         .cost = static_cast<double>(problem.y_shape().extent.volume()),
         .scratch_bytes = row_bytes<T>(problem.y_shape().extent)},
        [problem, a, first] { bias_gradient<T>(*a, problem, first); }, after));
  }
  return Ready::all_of(std::move(tasks));
}

template Ready append_bias_gradient<float>(TaskGraph&, const Ready&, const ConvProblem&,
                                           const std::shared_ptr<const BackwardArguments>&);
template Ready append_bias_gradient<double>(TaskGraph&, const Ready&, const ConvProblem&,
                                            const std::shared_ptr<const BackwardArguments>&);
template void bias_gradient<float>(const BackwardArguments&, const ConvProblem&, index_t);
template void bias_gradient<double>(const BackwardArguments&, const ConvProblem&, index_t);

}  // namespace convolume::conv
