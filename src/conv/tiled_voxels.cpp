#include "conv/tiled_voxels.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "conv/prepared.hpp"
#include "convolume/cpu.hpp"
#include "core/checked.hpp"
#include "ops/append.hpp"

namespace convolume::conv {

using plan::Direction;

template <class T>
void transform_tiles_in_lanes(const fft::TilePlan<T>& plan, const TileGrid& grid, const Extent3& offset, index_t first,
                              index_t count, const View<const T>& x, const TileSpectra<T>& layout, T* spectra,
                              T* scratch, TransformMeter& meter) {
  constexpr index_t lanes = fft::tile_lanes<T>;
  for (index_t begin = 0; begin < count; begin += lanes) {
    for (index_t c = 0; c < x.shape.c; ++c) {
      fft::PlainTile<const T> tiles{.lanes = {}, .plane_stride = x.stride[2], .row_stride = x.stride[3], .boxes = {}};
      for (index_t lane = 0; lane < std::min(lanes, count - begin); ++lane) {
        const index_t tile = first + begin + lane;
        const Extent3 origin = grid.begin(tile) + offset;
        const auto i = static_cast<std::size_t>(lane);
        tiles.lanes[i] = x.channel(grid.sample(tile), c) + origin.z * x.stride[2] + origin.y * x.stride[3] + origin.x;
        tiles.boxes[i] = {Extent3{0, 0, 0} - origin, x.shape.extent - origin};
      }
      meter.measure(Counted::input,
                    [&] { plan.forward(tiles, spectra + layout.offset(begin / lanes, c), layout.strides(), scratch); });
    }
  }
}

template <class T>
TiledVoxels<T>::TiledVoxels(const ConvProblem& p, Direction direction, const plan::TiledWay& way, TransformMeter& meter)
    : grid_{way, p.batch},
      terms_(direction == Direction::forward ? p.in_channels : p.out_channels),
      results_(direction == Direction::forward ? p.out_channels : p.in_channels),
      conjugate_(direction == Direction::forward),
      source_layout_(conjugate_ ? p.x_layout : p.y_layout),
      target_layout_(conjugate_ ? p.y_layout : p.x_layout),
      kernel_extent_(p.kernel),
      in_(grid_.way.tile, grid_.way.tile),
      kernel_(grid_.way.tile, p.kernel),
      out_(grid_.way.tile, grid_.way.valid),
      weights_(grid_.way.tile, terms_, results_),
      group_(std::min(grid_.way.group, grid_.per_sample())),
      step_(group_),
      past_caches_bytes_(static_cast<index_t>(machine_model().l3_bytes / 8)),
      meter_(meter) {
  const Extent3 margin = p.kernel - Extent3::all(1);
  if (conjugate_) {
    offset_ = Extent3{0, 0, 0} - p.pad_before;
  } else {
    // Voxel i of dx takes dy from i + pad - margin on; the convolution is not conjugated, and its valid part stands
    // behind the margin unless the source is shifted by that.
    offset_ = p.pad_before - margin;
    shift_ = margin;
  }
  const bool few = conjugate_ && tiles_in_lanes<T>(terms_, p.x_layout);
  // Steps divide the lanes, so that none takes tiles of two vectors.
  if (few) {
    while (lanes % step_ != 0) --step_;
    group_ = lanes;
  }
  source_ = TileSpectra<T>(grid_.way.tile, terms_, group_, few);
  target_ = TileSpectra<T>(grid_.way.tile, results_, step_, false);
}

template <class T>
double TiledVoxels<T>::kernel_flops() const noexcept {
  return static_cast<double>(terms_ * weights_.columns()) * kernel_.flops();
}

template <class T>
std::string TiledVoxels<T>::describe() const {
  return fmt::format("{}, {}, {}", in_.describe(), kernel_.describe(), out_.describe());
}

/// The spectra of the weights that relate one source channel to one block of lanes. Memory sees each of them once, from
/// the last stage.
template <class T>
void TiledVoxels<T>::weight_spectra(const View<const T>& w, index_t term, index_t column,
                                    std::pmr::memory_resource* memory, T* spectra) const {
  // Lanes are channels of the target: rows of w forward, its columns backward.
  const index_t first = column * lanes, along = conjugate_ ? 0 : 1;
  const TileSource<T> source{.block = {.data = conjugate_ ? w.channel(first, term) : w.channel(term, first),
                                       .extent = kernel_extent_,
                                       .channels = std::min(lanes, results_ - first),
                                       .channel_stride = w.stride[static_cast<std::size_t>(along)],
                                       .plane_stride = w.stride[2],
                                       .row_stride = w.stride[3]},
                             .window = kernel_extent_};
  Scratch scratch(memory, stream_bytes(kernel_));
  T* temporary = scratch.take<T>(stream_bytes(kernel_));
  meter_.measure(Counted::weights, [&] {
    stream_tile(kernel_, source, spectra + weights_.offset(term, column), weights_.strides(), temporary);
  });
}

template <class T>
std::vector<TaskId> TiledVoxels<T>::append_weight_spectra(TaskGraph& graph, std::function<View<const T>()> weights,
                                                          std::function<T*()> spectra,
                                                          std::pmr::memory_resource* memory,
                                                          const std::vector<TaskId>& after) const {
  const TaskId allocation = graph.add(
      {.name = "take weight spectra"}, [spectra] { spectra(); }, after);
  return ops::append_ranges(graph, "weight spectra", terms_ * weights_.columns(), kernel_.flops(), {allocation},
                            [this, weights, spectra, memory](index_t begin, index_t end) {
                              for (index_t i = begin; i < end; ++i) {
                                weight_spectra(weights(), i / weights_.columns(), i % weights_.columns(), memory,
                                               spectra());
                              }
                            });
}

template <class T>
void TiledVoxels<T>::transform_group(index_t first, index_t count, const GroupEnds<T>& ends, T* spectra,
                                     T* scratch) const {
  if (source_.tiles_in_lanes()) {
    transform_tiles_in_lanes(in_, grid_, offset_, first, count, ends.source, source_, spectra, scratch, meter_);
    return;
  }
  for (index_t i = 0; i < count; ++i) {
    const index_t n = grid_.sample(first + i);
    for (index_t c = 0; c < terms_; c += lanes) {
      TileSource<T> source{.block = block_of(ends.source, source_layout_, n, c),
                           .origin = grid_.begin(first + i) + offset_,
                           .window = grid_.way.tile,
                           .shift = shift_,
                           .activation = ends.gradient};
      if (ends.gradient != nullptr) source.y = block_of(ends.y, source_layout_, n, c);
      meter_.measure(conjugate_ ? Counted::input : Counted::gradient, [&] {
        transform_planes(in_, source, spectra + source_.offset(i, c), source_.strides(), scratch);
      });
    }
  }
}

/// Tiles [first, first + count) of one sample: transform, multiply, invert. Spectra along Z exist for one frequency
/// block at a time, in the L1; what lies in larger caches between the stages is half done, and y takes the place of x
/// there.
template <class T>
void TiledVoxels<T>::run_group(index_t first, index_t count, const GroupEnds<T>& ends) const {
  const auto bytes = [](index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); };
  const bool in_place = source_.lies_as(target_);
  const std::size_t block_bytes = bytes(source_.block_elements() + target_.block_elements());
  Scratch scratch(ends.memory, bytes(source_.elements()) + (in_place ? 0 : bytes(target_.elements())) + block_bytes +
                                   scratch_bytes() + 256);
  T* in = scratch.take<T>(bytes(source_.elements()));
  T* out = in_place ? in : scratch.take<T>(bytes(target_.elements()));
  T* blocks = scratch.take<T>(block_bytes);
  T* temporary = scratch.take<T>(scratch_bytes());
  transform_group(first, count, ends, in, temporary);
  for (index_t begin = 0; begin < count; begin += step_) {
    const index_t tiles = std::min(step_, count - begin);
    multiply_group(begin, tiles, in, ends.weights, out, blocks, temporary);
    invert_group(first + begin, tiles, ends, out, temporary);
  }
}

