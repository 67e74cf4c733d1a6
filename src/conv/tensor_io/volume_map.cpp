#include "conv/tensor_io/volume_map.hpp"

#include <algorithm>

namespace convolume::conv {

template <class T>
void VolumeMaps<T>::load(const Side& side, const VolumeGeometry& volume, const T* map,
                         const std::array<index_t, 5>& stride, index_t planes, const VolumePrologue<T>& end, T* row,
                         T* target) const {
  const index_t width = volume.extent.x;
  double total = 0;
  for (index_t plane = 0; plane < planes; ++plane) {
    T* to = target + plane * volume.plane_stride;
    std::fill_n(to, volume.extent.y * width, T{0});
    const index_t behind = plane - side.offset.z;
    if (behind < 0 || behind % side.step.z != 0 || behind / side.step.z >= side.extent.z) continue;
    const index_t z = behind / side.step.z;
    for (index_t y = 0; y < side.extent.y; ++y) {
      const T* from = map + z * stride[2] + y * stride[3];
      T* out = to + (side.offset.y + y * side.step.y) * width + side.offset.x;
      T* dense = side.step.x == 1 ? out : row;
      if (end.activation != nullptr && end.activation->kind != Activation::Kind::none) {
        activations_.gradient(*end.activation, end.y + z * end.y_stride[2] + y * end.y_stride[3], from, dense,
                              side.extent.x, false);
      } else {
        std::copy_n(from, side.extent.x, dense);
      }
      if (end.sum != nullptr) total += sums_.sum(dense, side.extent.x);
      if (dense == row) {
        for (index_t x = 0; x < side.extent.x; ++x) out[x * side.step.x] = row[x];
      }
    }
  }
  if (end.sum != nullptr) *end.sum = total;
}

template <class T>
void VolumeMaps<T>::store(const Side& side, const VolumeGeometry& volume, const T* source, const VolumeEpilogue<T>& end,
                          T* row, T* map, const std::array<index_t, 5>& stride) const {
  const index_t width = volume.extent.x;
  for (index_t z = 0; z < side.extent.z; ++z) {
    const T* plane = source + (side.offset.z + z * side.step.z) * volume.plane_stride;
    for (index_t y = 0; y < side.extent.y; ++y) {
      const T* from = plane + (side.offset.y + y * side.step.y) * width + side.offset.x;
      if (side.step.x != 1) {
        for (index_t x = 0; x < side.extent.x; ++x) row[x] = from[x * side.step.x];
        from = row;
      }
      T* to = map + z * stride[2] + y * stride[3];
      spectra_.scale_shift(from, end.scale, end.bias, end.add, to, side.extent.x);
      if (end.activation.kind != Activation::Kind::none) {
        activations_.forward(end.activation, to, to, side.extent.x);
      }
    }
  }
}

template class VolumeMaps<float>;
template class VolumeMaps<double>;

}  // namespace convolume::conv
