#include "conv/direct/line_region.hpp"

#include <algorithm>

#include "conv/caches/scratch.hpp"
#include "conv/direct/line_product.hpp"
#include "conv/tensor_io/block_view.hpp"

namespace convolume::conv {
namespace {

/// Returns the number of channels that a region computes.
template <class T>
index_t results_of(const VoxelDirection<T>& d, const Region& region) {
  return std::min(region.columns * d.weights.block, d.weights.lanes - region.first_column * d.weights.block);
}

/// Computes a region as products of lines. A line is a row, or all rows of a plane if they lie side by side in
/// both tensors.
template <class T>
class LineRun {
 public:
  LineRun(const VoxelDirection<T>& d, const Region& region, const DirectionTensors<T>& tensors, const T* weights,
          std::pmr::memory_resource* memory)
      : d_(d),
        tensors_(tensors),
        region_(region),
        scratch_(memory, line_scratch_bytes(d, region)),
        bias_(scratch_.template take<T>(line_scratch_bytes(d, region))),
        first_(region.first_column * d.weights.block),
        results_(results_of(d, region)),
        non_temporal_(!tensors.add && tensors.activation.kind == Activation::Kind::none &&
                      writes_non_temporal(tensors.target, d.non_temporal_from)),
        weights_(weights + region.first_column * d.weights.column_step()) {
    for (index_t i = 0; i < results_; ++i) bias_[i] = tensors.bias ? tensors.bias(0, first_ + i, 0, 0, 0) : T{0};
  }

  void run() const {
    const Extent3 extent = region_.box.extent();
    const index_t row = extent.x * (blocked() ? d_.weights.block : 1);
    const bool joined = tensors_.source.stride[3] == row && tensors_.target.stride[3] == extent.x;
    const index_t lines = joined ? 1 : extent.y, voxels = joined ? extent.y * extent.x : extent.x;
    for (index_t i = 0; i < region_.samples * extent.z * lines; ++i) {
      const index_t sample = region_.sample + i / (extent.z * lines);
      const index_t z = region_.box.begin.z + i / lines % extent.z, y = region_.box.begin.y + i % lines;
      T* target = &tensors_.target(sample, first_, z, y, 0);
      const BlockView<const T> source = block_of(tensors_.source, d_.source_layout, sample, 0);
      multiply(source.data + z * source.plane_stride + y * source.row_stride, voxels, target);
      for (index_t k = 0; k < results_ && tensors_.activation.kind != Activation::Kind::none; ++k) {
        T* channel = target + k * tensors_.target.stride[1];
        d_.activations.forward(tensors_.activation, channel, channel, voxels);
      }
    }
  }

 private:
  bool blocked() const { return d_.source_layout == Layout::blocked; }

  void multiply(const T* source, index_t voxels, T* target) const {
    const LineProduct<T> product{.source = source,
                                 .source_channel = tensors_.source.stride[1],
                                 .weights = weights_,
                                 .weights_column = d_.weights.column_step(),
                                 .target = target,
                                 .target_channel = tensors_.target.stride[1],
                                 .bias = bias_,
                                 .voxels = voxels,
                                 .terms = d_.weights.terms,
                                 .results = results_,
                                 .add = tensors_.add,
                                 .non_temporal = non_temporal_};
    blocked() ? d_.line_products.multiply_blocked(product) : d_.line_products.multiply(product);
  }

  const VoxelDirection<T>& d_;
  const DirectionTensors<T>& tensors_;
  const Region& region_;
  Scratch scratch_;
  T* bias_;
  index_t first_, results_;
  bool non_temporal_;
  const T* weights_;
};

}  // namespace

template <class T>
std::size_t line_scratch_bytes(const VoxelDirection<T>& d, const Region& region) {
  return static_cast<std::size_t>(results_of(d, region)) * sizeof(T);
}
template std::size_t line_scratch_bytes(const VoxelDirection<float>&, const Region&);
template std::size_t line_scratch_bytes(const VoxelDirection<double>&, const Region&);

template <class T>
void run_lines(const VoxelDirection<T>& direction, const Region& region, const DirectionTensors<T>& tensors,
               const T* weights, std::pmr::memory_resource* memory) {
  LineRun<T>(direction, region, tensors, weights, memory).run();
}
template void run_lines(const VoxelDirection<float>&, const Region&, const DirectionTensors<float>&, const float*,
                        std::pmr::memory_resource*);
template void run_lines(const VoxelDirection<double>&, const Region&, const DirectionTensors<double>&, const double*,
                        std::pmr::memory_resource*);

}  // namespace convolume::conv