template <class T>
void TiledVoxels<T>::multiply_group(index_t first, index_t count, const T* in, const T* weights, T* out, T* blocks,
                                    T* scratch) const {
  T* products = blocks + source_.block_elements();
  for (index_t block = 0; block < in_.blocks(); ++block) {
    const T* spectra = in + source_.block_offset(block);
    if (source_.tiles_in_lanes()) {
      spectra += source_.offset(first / lanes, 0) + first % lanes;
    } else {
      meter_.measure_part(Counted::input, [&] { lines_forward(count, spectra, blocks, scratch); });
      spectra = blocks;
    }
    multiply_block(count, spectra, weights + weights_.block_offset(block), products);
    meter_.measure_part(Counted::inverse,
                        [&] { lines_backward(count, products, out + target_.block_offset(block), scratch); });
  }
}

/// Lines along Z of all tiles and channels.
template <class T>
void TiledVoxels<T>::lines_forward(index_t count, const T* from, T* to, T* scratch) const {
  for (index_t c = 0; c < terms_; c += lanes) {
    in_.forward_lines({from + c, to + c, source_.strides(), source_.strides()}, count, source_.tile_step(),
                      source_.tile_step(), scratch);
  }
}

template <class T>
void TiledVoxels<T>::lines_backward(index_t count, const T* from, T* to, T* scratch) const {
  for (index_t o = 0; o < results_; o += lanes) {
    out_.inverse_lines({from + o, to + o, target_.strides(), target_.strides()}, count, target_.tile_step(),
                       target_.tile_step(), scratch);
  }
}

