#include "conv/tiled/tiled_voxels.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "conv/caches/scratch.hpp"
#include "convolume/machine.hpp"
#include "core/checked.hpp"
#include "ops/append.hpp"

namespace convolume::conv {

using plan::Direction;

template <class T>
TiledVoxels<T>::TiledVoxels(const ConvProblem& p, Direction direction, const plan::Tiling& tiling, Counted counted,
                            bool differentiated, TransformMeter& meter)
    : grid_{tiling, p.batch, plan::Polyphase(p, tiling.z_unrolled)},
      conjugate_(direction == Direction::forward),
      source_layout_(conjugate_ ? p.x_layout : p.y_layout),
      target_layout_(conjugate_ ? p.y_layout : p.x_layout),
      in_(tiling.tile, tiling.overlap_add ? tiling.valid : tiling.tile),
      kernel_(tiling.tile, grid_.polyphase.dense.kernel),
      out_(tiling.tile, tiling.overlap_add ? tiling.tile : tiling.valid),
      window_(in_.support()),
      written_(out_.support()),
      target_extent_(conjugate_ ? p.output() : p.input),
      non_temporal_from_(non_temporal_from()),
      counted_(counted),
      meter_(meter) {
  // Voxel i of dx reads dy from i + pad - (kernel - 1) on. The convolution is not conjugated. Its valid part lies
  // behind a margin of kernel - 1 voxels, unless the source is shifted by this margin. With overlap-add all voxels are
  // valid.
  if (!conjugate_ && !tiling.overlap_add) shift_ = grid_.margin();
  const index_t phases = grid_.polyphase.phases();
  const bool few = conjugate_ && !differentiated && tiles_in_lanes<T>(p.in_channels, p.x_layout);
  const PhasedChannels x = phased_channels<T>(phases, p.in_channels, phases > 1 && !few);
  const PhasedChannels y = phased_channels<T>(1, p.out_channels, false);
  terms_ = conjugate_ ? x : y;
  results_ = conjugate_ ? y : x;
  weights_ = WeightSpectra<T>(tiling.tile, terms_.phases * terms_.channels, results_.all());
  streams_weights_ = static_cast<index_t>(sizeof(T)) * weights_.elements() > machine_model().l2_bytes / 4;
  step_ = group_ = std::min(tiling.group, grid_.per_sample());
  // The step divides the number of lanes, so that no step takes tiles from two vectors.
  if (few) {
    while (lanes % step_ != 0) --step_;
    group_ = lanes;
    lane_spectra_ = LaneSpectra<T>(grid_, p.in_channels, lanes, true);
  }
  make_groups(few);
  source_ = few ? lane_spectra_.layout() : TileSpectra<T>(tiling.tile, terms_.all(), group_, false);
  target_ = TileSpectra<T>(tiling.tile, results_.all(), step_, false);
  kept_ = TileSpectra<T>(tiling.tile, terms_.all(), grid_.tiles(), few);
}

template <class T>
double TiledVoxels<T>::kernel_flops() const noexcept {
  return static_cast<double>(weights_.channels() * weights_.columns()) * kernel_.flops();
}

template <class T>
double TiledVoxels<T>::source_flops() const noexcept {
  return static_cast<double>((terms_.all() + lanes - 1) / lanes) * in_.flops();
}

template <class T>
std::string TiledVoxels<T>::describe() const {
  return fmt::format("{}, {}, {}{}{}", in_.describe(), kernel_.describe(), out_.describe(), grid_.describe(),
                     grid_.tiling.overlap_add ? fmt::format(", pieces of {} added up", to_string(order_.piece)) : "");
}

/// Computes the spectra of the weights that relate one source channel to one block of target channels. The last stage
/// writes each spectrum once.
template <class T>
void TiledVoxels<T>::weight_spectra(const View<const T>& w, index_t term, index_t column,
                                    std::pmr::memory_resource* memory, T* spectra) const {
  // Lanes are channels of the target. Forward these are the rows of w, backward its columns.
  const index_t columns = weights_.columns() / results_.phases, along = conjugate_ ? 0 : 1;
  const index_t phase = conjugate_ ? term / terms_.channels : column / columns;
  const index_t first = column % columns * lanes, other = term % terms_.channels;
  const View<const T> taps = grid_.w_component(w, phase);
  const TileSource<T> source{.block = {.data = conjugate_ ? taps.channel(first, other) : taps.channel(other, first),
                                       .extent = taps.shape.extent,
                                       .channels = std::min(lanes, results_.channels - first),
                                       .channel_stride = taps.stride[static_cast<std::size_t>(along)],
                                       .plane_stride = taps.stride[2],
                                       .row_stride = taps.stride[3],
                                       .voxel_stride = taps.stride[4]},
                             .window = grid_.polyphase.dense.kernel};
  Scratch scratch(memory, stream_bytes(kernel_));
  T* temporary = scratch.take<T>(stream_bytes(kernel_));
  meter_.measure(Counted::weights, [&] {
    tile_io_.stream(kernel_, source, streams_weights_, spectra + weights_.offset(term, column), weights_.strides(),
                    temporary);
  });
}

template <class T>
std::vector<TaskId> TiledVoxels<T>::append_weight_spectra(TaskGraph& graph, std::function<View<const T>()> weights,
                                                          std::function<T*()> spectra,
                                                          std::pmr::memory_resource* memory,
                                                          const std::vector<TaskId>& after) const {
  const TaskId allocation = graph.add(
      {.name = "take weight spectra"}, [spectra] { spectra(); }, after);
  const index_t pairs = weights_.channels() * weights_.columns();
  const auto body = [this, weights, spectra, memory](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) {
      weight_spectra(weights(), i / weights_.columns(), i % weights_.columns(), memory, spectra());
    }
  };
  return ops::append_ranges(graph, "weight spectra", pairs, kernel_.flops(), {allocation}, body, stream_bytes(kernel_));
}

