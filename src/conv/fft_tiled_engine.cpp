// Convolution by tiles (overlap-save) in the frequency domain, with channels in the lanes: transforms are vertical, and
// the sum over channels is a product of complex matrices per frequency (Zlateski, Jia, Li, Durand 2018). A group of
// tiles goes through transform, product and inverse at once, so that its spectra stay in the caches; sums over tiles
// (the weights' gradient) take all tiles through one stage after the other, a chunk at a time.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "conv/bias_gradient.hpp"
#include "conv/engine.hpp"
#include "conv/prepared.hpp"
#include "conv/tile_ends.hpp"
#include "conv/tiled_layout.hpp"
#include "conv/transform_meter.hpp"
#include "convolume/cpu.hpp"
#include "core/checked.hpp"

namespace convolume::conv {
namespace {

using plan::Direction;

/// One direction that yields voxels: y, or dx. `terms` channels of the source make `results` of the target.
template <class T>
struct VoxelDirection {
  VoxelDirection(const ConvProblem& p, Direction direction)
      : grid{plan::choose_tiled_way(p, direction, machine_model()), p.batch},
        terms(direction == Direction::forward ? p.in_channels : p.out_channels),
        results(direction == Direction::forward ? p.out_channels : p.in_channels),
        conjugate(direction == Direction::forward),
        in(grid.way.tile, grid.way.tile),
        kernel(grid.way.tile, p.kernel),
        out(grid.way.tile, grid.way.valid),
        weights(grid.way.tile, terms, results),
        group(std::min(grid.way.group, grid.per_sample())) {
    const Extent3 margin = p.kernel - Extent3::all(1);
    if (conjugate) {
      offset = Extent3{0, 0, 0} - p.pad_before;
    } else {
      // Voxel i of dx takes dy from i + pad - margin on; the convolution is not conjugated, and its valid part stands
      // behind the margin unless the source is shifted by that.
      offset = p.pad_before - margin;
      shift = margin;
    }
    const bool few = terms < fft::tile_lanes<T> / 2 && conjugate && p.x_layout == Layout::plain;
    if (few) group = std::min(round_up(group, fft::tile_lanes<T>), round_up(grid.per_sample(), fft::tile_lanes<T>));
    source = TileSpectra<T>(grid.way.tile, terms, group, few);
    target = TileSpectra<T>(grid.way.tile, results, group, false);
  }

  TileGrid grid;
  index_t terms, results;
  bool conjugate;
  fft::TilePlan<T> in, kernel, out;
  WeightSpectra<T> weights;
  index_t group;
  TileSpectra<T> source, target;
  Extent3 offset{}, shift{0, 0, 0};  ///< of a tile's window in the source, from its first voxel of the domain

  std::size_t scratch_bytes() const {
    return std::max({in.scratch_bytes(), kernel.scratch_bytes(), out.scratch_bytes()});
  }
};

/// The direction that sums over tiles: dw. Rows are input channels, lanes output channels.
template <class T>
struct WeightDirection {
  explicit WeightDirection(const ConvProblem& p)
      : grid{plan::choose_tiled_way(p, Direction::backward_weights, machine_model()), p.batch},
        in(grid.way.tile, grid.way.tile),
        gradient(grid.way.tile, grid.way.valid),
        kernel(grid.way.tile, p.kernel),
        weights(grid.way.tile, p.in_channels, p.out_channels),
        few(p.in_channels < fft::tile_lanes<T> / 2 && p.x_layout == Layout::plain) {
    constexpr index_t lanes = fft::tile_lanes<T>, chunk_bytes = 32 << 20;
    const auto bytes = [&](index_t tiles) {
      return static_cast<index_t>(sizeof(T)) * (TileSpectra<T>(grid.way.tile, p.in_channels, tiles, few).elements() +
                                                TileSpectra<T>(grid.way.tile, p.out_channels, tiles, false).elements());
    };
    chunk = std::clamp<index_t>(chunk_bytes * lanes / bytes(lanes), 1, grid.tiles());
    if (few) chunk = round_up(chunk, lanes);
    x = TileSpectra<T>(grid.way.tile, p.in_channels, chunk, few);
    dy = TileSpectra<T>(grid.way.tile, p.out_channels, chunk, false);
  }

