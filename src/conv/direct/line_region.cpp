#include "conv/direct/line_region.hpp"

#include <algorithm>
#include <numeric>

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

/// Bytes of an L1 between lines of one set, and its fewest ways. A page of 4 KiB limits the first.
constexpr index_t bytes_between_lines_of_a_set = 4096, fewest_ways = 8, line_bytes = 64;
/// Voxels of all channels are copied in pieces of about these bytes, half of an L1.
constexpr index_t piece_bytes = 16 << 10;

/// Returns the voxels of each channel that are copied together.
template <class T>
index_t piece_voxels(const VoxelDirection<T>& d) {
  const index_t tile = d.line_products.tile;
  return tile * std::max<index_t>(1, piece_bytes / (tile * d.weights.terms * static_cast<index_t>(sizeof(T))));
}

/// Returns whether the same voxel of all channels lies in too few sets of an L1 for its ways. Every few results read it
/// again. Channels whose distance is a multiple of 4 KiB share one set.
template <class T>
bool crowds_sets(const View<const T>& source, index_t terms) {
  const index_t apart = source.stride[1] * static_cast<index_t>(sizeof(T));
  const index_t sets = std::max<index_t>(
      1, bytes_between_lines_of_a_set / std::max(line_bytes, std::gcd(apart, bytes_between_lines_of_a_set)));
  return terms > sets * fewest_ways;
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
        scratch_(memory, scratch_bytes(d, region)),
        bias_(scratch_.template take<T>(bias_bytes(d, region))),
        first_(region.first_column * d.weights.block),
        results_(results_of(d, region)),
        non_temporal_(!tensors.add && tensors.activation.kind == Activation::Kind::none &&
                      writes_non_temporal(tensors.target, d.non_temporal_from)),
        weights_(weights + region.first_column * d.weights.column_step()) {
    if (copies(d, region) && crowds_sets(tensors.source, d.weights.terms)) {
      piece_ = scratch_.template take<T>(piece_bytes_of(d));
    }
    for (index_t i = 0; i < results_; ++i) bias_[i] = tensors.bias ? tensors.bias(0, first_ + i, 0, 0, 0) : T{0};
  }

  static std::size_t scratch_bytes(const VoxelDirection<T>& d, const Region& region) {
    return bias_bytes(d, region) + (copies(d, region) ? piece_bytes_of(d) + line_bytes : 0);
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
      const T* from = source.data + z * source.plane_stride + y * source.row_stride;
      piece_ != nullptr ? multiply_pieces(from, voxels, target)
                        : multiply(from, tensors_.source.stride[1], voxels, target);
      for (index_t k = 0; k < results_ && tensors_.activation.kind != Activation::Kind::none; ++k) {
        T* channel = target + k * tensors_.target.stride[1];
        d_.activations.forward(tensors_.activation, channel, channel, voxels);
      }
    }
  }

 private:
  static std::size_t bias_bytes(const VoxelDirection<T>& d, const Region& region) {
    return static_cast<std::size_t>(results_of(d, region)) * sizeof(T);
  }
  static std::size_t piece_bytes_of(const VoxelDirection<T>& d) {
    return static_cast<std::size_t>(piece_voxels(d) * d.weights.terms) * sizeof(T);
  }
  /// Returns whether a copy of the source is read often enough to pay for itself.
  static bool copies(const VoxelDirection<T>& d, const Region& region) {
    return d.source_layout == Layout::plain && results_of(d, region) > most_blocked_results * 2;
  }
  bool blocked() const { return d_.source_layout == Layout::blocked; }

  /// Copies voxels of all channels so that they lie close together, and multiplies these.
  void multiply_pieces(const T* source, index_t voxels, T* target) const {
    const index_t most = piece_voxels(d_), apart = tensors_.source.stride[1];
    for (index_t first = 0; first < voxels; first += most) {
      const index_t count = std::min(most, voxels - first);
      for (index_t k = 0; k < d_.weights.terms; ++k) {
        const T* from = source + k * apart + first;
        if (first + most < voxels) prefetch(from + most, std::min(most, voxels - first - most));
        std::copy_n(from, count, piece_ + k * most);
      }
      multiply(piece_, most, count, target + first);
    }
  }
  /// Copies read as many lines as there are channels, one after the other, so no processor foresees them.
  static void prefetch(const T* from, index_t count) {
    for (index_t i = 0; i < count; i += line_bytes / static_cast<index_t>(sizeof(T))) __builtin_prefetch(from + i);
  }

  void multiply(const T* source, std::ptrdiff_t source_channel, index_t voxels, T* target) const {
    const LineProduct<T> product{.source = source,
                                 .source_channel = source_channel,
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
  T* piece_ = nullptr;  ///< voxels of all channels; null: lines are read in place
  index_t first_, results_;
  bool non_temporal_;
  const T* weights_;
};

}  // namespace

template <class T>
std::size_t line_scratch_bytes(const VoxelDirection<T>& d, const Region& region) {
  return LineRun<T>::scratch_bytes(d, region);
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