template <class T>
void TiledVoxels<T>::transform_group(index_t first, index_t count, const GroupTensors<T>& tensors, T* spectra,
                                     T* scratch) const {
  const auto transform = [&] {
    for (index_t i = 0; i < count;) {
      const TileRow row = row_of(grid_, first + i, count - i, source_layout_, source_.tile_step());
      for (index_t phase = 0; phase < terms_.phases; ++phase) {
        transform_phase(first + i, row, phase, tensors, spectra + source_.offset(i, phase * terms_.step), scratch);
      }
      i += row.count;
    }
  };
  meter_.measure(counted_, transform, count * terms_.phases * ((terms_.channels + lanes - 1) / lanes));
}

/// Transforms all channels of one phase of a row of tiles.
template <class T>
void TiledVoxels<T>::transform_phase(index_t tile, const TileRow& row, index_t phase, const GroupTensors<T>& tensors,
                                     T* spectra, T* scratch) const {
  const index_t n = grid_.sample(tile);
  const View<const T> from = source_component(tensors.source, tile, phase),
                      y = source_component(tensors.y, tile, phase);
  // The next tile of another sample begins elsewhere, so it is not prefetched.
  const bool followed = window_.z == 1 && (tile + 1) % grid_.per_sample() != 0;
  const View<const T> next = followed ? source_component(tensors.source, tile + 1, phase) : from;
  for (index_t c = 0; c < terms_.channels; c += lanes) {
    TileSource<T> source{.block = block_of(from, source_layout_, n, c),
                         .origin = source_begin(tile, phase),
                         .window = window_,
                         .shift = shift_,
                         .activation = tensors.gradient};
    if (followed) source.next = {block_of(next, source_layout_, n, c), source_begin(tile + 1, phase)};
    if (tensors.gradient != nullptr) source.y = block_of(y, source_layout_, n, c);
    tile_io_.transform_planes(in_, source, row, spectra + c, source_.strides(), scratch);
  }
}