/// Weight spectra come from the L3 or from memory, in the order in which they lie; asked for 8 KiB before they are read
/// they arrive in time.
template <class T>
void TiledVoxels<T>::multiply_block(index_t count, const T* spectra, const T* weights, T* products) const {
  multiply(ComplexProduct<T>{.a = spectra,
                             .a_row = source_.tile_step(),
                             .a_term = source_.channel_step(),
                             .a_im = source_.im(),
                             .a_frequency = source_.frequency_step(),
                             .b = weights,
                             .b_term = weights_.channel_step(),
                             .b_im = lanes,
                             .b_frequency = weights_.frequency_step(),
                             .b_column = weights_.column_step(),
                             .c = products,
                             .c_row = target_.tile_step(),
                             .c_im = target_.im(),
                             .c_frequency = target_.frequency_step(),
                             .c_column = lanes,
                             .rows = count,
                             .terms = terms_,
                             .frequencies = grid_.way.tile.z,
                             .columns = weights_.columns(),
                             .conjugate_b = conjugate_,
                             .b_ahead = static_cast<std::ptrdiff_t>(8192 / sizeof(T))});
}

/// A small target is still in the caches when the next layer reads it.
template <class T>
bool TiledVoxels<T>::past_caches(const GroupEnds<T>& ends) const {
  const View<T>& target = ends.target;
  const index_t bytes =
      static_cast<index_t>(sizeof(T)) * stored_elements(target.shape, target.layout, data_type_of<T>());
  const auto aligned = [&] {
    bool all = reinterpret_cast<std::uintptr_t>(target.data) % 64 == 0;
    for (const index_t stride : target.stride) all = all && stride * static_cast<index_t>(sizeof(T)) % 64 == 0;
    return all;
  };
  return target.layout == Layout::blocked && !ends.add && bytes > past_caches_bytes_ && aligned();
}

template <class T>
void TiledVoxels<T>::invert_group(index_t first, index_t count, const GroupEnds<T>& ends, T* spectra,
                                  T* scratch) const {
  const bool past = past_caches(ends);
  for (index_t i = 0; i < count; ++i) {
    for (index_t o = 0; o < results_; o += lanes) {
      const TileTarget<T> target{.block = block_of(ends.target, target_layout_, grid_.sample(first + i), o),
                                 .origin = grid_.begin(first + i),
                                 .window = grid_.way.valid,
                                 .scale = T{1} / static_cast<T>(grid_.way.tile.volume()),
                                 .bias = ends.bias != nullptr ? ends.bias + o : nullptr,
                                 .activation = ends.activation,
                                 .add = ends.add,
                                 .past_caches = past};
      meter_.measure(Counted::inverse,
                     [&] { invert_planes(out_, spectra + target_.offset(i, o), target_.strides(), target, scratch); });
    }
  }
}

template <class T>
Ready TiledVoxels<T>::append_groups(TaskGraph& graph, const Ready& source, const Ready& target,
                                    const std::vector<TaskId>& weights, std::function<GroupEnds<T>()> ends) const {
  const plan::TiledWay& way = grid_.way;
  const index_t per_sample = grid_.per_sample(), layer = way.count.y * way.count.x;
  const double tile_cost = in_.flops() * static_cast<double>(terms_ + results_) / static_cast<double>(lanes) +
                           8.0 * static_cast<double>(in_.frequencies() * terms_ * results_);
  std::vector<TaskId> done;
  for (index_t n = 0; n < grid_.batch; ++n) {
    std::vector<std::vector<TaskId>> of_layer(static_cast<std::size_t>(way.count.z));
    for (index_t tile = 0; tile < per_sample; tile += group_) {
      const index_t count = std::min(group_, per_sample - tile), last = tile + count - 1;
      std::vector<TaskId> after = weights;
      const index_t z0 = tile / layer * way.valid.z, z1 = last / layer * way.valid.z + way.tile.z;
      source.collect(n, 0, terms_, std::max<index_t>(0, z0 + offset_.z), std::max<index_t>(1, z1 + offset_.z), after);
      target.collect(n, 0, results_, z0, z1, after);
      const index_t first = n * per_sample + tile;
      const TaskId task = graph.add(
          {.name = conjugate_ ? "tiles forward" : "tiles backward", .cost = tile_cost * static_cast<double>(count)},
          [this, ends, first, count] { run_group(first, count, ends()); }, after);
      for (index_t z = tile / layer; z <= last / layer; ++z) of_layer[static_cast<std::size_t>(z)].push_back(task);
    }
    for (const auto& tasks : of_layer)
      done.push_back(graph.add(
          {.name = "layer of tiles"}, [] {}, tasks));
  }
  return Ready(std::move(done), 1, way.count.z, results_, way.valid.z);
}

template void transform_tiles_in_lanes(const fft::TilePlan<float>&, const TileGrid&, const Extent3&, index_t, index_t,
                                       const View<const float>&, const TileSpectra<float>&, float*, float*,
                                       TransformMeter&);
template void transform_tiles_in_lanes(const fft::TilePlan<double>&, const TileGrid&, const Extent3&, index_t, index_t,
                                       const View<const double>&, const TileSpectra<double>&, double*, double*,
                                       TransformMeter&);
template class TiledVoxels<float>;
template class TiledVoxels<double>;

}  // namespace convolume::conv
