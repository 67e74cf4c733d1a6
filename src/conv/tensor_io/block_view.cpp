#include "conv/tensor_io/block_view.hpp"

#include <algorithm>
#include <cstdint>

#include "convolume/machine.hpp"

namespace convolume::conv {

template <class T>
BlockView<T> block_of(const View<T>& tensor, Layout layout, index_t n, index_t first) {
  const index_t block = fft::tile_lanes<std::remove_const_t<T>>;
  const bool blocked = layout == Layout::blocked;
  return {.data = tensor.data + n * tensor.stride[0] + (blocked ? first / block : first) * tensor.stride[1],
          .extent = tensor.shape.extent,
          .channels = std::min(block, tensor.shape.c - first),
          .channel_stride = blocked ? 1 : tensor.stride[1],
          .plane_stride = tensor.stride[2],
          .row_stride = tensor.stride[3],
          .voxel_stride = tensor.stride[4],
          .blocked = blocked};
}
template BlockView<float> block_of(const View<float>&, Layout, index_t, index_t);
template BlockView<const float> block_of(const View<const float>&, Layout, index_t, index_t);
template BlockView<double> block_of(const View<double>&, Layout, index_t, index_t);
template BlockView<const double> block_of(const View<const double>&, Layout, index_t, index_t);

index_t non_temporal_from() {
  const MachineModel& machine = machine_model();
  // A large L2 holds results of nearly its size until they are read.
  return static_cast<index_t>(std::max(machine.usable_l3_bytes / 8, machine.l2_bytes * 4 / 5));
}

template <class T>
bool writes_non_temporal(const View<T>& target, index_t from) {
  constexpr auto size = static_cast<index_t>(sizeof(T));
  const index_t bytes = size * stored_elements(target.shape, target.layout, data_type_of<T>());
  bool aligned = reinterpret_cast<std::uintptr_t>(target.data.get()) % 64 == 0;
  for (std::size_t i = 0; i < 4; ++i) aligned = aligned && target.stride[i] * size % 64 == 0;
  const index_t voxel = target.stride[4] * size;
  return aligned && (target.layout == Layout::blocked ? voxel % 64 == 0 : voxel == size) && bytes > from;
}
template bool writes_non_temporal(const View<float>&, index_t);
template bool writes_non_temporal(const View<double>&, index_t);

}  // namespace convolume::conv