/// Transforms, multiplies and inverts a group of tiles of sample n. Complete spectra exist for one frequency block at a
/// time, in the L1. Between the stages the larger caches hold half-transformed planes. If the layouts permit it
/// (in_place()), the planes of the target replace those of the source. If tiles are planes, their products do not go
/// through blocks, so they are never in place.
template <class T>
void TiledVoxels<T>::run_group(index_t n, const TileGroup& group, const GroupTensors<T>& tensors) const {
  Scratch scratch(tensors.memory, group_scratch_bytes());
  T* in = scratch.take<T>(bytes_of(source_.elements()));
  T* out = in_place() ? in : scratch.take<T>(bytes_of(target_.elements()));
  T* blocks = scratch.take<T>(block_bytes());
  T* temporary = scratch.take<T>(row_scratch_bytes());
  for (index_t plane = 0; plane < group.planes; ++plane) {
    const index_t first = n * grid_.per_sample() + group.first + plane * grid_.layer(), count = group.count;
    const T* spectra = in;
    if (source_.tiles_in_lanes()) {
      spectra = lane_spectra_.transform(in_, grid_, group, n, plane, tensors.source, in, temporary, meter_);
    } else {
      transform_group(first, count, tensors, in, temporary);
    }
    for (index_t begin = 0; begin < count; begin += step_) {
      const index_t tiles = std::min(step_, count - begin);
      if (grid_.planar()) {
        multiply_planes(first, begin, tiles, tensors, spectra, out);
      } else {
        multiply_group(first, begin, tiles, tensors, spectra, out, blocks, temporary);
      }
      meter_.measure(
          Counted::inverse, [&] { invert_group(first + begin, tiles, tensors, out, temporary); },
          tiles * weights_.columns());
    }
  }
  fence_streams();  // once per group, because each call waits until all non-temporal stores are in memory
}

/// Multiplies tiles [begin, begin + count) of the group whose first tile is `first`. Transforms and inverts the lines
/// along Z.
template <class T>
void TiledVoxels<T>::multiply_group(index_t first, index_t begin, index_t count, const GroupTensors<T>& tensors,
                                    const T* in, T* out, T* blocks, T* scratch) const {
  T* products = blocks + source_.block_elements();
  for (index_t block = 0; block < in_.blocks(); ++block) {
    const T* spectra = in + source_.block_offset(block);
    const index_t all = kept_.block_offset(block) + kept_.offset(first + begin, 0);
    if (source_.tiles_in_lanes()) {
      spectra += source_.offset(begin / lanes, 0) + begin % lanes;
    } else {
      meter_.sample_part(counted_, block, in_.blocks(), [&] { lines_forward(count, spectra, blocks, scratch); });
      if (tensors.keep != nullptr) tile_io_.stream_copy(blocks, source_.offset(count, 0), tensors.keep + all);
      spectra = blocks;
    }
    multiply_block(count, spectra, tensors.weights + weights_.block_offset(block), products);
    meter_.sample_part(Counted::inverse, block, in_.blocks(),
                       [&] { lines_backward(count, products, out + target_.block_offset(block), scratch); });
  }
}

/// Does the same for tiles that are planes. Their spectra are complete already.
template <class T>
void TiledVoxels<T>::multiply_planes(index_t first, index_t begin, index_t count, const GroupTensors<T>& tensors,
                                     const T* in, T* out) const {
  const index_t all = kept_.offset(first + begin, 0);
  if (source_.tiles_in_lanes()) in += source_.offset(begin / lanes, 0) + begin % lanes;
  if (tensors.keep != nullptr) tile_io_.stream_copy(in, count * source_.tile_step(), tensors.keep + all);
  multiply_block(count, in, tensors.weights, out);
}

/// Transforms the lines along Z of one frequency block, for all tiles and channels.
template <class T>
void TiledVoxels<T>::lines_forward(index_t count, const T* from, T* to, T* scratch) const {
  const std::ptrdiff_t next_block = source_.block_elements();
  for (index_t c = 0; c < terms_.all(); c += lanes) {
    in_.forward_lines({from + c, to + c, source_.strides(), source_.strides(), next_block}, count, source_.tile_step(),
                      source_.tile_step(), scratch);
  }
}

template <class T>
void TiledVoxels<T>::lines_backward(index_t count, const T* from, T* to, T* scratch) const {
  for (index_t o = 0; o < results_.all(); o += lanes) {
    out_.inverse_lines({from + o, to + o, target_.strides(), target_.strides()}, count, target_.tile_step(),
                       target_.tile_step(), scratch);
  }
}

