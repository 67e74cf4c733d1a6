#include "ops/layout.hpp"

#include "ops/gather.hpp"

namespace convolume::ops {

template <class T>
void convert(const ConstView<T>& source, const View<T>& target) {
  require_rows("convert", "source", source);
  require_rows("convert", "target", target);
  require_shape("convert", "target", target.shape, source.shape);
  const Origin<T> origin{source, 0};
  const Cut parts = gather_cut<T>(std::span(&origin, 1), target);
  for (index_t n = 0; n < parts.samples; ++n) {
    for (index_t block = 0; block < parts.blocks; ++block) {
      for (index_t slab = 0; slab < parts.slabs; ++slab) {
        gather<T>(std::span(&origin, 1), target, part_of(parts, n, block, slab), false);
      }
    }
  }
}

template void convert(const ConstView<float>&, const View<float>&);
template void convert(const ConstView<double>&, const View<double>&);

}  // namespace convolume::ops