  TileGrid grid;
  fft::TilePlan<T> in, gradient, kernel;
  WeightSpectra<T> weights;
  bool few;
  index_t chunk = 1;
  TileSpectra<T> x, dy;

  index_t chunks() const { return (grid.tiles() + chunk - 1) / chunk; }
  std::size_t scratch_bytes() const {
    return std::max({in.scratch_bytes(), gradient.scratch_bytes(), kernel.scratch_bytes()});
  }
};

/// Buffers of one run of a graph.
struct RunBuffers {
  BufferStore weights, spectra;
};

template <class T>
class FftTiledEngine final : public ConvEngine {
 public:
  FftTiledEngine(const ConvProblem& p, const ConvOptions& options)
      : problem_(p), forward_(p, Direction::forward), data_(p, Direction::backward_data), weights_(p) {
    const auto bytes = static_cast<std::size_t>(forward_.weights.elements()) * sizeof(T);
    keep_weights_ = options.cache_spectra && (options.memory_budget == 0 || bytes <= options.memory_budget);
  }

  double seconds() const { return forward_.grid.way.seconds + data_.grid.way.seconds + weights_.grid.way.seconds; }

  Ready append_prepare(TaskGraph& graph, const Ready& ready,
                       std::shared_ptr<const PrepareArguments> arguments) const override;
  Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                       std::shared_ptr<const ForwardArguments> arguments) const override;
  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const BackwardArguments> arguments) const override;

  void init_weights(PreparedWeights::Impl& w) const override {
    w.geometry = fmt::format("{} forward {} of {}, {}", key(), to_string(forward_.grid.way.tile),
                             to_string(problem_.w_shape()), keep_weights_ ? "spectra" : "packed");
    w.spectra.init(w.memory, keep_weights_ ? 1 : 0, bytes_of(forward_.weights.elements()));
    w.packed.init(w.memory, 1, bytes_of(problem_.w_shape().elements()));
  }
  // Tiles of all directions differ, and a group's spectra never leave the caches: nothing is kept between directions.
  void init_input_spectra(Spectra::Impl& s) const override { s.geometry = key() + " x: none kept"; }
  void init_gradient_spectra(Spectra::Impl& s) const override { s.geometry = key() + " dy: none kept"; }

  std::string numerics() const override {
    return fmt::format("fft_tiled forward {}, {}; backward data {}, {}; backward weights {} in chunks of {}, {}",
                       forward_.in.describe(), forward_.out.describe(), data_.in.describe(), data_.out.describe(),
                       weights_.in.describe(), weights_.chunk, weights_.kernel.describe());
  }
  std::vector<CacheCost> caches() const override;
  TransformCounts transforms() const noexcept override { return meter_.counts(); }

 private:
  static constexpr index_t lanes = fft::tile_lanes<T>;
  static std::size_t bytes_of(index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }
  std::string key() const { return fmt::format("fft_tiled {} {}", name_of(problem_.type), simd_target()); }

  View<const T> packed(const PreparedWeights::Impl& w) const {
    return {static_cast<const T*>(w.packed.get(0)), problem_.w_shape()};
  }
  void weight_spectra(const VoxelDirection<T>& direction, const View<const T>& w, index_t term, index_t column,
                      std::pmr::memory_resource* memory, T* spectra) const;
  std::vector<TaskId> append_weight_spectra(TaskGraph& graph, const VoxelDirection<T>& direction,
                                            std::function<View<const T>()> weights, std::function<T*()> spectra,
                                            std::pmr::memory_resource* memory, const std::vector<TaskId>& after) const;

  /// What a group of tiles reads and writes.
  struct GroupEnds {
    View<const T> source;
    View<T> target;
    const T* bias = nullptr;
    const Activation* gradient = nullptr;  ///< multiplies the source by its gradient at y
    View<const T> y{};
    Activation activation{};
    bool add = false;
  };
  void run_group(const VoxelDirection<T>& direction, index_t first, index_t count, const GroupEnds& ends,
                 const T* weights, std::pmr::memory_resource* memory) const;
  void transform_group(const VoxelDirection<T>& direction, index_t first, index_t count, const GroupEnds& ends,
                       T* spectra, T* scratch) const;
  void transform_few(const fft::TilePlan<T>& plan, const TileGrid& grid, const Extent3& offset, index_t first,
                     index_t count, const View<const T>& x, const TileSpectra<T>& layout, T* spectra, T* scratch) const;
  Layout source_layout(const VoxelDirection<T>& d) const { return d.conjugate ? problem_.x_layout : problem_.y_layout; }
  Layout target_layout(const VoxelDirection<T>& d) const { return d.conjugate ? problem_.y_layout : problem_.x_layout; }