/// Multiplies the spectra of some tiles by the weight spectra. Weight spectra come from the L3 or from memory, in the
/// order in which they lie. They are prefetched 8 KiB ahead, so that they arrive in time. If the last channel block of
/// a phase is not full, phases are summed one after the other.
template <class T>
void TiledVoxels<T>::multiply_block(index_t count, const T* spectra, const T* weights, T* products) const {
  const index_t together = terms_.contiguous() ? terms_.phases : 1;
  for (index_t phase = 0; phase < terms_.phases; phase += together) {
    multiply_phases(count, together, spectra + phase * terms_.step * source_.channel_step(),
                    weights + phase * terms_.channels * weights_.channel_step(), phase > 0, products);
  }
}

template <class T>
void TiledVoxels<T>::multiply_phases(index_t count, index_t phases, const T* spectra, const T* weights, bool add,
                                     T* products) const {
  products_.multiply(ComplexProduct<T>{.a = spectra,
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
                                       .terms = phases * terms_.channels,
                                       .frequencies = grid_.planar() ? in_.blocks() : grid_.tiling.tile.z,
                                       .columns = weights_.columns(),
                                       .conjugate_b = conjugate_,
                                       .add = add,
                                       .b_ahead = static_cast<std::ptrdiff_t>(8192 / sizeof(T))});
}

/// Returns the voxels written by a tile that no earlier tile has written.
template <class T>
fft::TileBox TiledVoxels<T>::fresh_part(index_t tile) const {
  const Extent3 at = grid_.place(tile);
  fft::TileBox box;
  for (int axis = 0; axis < 3; ++axis) {
    const index_t i = at[axis], margin = grid_.margin()[axis];
    const bool behind = i > 0 && order_.goes_before(axis, i - 1, i);
    const bool in_front = i + 1 < grid_.tiling.count[axis] && order_.goes_before(axis, i + 1, i);
    box.begin[axis] = behind ? margin : 0;
    box.end[axis] = in_front ? grid_.tiling.valid[axis] : written_[axis];
  }
  return box;
}

template <class T>
void TiledVoxels<T>::invert_group(index_t first, index_t count, const GroupTensors<T>& tensors, T* spectra,
                                  T* scratch) const {
  const bool overlap = grid_.tiling.overlap_add;
  const bool non_temporal = !tensors.add && !overlap && writes_non_temporal(tensors.target, non_temporal_from_);
  std::array<fft::TileBox, plan::most_tiles_of_group> fresh;
  for (index_t i = 0; i < count;) {
    const TileRow row = row_of(grid_, first + i, count - i, target_layout_, target_.tile_step());
    for (index_t j = 0; j < row.count && overlap; ++j) fresh[static_cast<std::size_t>(j)] = fresh_part(first + i + j);
    for (index_t block = 0; block < weights_.columns(); ++block) {
      const index_t columns = weights_.columns() / results_.phases, phase = block / columns, tile = first + i;
      const index_t o = block % columns * lanes;
      const View<T> to = target_component(tensors.target, tile, phase);
      const TileTarget<T> target{.block = block_of(to, target_layout_, grid_.sample(tile), o),
                                 .origin = target_begin(tile, phase),
                                 .window = written_,
                                 .scale = T{1} / static_cast<T>(grid_.tiling.tile.volume()),
                                 .bias = tensors.bias ? tensors.bias.data.get() + o : nullptr,
                                 .activation = tensors.activation,
                                 .add = tensors.add || overlap,
                                 .fresh = overlap && !tensors.add ? fresh.data() : nullptr,
                                 .non_temporal = non_temporal};
      const T* from = spectra + target_.offset(i, block * lanes);
      tile_io_.invert_planes(out_, from, target_.strides(), target, row, scratch);
    }
    i += row.count;
  }
}

template <class T>
void TiledVoxels<T>::make_groups(bool in_lanes) {
  if (in_lanes) {
    for (const TileColumn& column : lane_spectra_.columns(grid_)) groups_.push_back({column, {}});
    return;
  }
  if (grid_.tiling.overlap_add) {
    make_overlapping_groups();
    return;
  }
  for (index_t first = 0; first < grid_.per_sample(); first += group_)
    groups_.push_back({{first, std::min(group_, grid_.per_sample() - first), 1}, {}});
}

