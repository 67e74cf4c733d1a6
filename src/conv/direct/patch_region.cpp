#include "conv/direct/patch_region.hpp"

#include <algorithm>

#include "conv/caches/cache_lines.hpp"
#include "conv/caches/scratch.hpp"
#include "conv/tensor_io/block_view.hpp"

namespace convolume::conv {
namespace {

/// Results that are computed before they are copied to their places. They fit into the L2 beside the source.
constexpr index_t held_bytes = 64 << 10;

/// The lanes: number of results per source voxel, and blocks of 64 bytes that hold them.
template <class T>
struct PatchLanes {
  explicit PatchLanes(const VoxelDirection<T>& d)
      : count(d.weights.lanes * d.weights.taps), columns((count + d.weights.block - 1) / d.weights.block) {}
  index_t count, columns;
};

/// Returns how many rows of the source are multiplied together.
template <class T>
index_t rows_together(const VoxelDirection<T>& d, const Extent3& source) {
  return std::clamp<index_t>(held_bytes / (source.x * PatchLanes<T>(d).columns * 64), 1, source.y);
}

/// Copies `count` pieces of N elements, which lie `apart` elements apart, to one row.
template <int N, class T>
void join(const T* from, index_t count, index_t apart, T* to) {
  for (index_t i = 0; i < count; ++i, from += apart, to += N) std::copy_n(from, N, to);
}
template <class T>
void join(const T* from, index_t n, index_t count, index_t apart, T* to) {
  if (n == 4) return join<4>(from, count, apart, to);
  if (n == 2) return join<2>(from, count, apart, to);
  for (index_t i = 0; i < count; ++i, from += apart, to += n) std::copy_n(from, n, to);
}

template <class T>
class PatchRun {
 public:
  PatchRun(const VoxelDirection<T>& d, const Region& region, const DirectionTensors<T>& tensors, const T* weights,
           std::pmr::memory_resource* memory)
      : d_(d),
        region_(region),
        tensors_(tensors),
        lanes_(d),
        scratch_(memory, scratch_bytes(d, tensors)),
        weights_(take(lanes_.columns * weights_column() / block)),
        bias_(take(lanes_.columns)),
        held_(take(rows_together(d, source_extent()) * source_extent().x * lanes_.columns)),
        steps_(scratch_.template take<DirectStep>(step_bytes(d))) {
    pack(weights);
  }

  static std::size_t scratch_bytes(const VoxelDirection<T>& d, const DirectionTensors<T>& tensors) {
    const PatchLanes<T> lanes(d);
    const Extent3& source = tensors.source.shape.extent;
    const index_t blocks = lanes.columns * (d.weights.term_blocks() * block + 1 + rows_together(d, source) * source.x);
    return static_cast<std::size_t>(blocks) * 64 + step_bytes(d);
  }

  void run() const {
    const Extent3 size = d_.map.target_step(), &source = source_extent(), &begin = region_.box.begin;
    const index_t last_z = covering(region_.box.end.z, size.z), last_y = covering(region_.box.end.y, size.y);
    const index_t rows = rows_together(d_, source);
    for (index_t n = region_.sample; n < region_.sample + region_.samples; ++n) {
      for (index_t z = begin.z / size.z; z < std::min(last_z, source.z); ++z) {
        for (index_t y = begin.y / size.y; y < std::min(last_y, source.y); y += rows) {
          const index_t count = std::min(rows, std::min(last_y, source.y) - y);
          multiply(n, z, y, count);
          store(n, z, y, count);
        }
      }
      fill_rest(n);
    }
  }

 private:
  static constexpr index_t block = fft::tile_lanes<T>;