  template <class Body>
  Ready append_groups(TaskGraph& graph, const VoxelDirection<T>& direction, const Ready& source, const Ready& target,
                      const std::vector<TaskId>& after, const Body& body) const;
  Ready append_data(TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a) const;
  Ready append_weights(TaskGraph& graph, const ConvReady& ready,
                       const std::shared_ptr<const BackwardArguments>& a) const;
  void transform_pair(const BackwardArguments& a, index_t tile, index_t place, T* x, T* dy) const;
  void sum_products(index_t first_block, index_t last_block, index_t count, const T* x, const T* dy, bool add,
                    T* sums) const;
  void weight_gradient(const BackwardArguments& a, index_t channel, index_t column, T* sums) const;

  ConvProblem problem_;
  VoxelDirection<T> forward_, data_;
  WeightDirection<T> weights_;
  bool keep_weights_ = true;
  mutable TransformMeter meter_;
};

/// The spectra of the weights that relate one source channel to one block of lanes.
template <class T>
void FftTiledEngine<T>::weight_spectra(const VoxelDirection<T>& d, const View<const T>& w, index_t term, index_t column,
                                       std::pmr::memory_resource* memory, T* spectra) const {
  fft::PlainTile<const T> tile{.lanes = {}, .plane_stride = w.stride[2], .row_stride = w.stride[3], .boxes = {}};
  for (index_t lane = 0; lane < std::min(lanes, d.results - column * lanes); ++lane) {
    const auto i = static_cast<std::size_t>(lane);
    const index_t result = column * lanes + lane;
    tile.lanes[i] = d.conjugate ? w.channel(result, term) : w.channel(term, result);
    tile.boxes[i] = {{0, 0, 0}, problem_.kernel};
  }
  Scratch scratch(memory, d.kernel.scratch_bytes());
  T* temporary = scratch.take<T>(d.kernel.scratch_bytes());
  meter_.measure(Counted::weights, [&] {
    d.kernel.forward(tile, spectra + d.weights.offset(term, column), d.weights.strides(), temporary);
  });
}

/// Tasks that fill weight spectra from packed weights; the first takes the memory.
template <class T>
std::vector<TaskId> FftTiledEngine<T>::append_weight_spectra(TaskGraph& graph, const VoxelDirection<T>& d,
                                                             std::function<View<const T>()> weights,
                                                             std::function<T*()> spectra,
                                                             std::pmr::memory_resource* memory,
                                                             const std::vector<TaskId>& after) const {
  const TaskId allocation = graph.add(
      {.name = "take weight spectra"}, [spectra] { spectra(); }, after);
  // Enough pieces for many workers, few enough to be cheap.
  const index_t pieces = d.terms * d.weights.columns(), per_task = std::max<index_t>(1, pieces / 64);
  std::vector<TaskId> tasks;
  for (index_t first = 0; first < pieces; first += per_task) {
    const index_t last = std::min(pieces, first + per_task);
    tasks.push_back(graph.add(
        {.name = "weight spectra", .cost = d.kernel.flops() * static_cast<double>(last - first)},
        [this, &d, weights, spectra, memory, first, last] {
          for (index_t i = first; i < last; ++i) {
            weight_spectra(d, weights(), i / d.weights.columns(), i % d.weights.columns(), memory, spectra());
          }
        },
        std::array{allocation}));
  }
  return tasks;
}