/// Handles the pieces of a layer in four classes, by the parity of their positions along Y and X. Two pieces of one
/// class write no common voxel.
template <class T>
void TiledVoxels<T>::make_overlapping_groups() {
  order_ = plan::OverlapOrder(grid_.tiling.count, group_);
  const Extent3 &count = order_.count, &piece = order_.piece, pieces = order_.pieces();
  step_ = group_ = piece.y * piece.x;
  std::vector<Extent3> places;
  const auto add = [&](const Extent3& at) {
    TileGroup group{{(at.z * count.y + at.y * piece.y) * count.x + at.x * piece.x, 0, 1}, {}};
    group.count = std::min(piece.y, count.y - at.y * piece.y) * std::min(piece.x, count.x - at.x * piece.x);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const Extent3 distance = places[i] - at;
      if (std::max({std::abs(distance.z), std::abs(distance.y), std::abs(distance.x)}) <= 1) group.before.push_back(i);
    }
    places.push_back(at);
    groups_.push_back(std::move(group));
  };
  for (const index_t z : order_.layers()) {
    for (index_t parity = 0; parity < 4; ++parity) {
      for (index_t y = parity / 2; y < pieces.y; y += 2) {
        for (index_t x = parity % 2; x < pieces.x; x += 2) add({z, y, x});
      }
    }
  }
}

template <class T>
std::array<index_t, 2> TiledVoxels<T>::written_planes(index_t first, index_t last) const {
  const index_t begin = first * grid_.tiling.valid.z, end = last * grid_.tiling.valid.z + written_.z;
  const plan::Polyphase& l = grid_.polyphase;
  if (conjugate_) return {begin * l.y_step.z, std::min(end * l.y_step.z, target_extent_.z)};
  const index_t offset = grid_.tiling.overlap_add ? l.dense.pad_before.z : l.shift_range.z;
  const index_t behind = grid_.tiling.overlap_add ? end - offset : end;
  return {std::max<index_t>(0, (begin - offset) * l.x_step.z), std::min(behind * l.x_step.z, target_extent_.z)};
}

template <class T>
Ready TiledVoxels<T>::append_groups(TaskGraph& graph, const Ready& source, const Ready& target,
                                    const std::vector<TaskId>& weights,
                                    std::function<GroupTensors<T>()> tensors) const {
  const index_t terms = terms_.all(), results = results_.all();
  const double tile_cost = in_.flops() * static_cast<double>(terms + results) / static_cast<double>(lanes) +
                           8.0 * static_cast<double>(in_.frequencies() * terms * results);
  const index_t planes = grid_.z_range_planes(conjugate_), z_ranges = (target_extent_.z + planes - 1) / planes;
  std::vector<TaskId> done;
  for (index_t n = 0; n < grid_.batch; ++n) {
    std::vector<TaskId> tasks;
    std::vector<std::vector<TaskId>> of_z_range(static_cast<std::size_t>(z_ranges));
    for (const TileGroup& group : groups_) {
      const index_t first_layer = group.first / grid_.layer();
      const index_t last_layer = (group.first + group.count - 1) / grid_.layer() + group.planes - 1;
      const auto [begin, end] = written_planes(first_layer, last_layer);
      std::vector<TaskId> after = weights;
      const index_t z0 = first_layer * grid_.tiling.valid.z, z1 = (last_layer + 1) * grid_.tiling.valid.z;
      grid_.collect_source(conjugate_, source, n, 0, terms_.channels, z0, z1, after);
      target.collect(n, 0, results_.channels, begin, std::max(end, begin + 1), after);
      for (const std::size_t other : group.before) after.push_back(tasks[other]);
      tasks.push_back(graph.add(
          {.name = conjugate_ ? "tiles forward" : "tiles backward",
           .cost = tile_cost * static_cast<double>(group.count * group.planes),
           .scratch_bytes = group_scratch_bytes()},
          [this, tensors, n, &group] { run_group(n, group, tensors()); }, after));
      // A group whose voxels all lie outside the target writes nothing. It belongs to the last Z range, because it
      // reads, too.
      const index_t first_z_range = std::min(begin / planes, z_ranges - 1);
      for (index_t z_range = first_z_range; z_range == first_z_range || z_range * planes < end; ++z_range)
        of_z_range[static_cast<std::size_t>(z_range)].push_back(tasks.back());
    }
    append_z_ranges(graph, of_z_range, done);
  }
  return Ready(std::move(done), 1, z_ranges, results_.channels, planes);
}

template class TiledVoxels<float>;
template class TiledVoxels<double>;

}  // namespace convolume::conv