  static index_t covering(index_t voxels, index_t size) { return (voxels + size - 1) / size; }
  static std::size_t step_bytes(const VoxelDirection<T>& d) {
    return whole_lines(static_cast<std::size_t>(d.weights.term_blocks()) * sizeof(DirectStep));
  }
  T* take(index_t blocks) { return scratch_.template take<T>(static_cast<std::size_t>(blocks) * 64); }
  const Extent3& source_extent() const { return tensors_.source.shape.extent; }
  index_t weights_column() const { return d_.weights.term_blocks() * block * block; }
  T bias_of(index_t result) const { return tensors_.bias ? tensors_.bias(0, result, 0, 0, 0) : T{0}; }

  /// Reorders the weights so that lanes are results of a source voxel, in the order (channel, z, y, x).
  void pack(const T* packed) {
    std::fill_n(weights_, lanes_.columns * weights_column(), T{0});
    std::fill_n(bias_, lanes_.columns * block, T{0});
    index_t lane = 0;
    for (index_t result = 0; result < d_.weights.lanes; ++result) {
      for (const DirectPhase& phase : d_.map.phases()) {
        T* to = weights_ + lane / block * weights_column() + lane % block;
        for (index_t term = 0; term < d_.weights.terms; ++term, to += block) {
          *to = packed[d_.weights.offset(0, term / block, phase.taps.front().tap) + term % block * block + result];
        }
        bias_[lane++] = bias_of(result);
      }
    }
    for (index_t i = 0; i < d_.weights.term_blocks(); ++i) {
      steps_[i] = {.source = i * tensors_.source.stride[1],
                   .weights = i * block * block,
                   .terms = static_cast<int>(std::min(block, d_.weights.terms - i * block))};
    }
  }

  /// Computes the results of `count` rows of the source. Terms are summed in the products of the nest.
  void multiply(index_t n, index_t z, index_t y, index_t count) const {
    const View<const T>& from = tensors_.source;
    const Extent3& source = source_extent();
    const index_t together = d_.nest.product_blocks;
    for (index_t first = 0; first < d_.weights.term_blocks(); first += together) {
      d_.single_taps({.source = block_of(from, Layout::blocked, n, 0).data + z * from.stride[2] + y * from.stride[3],
                      .source_strides = {block, from.stride[3], from.stride[2]},
                      .steps = steps_ + first,
                      .step_count = std::min(together, d_.weights.term_blocks() - first),
                      .neighbours = 1,
                      .row_taps = 1,
                      .source_tap = 0,
                      .weights_tap = 0,
                      .weights = weights_,
                      .weights_column = weights_column(),
                      .weights_next = 0,
                      .target = held_,
                      .target_strides = {block, source.x * block, 0},
                      .target_column = held_column(),
                      .bias = tensors_.bias ? bias_ : nullptr,
                      .count = {1, count, source.x},
                      .columns = lanes_.columns,
                      .lanes = lanes_.count,
                      .add = first > 0,
                      .non_temporal = false});
    }
  }
  index_t held_column() const { return rows_together(d_, source_extent()) * source_extent().x * block; }

  /// Copies the results of `count` rows of the source to their places.
  void store(index_t n, index_t z, index_t y, index_t count) const {
    const Extent3 size = d_.map.target_step(), &all = tensors_.target.shape.extent, &source = source_extent();
    // A patch may extend beyond the target. Only the last one of a row does.
    const index_t whole = std::min(source.x, all.x / size.x);
    const index_t rest = whole < source.x ? all.x - whole * size.x : 0;
    for (index_t row = 0; row < count; ++row) {
      for (index_t i = 0; i < lanes_.count / size.x; ++i) {
        const index_t to_z = z * size.z + i / size.y % size.z, to_y = (y + row) * size.y + i % size.y;
        if (to_z >= all.z || to_y >= all.y) continue;
        T* to = &tensors_.target(n, i / size.y / size.z, to_z, to_y, 0);
        join_lanes(i * size.x, size.x, row * source.x, whole, to);
        if (rest > 0) join_lanes(i * size.x, rest, row * source.x + whole, 1, to + whole * size.x);
      }
    }
  }
  /// Copies `n` lanes from `lane` on, for `count` voxels from `voxel` on. The lanes may lie in two blocks or more.
  void join_lanes(index_t lane, index_t n, index_t voxel, index_t count, T* to) const {
    if (lane % block + n <= block) {
      join(held_ + lane / block * held_column() + voxel * block + lane % block, n, count, block, to);
      return;
    }
    for (index_t i = 0; i < count * n; ++i) {
      const index_t at = lane + i % n;
      to[i] = held_[at / block * held_column() + (voxel + i / n) * block + at % block];
    }
  }