template <class T>
Ready FftTiledEngine<T>::append_prepare(TaskGraph& graph, const Ready& ready,
                                        std::shared_ptr<const PrepareArguments> a) const {
  std::vector<TaskId> after;
  ready.collect(0, 0, problem_.w_shape().n, after);
  const TaskId pack = graph.add(
      {.name = "pack weights"},
      [this, a] {
        a->prepared->version.fetch_add(1, std::memory_order_relaxed);
        const auto w = a->w.as<T>();
        T* to = static_cast<T*>(a->prepared->packed.acquire(0));
        const Extent3& k = problem_.kernel;
        for (index_t o = 0; o < w.shape.n; ++o) {
          for (index_t c = 0; c < w.shape.c; ++c) {
            for (index_t z = 0; z < k.z; ++z) {
              for (index_t y = 0; y < k.y; ++y) to = std::copy_n(&w(o, c, z, y, 0), k.x, to);
            }
          }
        }
      },
      after);
  if (!keep_weights_) return Ready::all_of({pack});
  auto tasks = append_weight_spectra(
      graph, forward_, [this, a] { return packed(*a->prepared); },
      [a] { return static_cast<T*>(a->prepared->spectra.acquire(0)); }, a->prepared->memory, {pack});
  return Ready::all_of(std::move(tasks));
}

/// Tiles in lanes: one channel at a time, `lanes` tiles together.
template <class T>
void FftTiledEngine<T>::transform_few(const fft::TilePlan<T>& plan, const TileGrid& grid, const Extent3& offset,
                                      index_t first, index_t count, const View<const T>& x,
                                      const TileSpectra<T>& layout, T* spectra, T* scratch) const {
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
      meter_.measure(Counted::input, [&] {
        plan.forward(tiles, spectra + layout.offset(begin / lanes, c), layout.strides(), scratch);
      });
    }
  }
}

template <class T>
void FftTiledEngine<T>::transform_group(const VoxelDirection<T>& d, index_t first, index_t count, const GroupEnds& ends,
                                        T* spectra, T* scratch) const {
  if (d.source.tiles_in_lanes()) {
    transform_few(d.in, d.grid, d.offset, first, count, ends.source, d.source, spectra, scratch);
    return;
  }
  for (index_t i = 0; i < count; ++i) {
    const index_t n = d.grid.sample(first + i);
    for (index_t c = 0; c < d.terms; c += lanes) {
      TileSource<T> source{.block = block_of(ends.source, source_layout(d), n, c),
                           .origin = d.grid.begin(first + i) + d.offset,
                           .window = d.grid.way.tile,
                           .shift = d.shift,
                           .activation = ends.gradient};
      if (ends.gradient != nullptr) source.y = block_of(ends.y, source_layout(d), n, c).data;
      meter_.measure(d.conjugate ? Counted::input : Counted::gradient, [&] {
        transform_tile(d.in, source, spectra + d.source.offset(i, c), d.source.strides(), scratch);
      });
    }
  }
}

/// Tiles [first, first + count) of one sample: transform, multiply, invert.
template <class T>
void FftTiledEngine<T>::run_group(const VoxelDirection<T>& d, index_t first, index_t count, const GroupEnds& ends,
                                  const T* weights, std::pmr::memory_resource* memory) const {
  Scratch scratch(memory, bytes_of(d.source.elements() + d.target.elements()) + d.scratch_bytes() + 192);
  T* in = scratch.take<T>(bytes_of(d.source.elements()));
  T* out = scratch.take<T>(bytes_of(d.target.elements()));
  T* temporary = scratch.take<T>(d.scratch_bytes());
  transform_group(d, first, count, ends, in, temporary);
  for (index_t block = 0; block < d.in.blocks(); ++block) {
    multiply(ComplexProduct<T>{.a = in + d.source.block_offset(block),
                               .a_row = d.source.tile_step(),
                               .a_term = d.source.channel_step(),
                               .a_im = d.source.im(),
                               .a_frequency = d.source.frequency_step(),
                               .b = weights + d.weights.block_offset(block),
                               .b_term = d.weights.channel_step(),
                               .b_im = lanes,
                               .b_frequency = d.weights.frequency_step(),
                               .b_column = d.weights.column_step(),
                               .c = out + d.target.block_offset(block),
                               .c_row = d.target.tile_step(),
                               .c_im = d.target.im(),
                               .c_frequency = d.target.frequency_step(),
                               .c_column = lanes,
                               .rows = count,
                               .terms = d.terms,
                               .frequencies = d.grid.way.tile.z,
                               .columns = d.weights.columns(),
                               .conjugate_b = d.conjugate});
  }
  for (index_t i = 0; i < count; ++i) {
    for (index_t o = 0; o < d.results; o += lanes) {
      const TileTarget<T> target{.block = block_of(ends.target, target_layout(d), d.grid.sample(first + i), o),
                                 .origin = d.grid.begin(first + i),
                                 .window = d.grid.way.valid,
                                 .scale = T{1} / static_cast<T>(d.grid.way.tile.volume()),
                                 .bias = ends.bias != nullptr ? ends.bias + o : nullptr,
                                 .activation = ends.activation,
                                 .add = ends.add};
      meter_.measure(Counted::inverse,
                     [&] { invert_tile(d.out, out + d.target.offset(i, o), d.target.strides(), target, temporary); });
    }
  }
}

