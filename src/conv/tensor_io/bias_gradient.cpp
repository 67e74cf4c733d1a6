#include "conv/tensor_io/bias_gradient.hpp"

#include <iterator>

#include "conv/caches/scratch.hpp"
#include "conv/tensor_io/tile_io.hpp"

namespace convolume::conv {
namespace {

/// Returns the bytes of a row with all lanes.
template <class T>
std::size_t row_bytes(const Extent3& extent) {
  return static_cast<std::size_t>(extent.x * fft::tile_lanes<T>) * sizeof(T);
}

}  // namespace

/// Adds a row of voxels to the sums. The row has one channel block if it is blocked, or one channel of the block if it
/// is plain.
template <class T>
void BiasGradient<T>::add_row(const T* row, index_t voxels, bool blocked, index_t channel,
                              ops::LaneSums<T>& sums) const {
  if (!blocked) {
    sums.value[channel] += sums_.sum(row, voxels);
    return;
  }
  ops::LaneSums<T> of_row;
  lane_sums_.sum(row, voxels * fft::tile_lanes<T>, of_row);
  for (std::size_t lane = 0; lane < std::size(sums.value); ++lane) sums.value[lane] += of_row.value[lane];
}

/// Computes dbias of one channel block: the sum over samples and voxels, in their order and in double, of dy times the
/// activation's gradient at y.
template <class T>
void BiasGradient<T>::run(const BackwardArguments& a, index_t first) const {
  const bool activated = problem_.epilogue.activation.kind != Activation::Kind::none;
  const View<const T> dy = a.dy.as<T>();
  const Extent3& extent = dy.shape.extent;
  Scratch scratch(a.memory, row_bytes<T>(extent));
  T* row = scratch.take<T>(row_bytes<T>(extent));
  ops::LaneSums<T> sums{};
  BlockView<const T> block;
  for (index_t n = 0; n < problem_.batch; ++n) {
    block = block_of(dy, problem_.y_layout, n, first);
    const T* outputs = activated ? block_of(a.y.as<T>(), problem_.y_layout, n, first).data : nullptr;
    const auto y_stride = activated ? a.y.stride : dy.stride;
    for (index_t channel = 0; channel < (block.blocked ? 1 : block.channels); ++channel) {
      for (index_t z = 0; z < extent.z; ++z) {
        for (index_t y = 0; y < extent.y; ++y) {
          const T* from = block.data + channel * block.channel_stride + z * block.plane_stride + y * block.row_stride;
          if (activated) {
            const T* at = outputs + (block.blocked ? 0 : channel * y_stride[1]) + z * y_stride[2] + y * y_stride[3];
            const index_t count = extent.x * (block.blocked ? fft::tile_lanes<T> : 1);
            activations_.gradient(problem_.epilogue.activation, at, from, row, count, false);
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
    to = static_cast<T>(sums.value[channel]) + (a.add_dw ? to : T{0});
  }
}

template <class T>
Ready BiasGradient<T>::append(TaskGraph& graph, const Ready& dy_ready,
                              const std::shared_ptr<const BackwardArguments>& a) const {
  constexpr index_t lanes = fft::tile_lanes<T>;
  std::vector<TaskId> tasks;
  for (index_t first = 0; first < problem_.out_channels; first += lanes) {
    std::vector<TaskId> after;
    for (index_t n = 0; n < problem_.batch; ++n) {
      dy_ready.collect(n, first, std::min(first + lanes, problem_.out_channels), after);
    }
    tasks.push_back(graph.add(
        {.name = "bias gradient",
         .cost = static_cast<double>(problem_.y_shape().extent.volume()),
         .scratch_bytes = row_bytes<T>(problem_.y_shape().extent)},
        [this, a, first] { run(*a, first); }, after));
  }
  return Ready::all_of(std::move(tasks));
}

template class BiasGradient<float>;
template class BiasGradient<double>;

}  // namespace convolume::conv
