#include "conv/tiled/tiled_weight_gradient.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "conv/caches/caches.hpp"
#include "conv/caches/scratch.hpp"
#include "conv/tensor_io/tile_io.hpp"
#include "conv/tiled/tiled_voxels.hpp"
#include "convolume/machine.hpp"
#include "core/checked.hpp"
#include "ops/append.hpp"
#include "plan/cost_constants.hpp"

namespace convolume::conv {

/// The memory of one run of a graph. Two chunks alternate: one is transformed while the other is multiplied.
template <class T>
struct TiledWeightGradient<T>::Run {
  std::shared_ptr<BufferStore> own_x, own_dy, sums;
  bool x_hat = false;                   // the bound x_hat replaces own_x
  std::shared_ptr<BufferStore> dy_hat;  // if not null, replaces own_dy
  index_t tiles = 0, chunk = 1;         // all tiles; tiles of a chunk

  index_t chunks() const { return (tiles + chunk - 1) / chunk; }
  index_t tiles_of(index_t number) const { return std::min(chunk, tiles - number * chunk); }
  static std::size_t place(index_t number) { return static_cast<std::size_t>(number % 2); }
  T* x(index_t number) const { return static_cast<T*>(own_x->acquire(place(number))); }
  T* dy(index_t number) const { return static_cast<T*>(own_dy->acquire(place(number))); }
  T* total() const { return static_cast<T*>(sums->acquire(0)); }
  void take(index_t buffers) {
    for (index_t number = 0; number < buffers; ++number) {
      if (!x_hat) x(number);
      if (!dy_hat) dy(number);
    }
    total();
  }
};

template <class T>
TiledWeightGradient<T>::TiledWeightGradient(const plan::Sides& sides, const Activation& activation,
                                            const plan::Tilings& tilings, TransformMeter& meter)
    : shared_(tilings.shared),
      turned_(plan::swaps_zy(sides.convolution())),
      problem_(turned_ ? plan::swap_zy(sides.convolution()) : sides.convolution()),
      sides_(sides),
      activation_(activation),
      grid_{tilings.weights, problem_.batch, plan::Polyphase(problem_, tilings.weights.z_unrolled)},
      in_(grid_.tiling.tile, grid_.tiling.tile),
      gradient_(grid_.tiling.tile, grid_.tiling.valid),
      kernel_(grid_.tiling.tile, grid_.polyphase.dense.kernel),
      small_channels_(!(sides.y_is_high_res() && activated()) &&
                      tiles_in_lanes<T>(problem_.in_channels, problem_.x_layout)),
      rows_(phased_channels<T>(grid_.polyphase.phases(), problem_.in_channels,
                               grid_.polyphase.phases() > 1 && !small_channels_)),
      weights_(grid_.tiling.tile, rows_.phases * rows_.channels, problem_.out_channels),
      meter_(meter) {
  constexpr index_t most_parts = 16;
  const index_t sums = static_cast<index_t>(sizeof(T)) * weights_.elements();
  if (small_channels_ && sums <= plan::sum_step_bytes) {
    lane_spectra_ = LaneSpectra<T>(grid_, problem_.in_channels, lanes, true);
    columns_ = lane_spectra_.columns(grid_);
    parts_ = std::min(most_parts, problem_.batch * static_cast<index_t>(columns_.size()));
    const TileSpectra<T> one(grid_.tiling.tile, problem_.out_channels, 1, false);
    chunk_ = plan::tiles_of_step(static_cast<double>(bytes_of(one.elements())), lanes);
    x_ = lane_spectra_.layout();
    dy_ = TileSpectra<T>(grid_.tiling.tile, problem_.out_channels, chunk_, false);
    return;
  }
  const auto bytes = [&](index_t tiles) {
    return static_cast<index_t>(sizeof(T)) *
           (TileSpectra<T>(grid_.tiling.tile, rows_.all(), tiles, small_channels_).elements() +
            TileSpectra<T>(grid_.tiling.tile, problem_.out_channels, tiles, false).elements());
  };
  const index_t chunk_bytes = shared_ ? plan::shared_chunk_bytes : plan::sum_chunk_bytes;
  chunk_ = std::clamp<index_t>(chunk_bytes * lanes / bytes(lanes), 1, grid_.tiles());
  if (small_channels_) chunk_ = round_up(chunk_, lanes);
  if (shared_) {
    // Tilings with few channels are never shared, so no tiles share lanes here.
    all_x_ = TileSpectra<T>(grid_.tiling.tile, rows_.all(), grid_.tiles(), false);
    all_dy_ = TileSpectra<T>(grid_.tiling.tile, problem_.out_channels, grid_.tiles(), false);
  }
  x_ = TileSpectra<T>(grid_.tiling.tile, rows_.all(), chunk_, small_channels_);
  if (small_channels_) lane_spectra_ = LaneSpectra<T>(grid_, problem_.in_channels, chunk_, false);
  dy_ = TileSpectra<T>(grid_.tiling.tile, problem_.out_channels, chunk_, false);
}

template <class T>
std::string TiledWeightGradient<T>::describe() const {
  const std::string order = parts_ > 0 ? fmt::format("{} parts", parts_)
                            : shared_  ? std::string("one sum")
                                       : fmt::format("chunks of {}", chunk_);
  return fmt::format("{}, {}, {} in {}", in_.describe(), gradient_.describe(), kernel_.describe(), order) +
         grid_.describe();
}

/// Returns the source for one channel block of a tile's valid part of dy.
template <class T>
TileSource<T> TiledWeightGradient<T>::dy_source(const BackwardArguments& a, index_t tile, std::optional<index_t> next,
                                                index_t o) const {
  const index_t n = grid_.sample(tile);
  TileSource<T> source{.block = block_of(grid_.y_component(low_res(a), tile), problem_.y_layout, n, o),
                       .origin = grid_.begin(tile),
                       .window = grid_.tiling.valid};
  if (next) {
    const View<const T> after = grid_.y_component(low_res(a), *next);
    source.next = {block_of(after, problem_.y_layout, grid_.sample(*next), o), grid_.begin(*next)};
  }
  if (!sides_.y_is_high_res() && activated()) {
    source.activation = &activation_;
    source.y = block_of(grid_.y_component(turned(a.y.as<T>()), tile), problem_.y_layout, n, o);
  }
  return source;
}

/// Returns the source for one channel block of a tile's window of x, in one phase.
template <class T>
TileSource<T> TiledWeightGradient<T>::x_source(const BackwardArguments& a, index_t tile, index_t phase,
                                               index_t c) const {
  const index_t n = grid_.sample(tile);
  TileSource<T> source{.block = block_of(grid_.x_component(high_res(a), tile, phase), problem_.x_layout, n, c),
                       .origin = grid_.x_begin(tile, phase),
                       .window = grid_.tiling.tile};
  if (sides_.y_is_high_res() && activated()) {
    source.activation = &activation_;
    source.y = block_of(grid_.x_component(turned(a.y.as<T>()), tile, phase), problem_.x_layout, n, c);
  }
  return source;
}

/// Computes the spectra of all channels of a tile. `source(phase, channel)` returns the source of a channel block. The
/// half-transformed planes stay in the L2. The lines along Z are transformed in the L1, one frequency block after the
/// other, and written with non-temporal stores. Memory receives the whole frequency block of a tile at once.
template <class T>
template <class Source>
void TiledWeightGradient<T>::stream_spectra(const fft::TilePlan<T>& plan, Counted what, const PhasedChannels& channels,
                                            const Source& source, const TileSpectra<T>& layout, T* spectra,
                                            T* scratch) const {
  const TileSpectra<T> tile(grid_.tiling.tile, channels.all(), 1, false);
  T* planes = scratch + scratch_bytes() / sizeof(T);
  T* lines = planes + tile.elements();
  for (index_t phase = 0; phase < channels.phases; ++phase) {
    for (index_t c = 0; c < channels.channels; c += lanes) {
      T* const to = planes + tile.offset(0, phase * channels.step + c);
      const TileSource<T> one = source(phase, c);
      const TileRow row = row_of(grid_, 0, 1, one.block.blocked ? Layout::blocked : Layout::plain, 0);
      meter_.measure(what, [&] { tile_io_.transform_planes(plan, one, row, to, tile.strides(), scratch); });
    }
  }
  meter_.measure_part(what, [&] {
    for (index_t block = 0; block < plan.blocks(); ++block) {
      const T* from = planes + tile.block_offset(block);
      for (index_t c = 0; c < channels.all(); c += lanes)
        plan.forward_lines({from + c, lines + c, tile.strides(), tile.strides(), tile.block_elements()}, 1, 0, 0,
                           scratch);
      tile_io_.stream_copy(lines, tile.block_elements(), spectra + layout.block_offset(block));
    }
    fence_streams();
  });
}

template <class T>
std::size_t TiledWeightGradient<T>::tile_scratch_bytes() const {
  const TileSpectra<T> tile(grid_.tiling.tile, std::max(rows_.all(), problem_.out_channels), 1, false);
  return scratch_bytes() + sizeof(T) * static_cast<std::size_t>(tile.elements() + tile.block_elements());
}

/// Transforms x for one tile. If tiles share lanes, the call for the first of them transforms them all, and the calls
/// for the others do nothing.
template <class T>
void TiledWeightGradient<T>::transform_x(const BackwardArguments& a, index_t tile, index_t place, T* spectra,
                                         T* scratch) const {
  if (small_channels_) {
    if (place % lanes != 0) return;
    const index_t count = std::min({lanes, chunk_ - place, grid_.tiles() - tile});
    lane_spectra_.transform(in_, grid_, tile, count, high_res(a), spectra + x_.offset(place / lanes, 0), scratch,
                            meter_);
    return;
  }
  stream_spectra(
      in_, x_counted(), rows_, [&](index_t phase, index_t c) { return x_source(a, tile, phase, c); }, x_,
      spectra + x_.offset(place, 0), scratch);
}

template <class T>
void TiledWeightGradient<T>::transform_dy(const BackwardArguments& a, index_t tile, index_t place, T* spectra,
                                          T* scratch) const {
  stream_spectra(
      gradient_, dy_counted(), phased_channels<T>(1, problem_.out_channels, false),
      [&](index_t, index_t o) { return dy_source(a, tile, std::nullopt, o); }, dy_, spectra + dy_.offset(place, 0),
      scratch);
}

/// Adds the products of some tiles, in their order, to the sums of some frequencies. These are the frequencies of one
/// block, or, if tiles are planes, of as many frequency blocks.
template <class T>
void TiledWeightGradient<T>::multiply_block(index_t frequencies, index_t tiles, const T* x, const T* dy, bool add,
                                            T* sums) const {
  const index_t together = rows_.contiguous() ? rows_.phases : 1;
  for (index_t phase = 0; phase < rows_.phases; phase += together) {
    multiply_rows(frequencies, together * rows_.channels, tiles, x + phase * rows_.step * x_.channel_step(), dy, add,
                  sums + phase * rows_.channels * weights_.channel_step());
  }
}

/// The tiles of a chunk lie pages apart, so the hardware does not prefetch them. Instead, each frequency prefetches the
/// cache lines of the next frequency. Tiles that share lanes are in the L2 already.
template <class T>
void TiledWeightGradient<T>::multiply_rows(index_t frequencies, index_t rows, index_t tiles, const T* x, const T* dy,
                                           bool add, T* sums) const {
  products_.multiply(ComplexProduct<T>{.a = x,
                                       .a_row = x_.channel_step(),
                                       .a_term = x_.tile_step(),
                                       .a_im = x_.im(),
                                       .a_frequency = x_.frequency_step(),
                                       .b = dy,
                                       .b_term = dy_.tile_step(),
                                       .b_im = dy_.im(),
                                       .b_frequency = dy_.frequency_step(),
                                       .b_column = lanes,
                                       .c = sums,
                                       .c_row = weights_.channel_step(),
                                       .c_im = lanes,
                                       .c_frequency = weights_.frequency_step(),
                                       .c_column = weights_.column_step(),
                                       .rows = rows,
                                       .terms = tiles,
                                       .frequencies = frequencies,
                                       .columns = weights_.columns(),
                                       .conjugate_b = true,
                                       .add = add,
                                       .a_ahead = small_channels_ ? 0 : x_.frequency_step(),
                                       .b_ahead = small_channels_ ? 0 : dy_.frequency_step()});
}

/// Adds the products of a chunk of tiles to the sums of some frequency blocks.
template <class T>
void TiledWeightGradient<T>::sum_products(const Run& run, index_t first_block, index_t last_block, index_t chunk,
                                          const BackwardArguments& a, T* sums) const {
  const index_t count = run.tiles_of(chunk), first_tile = chunk * run.chunk;
  const TileSpectra<T>&x_layout = run.x_hat ? all_x_ : x_, &dy_layout = run.dy_hat ? all_dy_ : dy_;
  const T* x = run.x_hat ? static_cast<const T*>(a.x_hat->maps.get(0)) + x_layout.offset(first_tile, 0) : run.x(chunk);
  const T* dy =
      run.dy_hat ? static_cast<const T*>(run.dy_hat->get(0)) + dy_layout.offset(first_tile, 0) : run.dy(chunk);
  const index_t together = small_channels_ ? lanes : count;
  const index_t blocks = grid_.planar() ? last_block - first_block : 1;
  const index_t frequencies = grid_.planar() ? blocks : grid_.tiling.tile.z;
  for (index_t block = first_block; block < last_block; block += blocks) {
    for (index_t first = 0; first < count; first += together) {
      multiply_block(frequencies, std::min(together, count - first),
                     x + x_layout.block_offset(block) + (small_channels_ ? x_layout.offset(first / lanes, 0) : 0),
                     dy + dy_layout.block_offset(block) + dy_layout.offset(first, 0), chunk > 0 || first > 0,
                     sums + weights_.block_offset(block));
    }
  }
}

template <class T>
std::size_t TiledWeightGradient<T>::inverse_scratch_bytes(index_t channels) const {
  return static_cast<std::size_t>(channels) * planes_bytes(kernel_) + kernel_.scratch_bytes() + 128;
}

/// Computes dw from the sums of `count` neighbouring channels of x, counted over all phases, and one output-channel
/// block. The sums of these channels lie side by side.
template <class T>
void TiledWeightGradient<T>::invert(const BackwardArguments& a, index_t channel, index_t count, index_t column,
                                    const T* sums) const {
  const auto dw = turned(a.dw.as<T>());
  const index_t first = column * lanes;
  const std::size_t each = planes_bytes(kernel_);
  Scratch scratch(a.memory, inverse_scratch_bytes(count));
  T* planes = scratch.take<T>(static_cast<std::size_t>(count) * each);
  T* temporary = scratch.take<T>(kernel_.scratch_bytes());
  const auto step = static_cast<index_t>(each / sizeof(T));
  const fft::TileStrides from = weights_.strides(), to = plane_strides(kernel_);
  meter_.measure_part(Counted::inverse, [&] {
    for (index_t block = 0; block < kernel_.blocks(); ++block) {
      const T* lines = sums + weights_.offset(channel, column) + block * from.block;
      kernel_.inverse_lines({lines, planes + block * to.block, from, to, from.block}, count, weights_.channel_step(),
                            step, temporary);
    }
  });
  for (index_t i = 0; i < count; ++i) {
    const index_t phase = (channel + i) / rows_.channels;
    const View<T> taps = grid_.w_component(dw, phase);
    const TileTarget<T> target{.block = {.data = taps.channel(first, (channel + i) % rows_.channels),
                                         .extent = taps.shape.extent,
                                         .channels = std::min(lanes, problem_.out_channels - first),
                                         .channel_stride = taps.stride[0],
                                         .plane_stride = taps.stride[2],
                                         .row_stride = taps.stride[3],
                                         .voxel_stride = taps.stride[4]},
                               .window = grid_.polyphase.dense.kernel,
                               .scale = T{1} / static_cast<T>(grid_.tiling.tile.volume()),
                               .add = a.add_dw};
    meter_.measure(Counted::inverse, [&] {
      tile_io_.invert_planes(kernel_, static_cast<const T*>(planes + i * step), to, target, {}, temporary);
    });
  }
}

/// Adds the products of tiles [first, first + count). `x` points to their lanes in the spectra of x. The planes of dy
/// are transformed first. Then, for each frequency block, the lines along Z are transformed in the L1 and multiplied.
/// If tiles are planes, they are multiplied without this stage. `next` is the tile after these tiles, for prefetching.
template <class T>
void TiledWeightGradient<T>::sum_step(const BackwardArguments& a, index_t first, index_t count,
                                      std::optional<index_t> next, const T* x, bool add, T* sums, T* scratch) const {
  T* planes = scratch + scratch_bytes() / sizeof(T);
  T* lines = planes + dy_.elements();
  const auto transform = [&] {
    for (index_t i = 0; i < count;) {
      const TileRow row = row_of(grid_, first + i, count - i, problem_.y_layout, dy_.tile_step());
      for (index_t o = 0; o < problem_.out_channels; o += lanes) {
        const std::optional<index_t> after = i + 1 < count ? first + i + 1 : next;
        tile_io_.transform_planes(gradient_, dy_source(a, first + i, after, o), row, planes + dy_.offset(i, o),
                                  dy_.strides(), scratch);
      }
      i += row.count;
    }
  };
  meter_.measure(dy_counted(), transform, count * ((problem_.out_channels + lanes - 1) / lanes));
  if (grid_.planar()) {
    multiply_block(in_.blocks(), count, x, planes, add, sums);
    return;
  }
  for (index_t block = 0; block < in_.blocks(); ++block) {
    const T* from = planes + dy_.block_offset(block);
    meter_.sample_part(dy_counted(), block, in_.blocks(), [&] {
      for (index_t o = 0; o < problem_.out_channels; o += lanes) {
        gradient_.forward_lines({from + o, lines + o, dy_.strides(), dy_.strides()}, count, dy_.tile_step(),
                                dy_.tile_step(), scratch);
      }
    });
    multiply_block(grid_.tiling.tile.z, count, x + x_.block_offset(block), lines, add,
                   sums + weights_.block_offset(block));
  }
}

template <class T>
void TiledWeightGradient<T>::sum_part(const BackwardArguments& a, index_t part, T* sums) const {
  Scratch scratch(a.memory, part_scratch_bytes());
  T* x = scratch.take<T>(bytes_of(x_.elements()));
  T* temporary = scratch.take<T>(step_scratch_bytes());
  bool add = false;
  for (index_t i = first_column(part); i < first_column(part + 1); ++i) {
    const TileColumn& column = this->column(i);
    for (index_t plane = 0; plane < column.planes; ++plane) {
      const T* window =
          lane_spectra_.transform(in_, grid_, column, sample(i), plane, high_res(a), x, temporary, meter_);
      const index_t first = first_tile(i) + plane * grid_.layer();
      std::optional<index_t> next_plane;
      if (plane + 1 < column.planes) next_plane = first + grid_.layer();
      for (index_t tile = 0; tile < column.count; tile += chunk_, add = true) {
        const index_t count = std::min(chunk_, column.count - tile);
        const std::optional<index_t> next = tile + count < column.count ? first + tile + count : next_plane;
        sum_step(a, first + tile, count, next, window + tile, add, sums, temporary);
      }
    }
  }
}

/// Appends the tasks that complete what a tile reads.
template <class T>
void TiledWeightGradient<T>::collect(const ConvReady& ready, index_t tile, bool with_dy,
                                     std::vector<TaskId>& after) const {
  const Ready &x = sides_.high_res(ready.x, ready.dy), &dy = sides_.low_res(ready.x, ready.dy);
  const index_t n = grid_.sample(tile), z = grid_.begin(tile).z;
  if (turned_) {
    x.collect(n, 0, problem_.in_channels, after);
    if (with_dy) dy.collect(n, 0, problem_.out_channels, after);
    return;
  }
  const index_t end = z + grid_.tiling.valid.z;
  grid_.collect_source(true, x, n, 0, problem_.in_channels, z, end, after);
  if (with_dy) grid_.collect_target(true, dy, n, 0, problem_.out_channels, z, end, after);
}

/// Appends the sums of all parts. Then tasks for ranges of frequency blocks add these sums in the order of the parts.
template <class T>
std::vector<TaskId> TiledWeightGradient<T>::append_parts(TaskGraph& graph, const ConvReady& ready,
                                                         const std::shared_ptr<const BackwardArguments>& a,
                                                         const std::shared_ptr<Run>& run, TaskId memory) const {
  std::vector<TaskId> sums;
  for (index_t part = 0; part < parts_; ++part) {
    std::vector<TaskId> after{memory};
    index_t tiles = 0;
    for (index_t i = first_column(part); i < first_column(part + 1); ++i) {
      const TileColumn& column = this->column(i);
      // All tiles of a layer read the same planes of both tensors.
      const index_t last = (column.first + column.count - 1) / grid_.layer() + column.planes - 1;
      for (index_t layer = column.first / grid_.layer(); layer <= last; ++layer) {
        collect(ready, sample(i) * grid_.per_sample() + layer * grid_.layer(), true, after);
      }
      tiles += column.count * column.planes;
    }
    sums.push_back(graph.add(
        {.name = "weight gradient sums",
         .cost = in_.flops() * static_cast<double>(tiles),
         .scratch_bytes = part_scratch_bytes()},
        [this, a, run, part] { sum_part(*a, part, run->total() + part * weights_.elements()); }, after));
  }
  return ops::append_ranges(graph, "weight gradient parts", in_.blocks(), static_cast<double>(weights_.elements()),
                            sums, [this, run](index_t begin, index_t end) {
                              const index_t first = weights_.block_offset(begin), last = weights_.block_offset(end);
                              T* total = run->total();
                              for (index_t part = 1; part < parts_; ++part) {
                                const T* other = total + part * weights_.elements();
                                for (index_t i = first; i < last; ++i) total[i] += other[i];
                              }
                            });
}

template <class T>
std::vector<TaskId> TiledWeightGradient<T>::append_transforms(TaskGraph& graph, const ConvReady& ready,
                                                              const std::shared_ptr<const BackwardArguments>& a,
                                                              const std::shared_ptr<Run>& run, index_t chunk,
                                                              const std::vector<TaskId>& before) const {
  const index_t first = chunk * run->chunk, count = run->tiles_of(chunk);
  std::vector<TaskId> tasks;
  if (run->x_hat && run->dy_hat) return before;
  for (index_t place = 0; place < count; ++place) {
    const index_t tile = first + place;
    std::vector<TaskId> after = before;
    const index_t together = small_channels_ && place % lanes == 0 ? std::min(lanes, count - place) : 1;
    for (index_t i = 0; i < together; ++i) collect(ready, tile + i, i == 0, after);
    tasks.push_back(graph.add(
        {.name = "tile spectra", .cost = 2 * in_.flops(), .scratch_bytes = tile_scratch_bytes()},
        [this, a, run, tile, place, chunk] {
          Scratch scratch(a->memory, tile_scratch_bytes());
          T* temporary = scratch.take<T>(tile_scratch_bytes());
          if (!run->x_hat) transform_x(*a, tile, place, run->x(chunk), temporary);
          if (!run->dy_hat) transform_dy(*a, tile, place, run->dy(chunk), temporary);
        },
        after));
  }
  return tasks;
}

/// Appends products for ranges of frequency blocks. Each task follows the task of the same range in the chunk before.
template <class T>
std::vector<TaskId> TiledWeightGradient<T>::append_products(TaskGraph& graph,
                                                            const std::shared_ptr<const BackwardArguments>& a,
                                                            const std::shared_ptr<Run>& run, index_t chunk,
                                                            const std::vector<TaskId>& transforms,
                                                            const std::vector<TaskId>& previous) const {
  const index_t blocks = in_.blocks(), pieces = std::min<index_t>(blocks, 32);
  std::vector<TaskId> tasks;
  for (index_t piece = 0; piece < pieces; ++piece) {
    std::vector<TaskId> after = transforms;
    if (!previous.empty()) after.push_back(previous[static_cast<std::size_t>(piece)]);
    const index_t begin = blocks * piece / pieces, end = blocks * (piece + 1) / pieces;
    tasks.push_back(graph.add(
        {.name = "weight gradient products", .cost = in_.flops()},
        [this, a, run, begin, end, chunk] { sum_products(*run, begin, end, chunk, *a, run->total()); }, after));
  }
  return tasks;
}

template <class T>
std::vector<TaskId> TiledWeightGradient<T>::append_inverses(TaskGraph& graph,
                                                            const std::shared_ptr<const BackwardArguments>& a,
                                                            const std::shared_ptr<Run>& run,
                                                            const std::vector<TaskId>& products) const {
  constexpr index_t together = 4;  // channels whose planes fit into the L2 together
  const index_t groups = (weights_.channels() + together - 1) / together;
  const double cost = kernel_.flops() * static_cast<double>(together);
  const auto body = [=, this](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) {
      const index_t first = i / weights_.columns() * together;
      invert(*a, first, std::min(together, weights_.channels() - first), i % weights_.columns(), run->total());
    }
  };
  return ops::append_ranges(graph, "weight gradient", groups * weights_.columns(), cost, products, body,
                            inverse_scratch_bytes(std::min(together, weights_.channels())));
}