/// body(first, count) for all groups of tiles; ready where all tiles of a layer of them are.
template <class T>
template <class Body>
Ready FftTiledEngine<T>::append_groups(TaskGraph& graph, const VoxelDirection<T>& d, const Ready& source,
                                       const Ready& target, const std::vector<TaskId>& weights,
                                       const Body& body) const {
  const plan::TiledWay& way = d.grid.way;
  const index_t per_sample = d.grid.per_sample(), layer = way.count.y * way.count.x;
  const double tile_cost = d.in.flops() * static_cast<double>(d.terms + d.results) / static_cast<double>(lanes) +
                           8.0 * static_cast<double>(d.in.frequencies() * d.terms * d.results);
  std::vector<TaskId> done;
  for (index_t n = 0; n < d.grid.batch; ++n) {
    std::vector<std::vector<TaskId>> of_layer(static_cast<std::size_t>(way.count.z));
    for (index_t tile = 0; tile < per_sample; tile += d.group) {
      const index_t count = std::min(d.group, per_sample - tile), last = tile + count - 1;
      std::vector<TaskId> after = weights;
      const index_t z0 = tile / layer * way.valid.z, z1 = last / layer * way.valid.z + way.tile.z;
      source.collect(n, 0, d.terms, std::max<index_t>(0, z0 + d.offset.z), std::max<index_t>(1, z1 + d.offset.z),
                     after);
      target.collect(n, 0, d.results, z0, z1, after);
      const index_t first = n * per_sample + tile;
      const TaskId task = graph.add(
          {.name = d.conjugate ? "tiles forward" : "tiles backward", .cost = tile_cost * static_cast<double>(count)},
          [body, first, count] { body(first, count); }, after);
      for (index_t z = tile / layer; z <= last / layer; ++z) of_layer[static_cast<std::size_t>(z)].push_back(task);
    }
    for (const auto& tasks : of_layer)
      done.push_back(graph.add(
          {.name = "layer of tiles"}, [] {}, tasks));
  }
  return Ready(std::move(done), 1, way.count.z, d.results, way.valid.z);
}

template <class T>
Ready FftTiledEngine<T>::append_forward(TaskGraph& graph, const ConvReady& ready,
                                        std::shared_ptr<const ForwardArguments> a) const {
  std::vector<TaskId> weights;
  ready.w.collect(0, 0, problem_.out_channels, weights);
  auto own = std::make_shared<RunBuffers>();
  own->weights.init(a->memory, 1, bytes_of(forward_.weights.elements()));
  if (!keep_weights_) {
    weights = append_weight_spectra(
        graph, forward_, [this, a] { return packed(*a->w); },
        [own] { return static_cast<T*>(own->weights.acquire(0)); }, a->memory, weights);
  }
  const auto body = [this, a, own](index_t first, index_t count) {
    const BufferStore& spectra = keep_weights_ ? a->w->spectra : own->weights;
    const GroupEnds ends{.source = a->x.template as<T>(),
                         .target = a->y.template as<T>(),
                         .bias = problem_.epilogue.bias ? a->bias.template as<T>().data : nullptr,
                         .activation = problem_.epilogue.activation};
    run_group(forward_, first, count, ends, static_cast<const T*>(spectra.get(0)), a->memory);
    if (a->x_hat != nullptr && first == 0) a->x_hat->version.fetch_add(1, std::memory_order_relaxed);
  };
  Ready done = append_groups(graph, forward_, ready.x, {}, weights, body);
  if (!keep_weights_) {
    graph.add(
        {.name = "release weight spectra", .task_class = TaskClass::update}, [own] { own->weights.release(); },
        done.tasks());
  }
  return done;
}