  /// Sets results that no source voxel reaches to the bias.
  void fill_rest(index_t n) const {
    const Extent3 size = d_.map.target_step(), &source = source_extent(), &all = tensors_.target.shape.extent;
    const Extent3 reached{source.z * size.z, source.y * size.y, std::min(all.x, source.x * size.x)};
    for (index_t c = 0; c < d_.weights.lanes; ++c) {
      for (index_t z = region_.box.begin.z; z < region_.box.end.z; ++z) {
        for (index_t y = region_.box.begin.y; y < region_.box.end.y; ++y) {
          const index_t first = z < reached.z && y < reached.y ? reached.x : 0;
          std::fill_n(&tensors_.target(n, c, z, y, 0) + first, all.x - first, bias_of(c));
        }
      }
    }
  }

  const VoxelDirection<T>& d_;
  const Region& region_;
  const DirectionTensors<T>& tensors_;
  PatchLanes<T> lanes_;
  Scratch scratch_;
  T *weights_, *bias_, *held_;
  DirectStep* steps_;
};

}  // namespace

template <class T>
bool are_patches(const VoxelDirection<T>& d) {
  const auto& phases = d.map.phases();
  const bool boxes = phases.size() > 1 && std::all_of(phases.begin(), phases.end(), [](const DirectPhase& phase) {
                       return phase.taps.size() == 1 && phase.taps.front().offset == Extent3{0, 0, 0};
                     });
  const Extent3 size = d.map.target_step(), &domain = d.map.domain();
  const auto whole = [](index_t region, index_t size_of_box, index_t all) {
    return region == all || region % size_of_box == 0;
  };
  // The nest may sum the terms in several products. They must be equally long.
  const auto term_loops = std::count_if(d.nest.walk.begin(), d.nest.walk.end(),
                                        [](const TaskLoop& loop) { return loop.dim == plan::Dim::c; });
  return boxes && d.source_layout == Layout::blocked && d.target_layout == Layout::plain &&
         d.weights.lanes <= most_blocked_results && term_loops <= 1 && d.nest.grid.column_groups == 1 &&
         whole(d.nest.grid.extent.z, size.z, domain.z) && whole(d.nest.grid.extent.y, size.y, domain.y);
}
template bool are_patches(const VoxelDirection<float>&);
template bool are_patches(const VoxelDirection<double>&);

template <class T>
std::size_t patch_scratch_bytes(const VoxelDirection<T>& direction, const DirectionTensors<T>& tensors) {
  return PatchRun<T>::scratch_bytes(direction, tensors);
}
template std::size_t patch_scratch_bytes(const VoxelDirection<float>&, const DirectionTensors<float>&);
template std::size_t patch_scratch_bytes(const VoxelDirection<double>&, const DirectionTensors<double>&);

template <class T>
void run_patches(const VoxelDirection<T>& direction, const Region& region, const DirectionTensors<T>& tensors,
                 const T* weights, std::pmr::memory_resource* memory) {
  PatchRun<T>(direction, region, tensors, weights, memory).run();
}
template void run_patches(const VoxelDirection<float>&, const Region&, const DirectionTensors<float>&, const float*,
                          std::pmr::memory_resource*);
template void run_patches(const VoxelDirection<double>&, const Region&, const DirectionTensors<double>&, const double*,
                          std::pmr::memory_resource*);

}  // namespace convolume::conv