/// Appends the transforms and products of all chunks. Two chunks alternate: one is transformed while the other is
/// multiplied.
template <class T>
std::vector<TaskId> TiledWeightGradient<T>::append_chunks(TaskGraph& graph, const ConvReady& ready,
                                                          const std::shared_ptr<const BackwardArguments>& a,
                                                          const std::shared_ptr<Run>& run,
                                                          const std::vector<TaskId>& before) const {
  std::vector<TaskId> last, before_last;  // products of the last chunk, and of the chunk before it
  for (index_t chunk = 0; chunk < run->chunks(); ++chunk) {
    std::vector<TaskId> free = before_last;
    free.insert(free.end(), before.begin(), before.end());
    const auto transforms = append_transforms(graph, ready, a, run, chunk, free);
    before_last = std::exchange(last, append_products(graph, a, run, chunk, transforms, last));
  }
  return last;
}

template <class T>
Ready TiledWeightGradient<T>::append(TaskGraph& graph, const ConvReady& ready,
                                     const std::shared_ptr<const BackwardArguments>& a,
                                     const SharedSpectra& shared) const {
  const auto run = std::make_shared<Run>();
  run->tiles = grid_.tiles();
  run->chunk = shared.x && shared.dy ? run->tiles : chunk_;
  const index_t buffers = parts_ > 0 ? 0 : std::min<index_t>(2, run->chunks());
  const auto places = [&](bool elsewhere) { return static_cast<std::size_t>(elsewhere ? 0 : buffers); };
  run->own_x = make_store(a->memory, places(shared.x), bytes_of(x_.elements()));
  run->own_dy = make_store(a->memory, places(shared.dy != nullptr), bytes_of(dy_.elements()));
  run->sums = shared.sums ? shared.sums : make_store(a->memory, 1, sums_bytes());
  run->x_hat = shared.x;
  run->dy_hat = shared.dy;
  std::vector<RunBuffers> spectra;
  for (const auto& store : {run->own_x, run->own_dy}) spectra.emplace_back(graph, a->workspace, store);
  const RunBuffers total = shared.sums ? *shared.sums_buffers : RunBuffers(graph, a->workspace, run->sums);
  std::vector<TaskId> before = shared.ready;
  std::vector<TaskId> first = before;
  if (first.empty()) ready.dy.collect(0, 0, 1, 0, 1, first);
  const auto wait_for = [&](const RunBuffers& one) {
    first.insert(first.end(), one.ready().begin(), one.ready().end());
  };
  for (const RunBuffers& one : spectra) wait_for(one);
  wait_for(total);
  if (shared.dy_buffers) spectra.push_back(*shared.dy_buffers);
  before.push_back(graph.add(
      {.name = "take spectra"}, [run, buffers] { run->take(buffers); }, first));
  const auto sums =
      parts_ > 0 ? append_parts(graph, ready, a, run, before.back()) : append_chunks(graph, ready, a, run, before);
  auto done = append_inverses(graph, a, run, sums);
  for (const RunBuffers& one : spectra) one.end(graph, "free spectra", sums);
  total.end(graph, "free weight sums", done);
  return Ready::all_of(std::move(done));
}

template class TiledWeightGradient<float>;
template class TiledWeightGradient<double>;

}  // namespace convolume::conv