template <class T>
Ready FftTiledEngine<T>::append_data(TaskGraph& graph, const ConvReady& ready,
                                     const std::shared_ptr<const BackwardArguments>& a) const {
  std::vector<TaskId> after;
  ready.w.collect(0, 0, problem_.out_channels, after);
  auto own = std::make_shared<RunBuffers>();
  own->weights.init(a->memory, 1, bytes_of(data_.weights.elements()));
  const auto weights = append_weight_spectra(
      graph, data_, [this, a] { return packed(*a->w); }, [own] { return static_cast<T*>(own->weights.acquire(0)); },
      a->memory, after);
  const auto body = [this, a, own](index_t first, index_t count) {
    GroupEnds ends{.source = a->dy.template as<T>(), .target = a->dx.template as<T>(), .add = a->add_dx};
    if (problem_.epilogue.activation.kind != Activation::Kind::none) {
      ends.gradient = &problem_.epilogue.activation;
      ends.y = a->y.template as<T>();
    }
    run_group(data_, first, count, ends, static_cast<const T*>(own->weights.get(0)), a->memory);
  };
  Ready done = append_groups(graph, data_, ready.dy, ready.dx, weights, body);
  graph.add(
      {.name = "release weight spectra", .task_class = TaskClass::update}, [own] { own->weights.release(); },
      done.tasks());
  return done;
}

/// Both sides of one tile: x, and dy of its valid part.
template <class T>
void FftTiledEngine<T>::transform_pair(const BackwardArguments& a, index_t tile, index_t place, T* x, T* dy) const {
  const WeightDirection<T>& d = weights_;
  Scratch scratch(a.memory, d.scratch_bytes());
  T* temporary = scratch.take<T>(d.scratch_bytes());
  const Extent3 begin = d.grid.begin(tile);
  const index_t n = d.grid.sample(tile);
  if (d.few) {
    if (place % lanes == 0) {
      const index_t count = std::min(lanes, d.grid.tiles() - tile);
      transform_few(d.in, d.grid, Extent3{0, 0, 0} - problem_.pad_before, tile, count, a.x.as<T>(), d.x,
                    x + d.x.offset(place / lanes, 0), temporary);
    }
  } else {
    for (index_t c = 0; c < problem_.in_channels; c += lanes) {
      const TileSource<T> source{.block = block_of(a.x.as<T>(), problem_.x_layout, n, c),
                                 .origin = begin - problem_.pad_before,
                                 .window = d.grid.way.tile};
      meter_.measure(Counted::input,
                     [&] { transform_tile(d.in, source, x + d.x.offset(place, c), d.x.strides(), temporary); });
    }
  }
  const bool activated = problem_.epilogue.activation.kind != Activation::Kind::none;
  for (index_t o = 0; o < problem_.out_channels; o += lanes) {
    TileSource<T> source{.block = block_of(a.dy.as<T>(), problem_.y_layout, n, o),
                         .origin = begin,
                         .window = d.grid.way.valid,
                         .activation = activated ? &problem_.epilogue.activation : nullptr};
    if (activated) source.y = block_of(a.y.as<T>(), problem_.y_layout, n, o).data;
    meter_.measure(Counted::gradient,
                   [&] { transform_tile(d.gradient, source, dy + d.dy.offset(place, o), d.dy.strides(), temporary); });
  }
}

/// Adds a chunk of tiles, in their order, to the sums of some frequency blocks.
template <class T>
void FftTiledEngine<T>::sum_products(index_t first_block, index_t last_block, index_t count, const T* x, const T* dy,
                                     bool add, T* sums) const {
  const WeightDirection<T>& d = weights_;
  const index_t together = d.few ? lanes : count;
  for (index_t block = first_block; block < last_block; ++block) {
    for (index_t first = 0; first < count; first += together) {
      multiply(ComplexProduct<T>{.a = x + d.x.block_offset(block) + (d.few ? d.x.offset(first / lanes, 0) : 0),
                                 .a_row = d.x.channel_step(),
                                 .a_term = d.x.tile_step(),
                                 .a_im = d.x.im(),
                                 .a_frequency = d.x.frequency_step(),
                                 .b = dy + d.dy.block_offset(block) + d.dy.offset(first, 0),
                                 .b_term = d.dy.tile_step(),
                                 .b_im = d.dy.im(),
                                 .b_frequency = d.dy.frequency_step(),
                                 .b_column = lanes,
                                 .c = sums + d.weights.block_offset(block),
                                 .c_row = d.weights.channel_step(),
                                 .c_im = lanes,
                                 .c_frequency = d.weights.frequency_step(),
                                 .c_column = d.weights.column_step(),
                                 .rows = problem_.in_channels,
                                 .terms = std::min(together, count - first),
                                 .frequencies = d.grid.way.tile.z,
                                 .columns = d.weights.columns(),
                                 .conjugate_b = true,
                                 .add = add || first > 0});
    }
  }
}

template <class T>
void FftTiledEngine<T>::weight_gradient(const BackwardArguments& a, index_t channel, index_t column, T* sums) const {
  const WeightDirection<T>& d = weights_;
  const auto dw = a.dw.as<T>();
  fft::PlainTile<T> tile{.lanes = {}, .plane_stride = dw.stride[2], .row_stride = dw.stride[3], .boxes = {}};
  for (index_t lane = 0; lane < std::min(lanes, problem_.out_channels - column * lanes); ++lane) {
    const auto i = static_cast<std::size_t>(lane);
    tile.lanes[i] = dw.channel(column * lanes + lane, channel);
    tile.boxes[i] = {{0, 0, 0}, problem_.kernel};
  }
  Scratch scratch(a.memory, d.kernel.scratch_bytes());
  T* temporary = scratch.take<T>(d.kernel.scratch_bytes());
  const fft::TileStore<T> store{.scale = T{1} / static_cast<T>(d.grid.way.tile.volume()), .add = a.add_dw};
  meter_.measure(Counted::inverse, [&] {
    d.kernel.inverse(sums + d.weights.offset(channel, column), d.weights.strides(), tile, store, temporary);
  });
}

template <class T>
Ready FftTiledEngine<T>::append_weights(TaskGraph& graph, const ConvReady& ready,
                                        const std::shared_ptr<const BackwardArguments>& a) const {
  const WeightDirection<T>& d = weights_;
  // Two chunks in turn: one is transformed while the other is multiplied.
  auto own = std::make_shared<RunBuffers>();
  const std::size_t x_bytes = bytes_of(d.x.elements());
  own->spectra.init(a->memory, 2, x_bytes + bytes_of(d.dy.elements()));
  own->weights.init(a->memory, 1, bytes_of(d.weights.elements()));
  const auto x_of = [own](index_t chunk) {
    return static_cast<T*>(own->spectra.acquire(static_cast<std::size_t>(chunk % 2)));
  };
  const auto sums = [own] { return static_cast<T*>(own->weights.acquire(0)); };
  const TaskId memory = graph.add({.name = "take spectra"}, [x_of, sums, chunks = d.chunks()] {
    for (index_t chunk = 0; chunk < std::min<index_t>(2, chunks); ++chunk) x_of(chunk);
    sums();
  });
  const index_t blocks = d.in.blocks(), pieces = std::min<index_t>(blocks, 32), x_elements = d.x.elements();
  std::array<std::vector<TaskId>, 2> products;  // of the last two chunks
  for (index_t chunk = 0; chunk < d.chunks(); ++chunk) {
    const index_t first = chunk * d.chunk, count = std::min(d.chunk, d.grid.tiles() - first);
    std::vector<TaskId> transforms;
    for (index_t place = 0; place < count; ++place) {
      const index_t tile = first + place, n = d.grid.sample(tile);
      std::vector<TaskId> after = products[static_cast<std::size_t>(chunk % 2)];
      after.push_back(memory);
      // Tiles in lanes are transformed together with the first of them.
      const index_t together = d.few && place % lanes == 0 ? std::min(lanes, count - place) : 1;
      for (index_t i = 0; i < together; ++i) {
        const index_t z = d.grid.begin(tile + i).z, x_z = z - problem_.pad_before.z;
        ready.x.collect(d.grid.sample(tile + i), 0, problem_.in_channels, std::max<index_t>(0, x_z),
                        std::max<index_t>(1, x_z + d.grid.way.tile.z), after);
      }
      const index_t z = d.grid.begin(tile).z;
      ready.dy.collect(n, 0, problem_.out_channels, z, z + d.grid.way.valid.z, after);
      transforms.push_back(graph.add(
          {.name = "tile spectra", .cost = 2 * d.in.flops()},
          [this, a, x_of, tile, place, chunk, x_elements] {
            transform_pair(*a, tile, place, x_of(chunk), x_of(chunk) + x_elements);
          },
          after));
    }
    // Sums of a frequency block follow each other.
    std::vector<TaskId> previous =
        chunk > 0 ? products[static_cast<std::size_t>((chunk - 1) % 2)] : std::vector<TaskId>();
    std::vector<TaskId>& tasks = products[static_cast<std::size_t>(chunk % 2)];
    tasks.clear();
    for (index_t piece = 0; piece < pieces; ++piece) {
      std::vector<TaskId> after = transforms;
      if (!previous.empty()) after.push_back(previous[static_cast<std::size_t>(piece)]);
      const index_t begin = blocks * piece / pieces, end = blocks * (piece + 1) / pieces;
      tasks.push_back(graph.add(
          {.name = "weight gradient products", .cost = d.in.flops()},
          [this, x_of, sums, begin, end, count, chunk, x_elements] {
            sum_products(begin, end, count, x_of(chunk), x_of(chunk) + x_elements, chunk > 0, sums());
          },
          after));
    }
  }
  const auto& last = products[static_cast<std::size_t>((d.chunks() - 1) % 2)];
  std::vector<TaskId> done;
  const index_t kernels = problem_.in_channels * d.weights.columns(), per_task = std::max<index_t>(1, kernels / 64);
  for (index_t begin = 0; begin < kernels; begin += per_task) {
    const index_t end = std::min(kernels, begin + per_task);
    done.push_back(graph.add(
        {.name = "weight gradient", .cost = d.kernel.flops()},
        [this, a, sums, begin, end] {
          for (index_t i = begin; i < end; ++i) {
            weight_gradient(*a, i / weights_.weights.columns(), i % weights_.weights.columns(), sums());
          }
        },
        last));
  }
  graph.add(
      {.name = "release spectra", .task_class = TaskClass::update},
      [own] {
        own->spectra.release();
        own->weights.release();
      },
      done);
  return Ready::all_of(std::move(done));
}

template <class T>
ConvGradientReady FftTiledEngine<T>::append_backward(TaskGraph& graph, const ConvReady& ready,
                                                     std::shared_ptr<const BackwardArguments> a) const {
  ConvGradientReady result;
  if (a->dx) result.dx = append_data(graph, ready, a);
  if (a->dw) result.dw = append_weights(graph, ready, a);
  if (a->dbias) result.dbias = append_bias_gradient<T>(graph, ready.dy, problem_, a);
  return result;
}

template <class T>
std::vector<CacheCost> FftTiledEngine<T>::caches() const {
  const std::size_t bytes = bytes_of(forward_.weights.elements());
  const double kernels = static_cast<double>(forward_.terms * forward_.weights.columns());
  const double rate = 0.35 * 1e9 * machine_model().gflops_per_core;
  return {{"w_hat", bytes, kernels * forward_.kernel.flops() / rate, keep_weights_}};
}

}  // namespace

Answer offer_fft_tiled(const ConvProblem& problem, const ConvOptions& options) {
  const Extent3 one = Extent3::all(1);
  if (problem.transposed) return std::string("serves no transposed convolutions");
  if (problem.stride != one) return std::string("serves stride 1 only");
  if (problem.dilation != one) return std::string("serves dilation 1 only");
  const bool depthwise = problem.groups == problem.in_channels && problem.groups == problem.out_channels;
  if (problem.groups != 1 && !depthwise) return std::string("serves 1 group, or as many as channels");
  if (problem.kernel == one) return std::string("a kernel of one voxel needs no transform");
  for (int axis = 0; axis < 3; ++axis) {
    if (problem.kernel[axis] > 64)
      return fmt::format("tiles have up to 64 voxels, the kernel {}", problem.kernel[axis]);
  }
  if (problem.groups != 1) return offer_fft_depthwise(problem);
  const auto answer = [](auto engine) {
    const double seconds = engine->seconds();
    return Offer{std::move(engine), seconds};
  };
  if (problem.type == DataType::f32) return answer(std::make_unique<FftTiledEngine<float>>(problem, options));
  return answer(std::make_unique<FftTiledEngine<double>>(problem, options));
}

}  // namespace convolume::conv
