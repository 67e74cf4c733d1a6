// Depthwise convolution by tiles in the frequency domain. There is no sum over channels. So a channel block of a tile
// is transformed, multiplied lane by lane and inverted in one sweep, and its spectrum never leaves the L2. Polyphase
// components and transposition are handled as in fft_tiled_engine.cpp.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "conv/caches/buffer_store.hpp"
#include "conv/caches/caches.hpp"
#include "conv/caches/run_buffers.hpp"
#include "conv/caches/scratch.hpp"
#include "conv/depthwise/depthwise_engines.hpp"
#include "conv/spectra/tile_grid.hpp"
#include "conv/spectra/tile_spectra.hpp"
#include "conv/spectra/tiled_choice.hpp"
#include "conv/spectra/transform_meter.hpp"
#include "conv/tensor_io/bias_gradient.hpp"
#include "conv/tensor_io/group_tensors.hpp"
#include "conv/tensor_io/tile_io.hpp"
#include "convolume/machine.hpp"
#include "plan/cost_constants.hpp"
#include "plan/sides.hpp"
#include "plan/tiled_support.hpp"

namespace convolume::conv {
namespace {

using plan::Direction;

/// The tiles of one direction and their transforms. The layout of spectra is [frequency block][kz][re, im][lane].
template <class T>
struct DepthwiseTiling {
  DepthwiseTiling(const ConvProblem& p, Direction direction, const plan::Tilings& tilings)
      : to_y(direction != Direction::backward_data),
        grid{tilings.of(direction), p.batch, plan::Polyphase(p)},
        in(grid.tiling.tile, grid.tiling.tile),
        valid(grid.tiling.tile, grid.tiling.valid),
        kernel(grid.tiling.tile, grid.polyphase.dense.kernel) {
    const auto l2 = static_cast<index_t>(machine_model().usable_l2_bytes);
    const index_t spectra = (phases() == 1 ? 1 : 2) * elements() * static_cast<index_t>(sizeof(T));
    const index_t most = std::clamp<index_t>(l2 * 3 / 4 / spectra, 1, grid.tiling.count.x);
    const index_t rows = (grid.tiling.count.x + most - 1) / most;
    const bool plain = p.x_layout == Layout::plain || p.y_layout == Layout::plain;
    if (plain && grid.polyphase.residues() == 1) together = (grid.tiling.count.x + rows - 1) / rows;
  }

  bool to_y;  ///< the results are the low-resolution side; otherwise they are the high-resolution side
  TileGrid grid;
  fft::TilePlan<T> in, valid, kernel;
  /// Most tiles along X that are handled together, because a tensor is plain. Their spectra stay in the L2.
  index_t together = 1;

  index_t phases() const { return grid.polyphase.phases(); }
  fft::TileStrides strides() const {
    constexpr index_t lanes = fft::tile_lanes<T>;
    return {
        .block = grid.tiling.tile.z * 2 * lanes, .frequency = 2 * lanes, .tile = 0, .channel_block = 0, .re_im = lanes};
  }
  index_t elements() const { return in.frequencies() * 2 * fft::tile_lanes<T>; }
  T scale() const { return T{1} / static_cast<T>(grid.tiling.tile.volume()); }
  std::size_t scratch_bytes() const {
    // Staging takes this much if both tensors are plain. The weight gradient reads dy by `valid`.
    const TileRow all = row_of(grid, 0, together, Layout::plain, 0);
    return std::max({in.scratch_bytes() + row_bytes(in, all, true), valid.scratch_bytes() + row_bytes(valid, all, true),
                     kernel.scratch_bytes()});
  }
};

template <class T>
class FftDepthwiseEngine final : public ConvEngine {
 public:
  FftDepthwiseEngine(const ConvProblem& p, const plan::Tilings& tilings)
      : problem_(p),
        sides_(p),
        forward_(sides_.convolution(), sides_.direction(Direction::forward), tilings),
        data_(sides_.convolution(), sides_.direction(Direction::backward_data), tilings),
        weights_(sides_.convolution(), Direction::backward_weights, tilings),
        blocks_((p.in_channels + lanes - 1) / lanes) {}

  Ready append_prepare(TaskGraph& graph, const Ready& ready,
                       std::shared_ptr<const PrepareArguments> arguments) const override;
  Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                       std::shared_ptr<const ForwardArguments> arguments) const override;
  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const BackwardArguments> arguments) const override;

  void init_weights(PreparedWeights::Impl& w) const override {
    w.geometry = fmt::format("{} forward {} backward {} of {} step {}{}", key(), to_string(forward_.grid.tiling.tile),
                             to_string(data_.grid.tiling.tile), to_string(problem_.w_shape()),
                             to_string(problem_.stride), sides_.y_is_high_res() ? " transposed" : "");
    w.spectra.init(w.memory, static_cast<std::size_t>(blocks_) * 2, spectra_bytes());
    w.packed.init(w.memory, 0, 0);
  }
  void init_input_spectra(Spectra::Impl& s) const override { s.geometry = key() + " x: none kept"; }
  void init_gradient_spectra(Spectra::Impl& s) const override { s.geometry = key() + " dy: none kept"; }

  std::string numerics() const override {
    return fmt::format("fft_tiled depthwise forward {}, {}; backward data {}, {}; backward weights {} in {} sums, {}{}",
                       forward_.in.describe(), forward_.valid.describe(), data_.in.describe(), data_.valid.describe(),
                       weights_.in.describe(), partial_sums(), weights_.kernel.describe(), weights_.grid.describe());
  }
  std::vector<CacheCost> caches() const override {
    const MachineModel& machine = machine_model();
    const double rate = machine.spilled_tile_transform_share * 1e9 * machine.gflops_per_core;
    return {{.name = "w_hat",
             .bytes = 2 * static_cast<std::size_t>(blocks_) * spectra_bytes(),
             .seconds_saved = static_cast<double>(blocks_ * forward_.phases()) * forward_.kernel.flops() / rate,
             .budgeted = false,
             .free_to_drop = true}};
  }
  TransformCounts transforms() const noexcept override { return meter_.counts(); }

 private:
  static constexpr index_t lanes = fft::tile_lanes<T>;
  static std::size_t bytes_of(index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }
  /// Returns the scratch for `spectra` spectra and for the transforms.
  static std::size_t scratch_bytes(const DepthwiseTiling<T>& d, int spectra) {
    return static_cast<std::size_t>(spectra) * bytes_of(d.elements()) + d.scratch_bytes() + 192;
  }
  static int sweep_spectra(const DepthwiseTiling<T>& d) {
    return static_cast<int>(d.together) * (d.phases() == 1 ? 1 : 2);
  }
  std::string key() const { return fmt::format("fft_tiled depthwise {} {}", name_of(problem_.type), kernel_target()); }
  /// Returns the number of partial sums of a channel block's weight gradient. It does not depend on the number of
  /// threads, so the additions do not either.
  index_t partial_sums() const { return std::min<index_t>(weights_.grid.tiles(), 8); }

  /// Returns the bytes of the weight spectra of a channel block: all phases one after the other, for the tiles of
  /// either direction.
  std::size_t spectra_bytes() const {
    return static_cast<std::size_t>(forward_.phases()) * bytes_of(std::max(forward_.elements(), data_.elements()));
  }
  static std::size_t spectra_at(index_t block, bool forward) {
    return static_cast<std::size_t>(2 * block + (forward ? 0 : 1));
  }
  bool activated() const { return problem_.epilogue.activation.kind != Activation::Kind::none; }

  template <class Element>
  fft::PlainTile<Element> kernel_lanes(const View<Element>& w, index_t block) const;
  void weight_spectra(const DepthwiseTiling<T>& direction, const View<const T>& w, index_t block, T* spectra,
                      std::pmr::memory_resource* memory) const;
  void sweep(const DepthwiseTiling<T>& direction, index_t tile, index_t count, index_t block,
             const GroupTensors<T>& tensors) const;
  TileSource<T> source(const DepthwiseTiling<T>& direction, index_t tile, index_t phase, index_t block,
                       const GroupTensors<T>& tensors) const;
  TileTarget<T> target(const DepthwiseTiling<T>& direction, index_t tile, index_t phase, index_t block,
                       const GroupTensors<T>& tensors) const;
  TileSource<T> high_res(const BackwardArguments& a, index_t tile, index_t phase, index_t block) const;
  TileSource<T> low_res(const BackwardArguments& a, index_t tile, index_t block) const;
  void sum_tiles(const BackwardArguments& a, index_t block, index_t first, index_t last, T* sums) const;
  void weight_gradient(const BackwardArguments& a, index_t block, const BufferStore& sums) const;

  template <class Tensors>
  Ready append_tiles(TaskGraph& graph, const DepthwiseTiling<T>& direction, const Ready& weights, const Ready& source,
                     const Ready& target, const Tensors& tensors) const;
  std::vector<TaskId> append_sums(TaskGraph& graph, const ConvReady& ready,
                                  const std::shared_ptr<const BackwardArguments>& a,
                                  const std::shared_ptr<BufferStore>& sums, std::vector<TaskId> after,
                                  index_t block) const;
  Ready append_data(TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a) const;
  Ready append_weights(TaskGraph& graph, const ConvReady& ready,
                       const std::shared_ptr<const BackwardArguments>& a) const;

  ConvProblem problem_;
  plan::Sides sides_;
  DepthwiseTiling<T> forward_, data_, weights_;
  TileIoKernels<T> tile_io_ = tile_io_kernels<T>();
  BiasGradient<T> bias_{problem_};
  ComplexKernels<T> products_ = complex_kernels<T>();
  index_t blocks_;  // of channels
  mutable TransformMeter meter_;
};

/// Returns the kernels of a channel block, one per lane. `w` is one phase of the weights.
template <class T>
template <class Element>
fft::PlainTile<Element> FftDepthwiseEngine<T>::kernel_lanes(const View<Element>& w, index_t block) const {
  fft::PlainTile<Element> tile{
      .lanes = {}, .plane_stride = w.stride[2], .row_stride = w.stride[3], .boxes = {}, .voxel_stride = w.stride[4]};
  for (index_t lane = 0; lane < std::min(lanes, problem_.in_channels - block * lanes); ++lane) {
    tile.lanes[static_cast<std::size_t>(lane)] = w.channel(block * lanes + lane, 0);
    tile.boxes[static_cast<std::size_t>(lane)] = {{0, 0, 0}, w.shape.extent};
  }
  return tile;
}

template <class T>
void FftDepthwiseEngine<T>::weight_spectra(const DepthwiseTiling<T>& d, const View<const T>& w, index_t block,
                                           T* spectra, std::pmr::memory_resource* memory) const {
  Scratch scratch(memory, d.scratch_bytes());
  T* temporary = scratch.take<T>(d.scratch_bytes());
  for (index_t phase = 0; phase < d.phases(); ++phase) {
    const auto taps = kernel_lanes(d.grid.w_component(w, phase), block);
    meter_.measure(Counted::weights,
                   [&] { d.kernel.forward(taps, spectra + phase * d.elements(), d.strides(), temporary); });
  }
}

template <class T>
Ready FftDepthwiseEngine<T>::append_prepare(TaskGraph& graph, const Ready& ready,
                                            std::shared_ptr<const PrepareArguments> a) const {
  using Readers = PreparedWeights::Impl::Readers;
  std::vector<const DepthwiseTiling<T>*> read;
  if (a->prepared->readers != Readers::backward_data) read.push_back(&forward_);
  if (a->prepared->readers != Readers::forward) read.push_back(&data_);
  std::vector<TaskId> tasks;
  for (index_t block = 0; block < blocks_; ++block) {
    std::vector<TaskId> after;
    const index_t first = block * lanes, last = std::min(first + lanes, problem_.in_channels);
    for (index_t channel = first; channel < last; ++channel) ready.collect(0, channel, channel + 1, after);
    tasks.push_back(graph.add(
        {.name = "weight spectra",
         .cost = static_cast<double>(std::ssize(read) * forward_.phases()) * forward_.kernel.flops(),
         .scratch_bytes = std::max(forward_.scratch_bytes(), data_.scratch_bytes())},
        [this, a, block, read] {
          PreparedWeights::Impl& prepared = *a->prepared;
          for (const DepthwiseTiling<T>* d : read) {
            auto* spectra = static_cast<T*>(prepared.spectra.acquire(spectra_at(block, d == &forward_)));
            weight_spectra(*d, a->w.template as<T>(), block, spectra, prepared.memory);
          }
        },
        after));
  }
  return Ready(std::move(tasks), blocks_, 1, lanes, 1);
}

template <class T>
TileSource<T> FftDepthwiseEngine<T>::source(const DepthwiseTiling<T>& d, index_t tile, index_t phase, index_t block,
                                            const GroupTensors<T>& tensors) const {
  const auto of_tile = [&](const View<const T>& view) {
    const View<const T> part = d.to_y ? d.grid.x_component(view, tile, phase) : d.grid.y_component(view, tile);
    return block_of(part, view.layout, d.grid.sample(tile), block * lanes);
  };
  // The valid part of a convolution lies behind the margin, unless the source is shifted by the margin.
  TileSource<T> result{.block = of_tile(tensors.source),
                       .origin = d.to_y ? d.grid.x_begin(tile, phase) : d.grid.y_begin(tile),
                       .window = d.grid.tiling.tile,
                       .shift = d.to_y ? Extent3{0, 0, 0} : d.grid.margin(),
                       .activation = tensors.gradient};
  if (tensors.gradient != nullptr) result.y = of_tile(tensors.y);
  return result;
}

template <class T>
TileTarget<T> FftDepthwiseEngine<T>::target(const DepthwiseTiling<T>& d, index_t tile, index_t phase, index_t block,
                                            const GroupTensors<T>& tensors) const {
  const View<T> to =
      d.to_y ? d.grid.y_component(tensors.target, tile) : d.grid.x_component(tensors.target, tile, phase);
  return {.block = block_of(to, to.layout, d.grid.sample(tile), block * lanes),
          .origin = d.to_y ? d.grid.begin(tile) : d.grid.x_target(tile, phase),
          .window = d.grid.tiling.valid,
          .scale = d.scale(),
          .bias = tensors.bias ? tensors.bias.data.get() + block * lanes : nullptr,
          .activation = tensors.activation,
          .add = tensors.add};
}

/// Transforms a channel block of `count` neighbouring tiles, multiplies it and inverts the products. For y the products
/// of the phases of x are summed. For dx each phase has its own product.
template <class T>
void FftDepthwiseEngine<T>::sweep(const DepthwiseTiling<T>& d, index_t tile, index_t count, index_t block,
                                  const GroupTensors<T>& tensors) const {
  const bool in_place = d.phases() == 1;
  const TileRow row{.count = count, .step = d.grid.tiling.valid.x, .spectrum = d.elements()};
  const std::size_t bytes = bytes_of(d.together * d.elements());
  Scratch scratch(tensors.memory, scratch_bytes(d, sweep_spectra(d)));
  T* spectrum = scratch.take<T>(bytes);
  T* product = in_place ? spectrum : scratch.take<T>(bytes);
  T* temporary = scratch.take<T>(d.scratch_bytes());
  for (index_t phase = 0; phase < d.phases(); ++phase) {
    if (d.to_y || phase == 0) {
      const auto transform = [&] {
        tile_io_.transform(d.in, source(d, tile, phase, block, tensors), row, spectrum, d.strides(), temporary);
      };
      meter_.measure(&d == &forward_ ? Counted::input : Counted::gradient, transform, count);
    }
    for (index_t i = 0; i < count * d.elements(); i += d.elements()) {
      products_.multiply_lanes(LaneProduct<T>{spectrum + i, tensors.weights + phase * d.elements(), product + i,
                                              d.in.frequencies(), d.to_y, d.to_y && phase > 0});
    }
    if (d.to_y && phase + 1 < d.phases()) continue;
    const auto invert = [&] {
      tile_io_.invert(d.valid, product, d.strides(), target(d, tile, phase, block, tensors), row, temporary);
    };
    meter_.measure(Counted::inverse, invert, count);
  }
}

/// Appends a task for each channel block of each row of tiles. A task calls `tensors(block)` when it runs, which
/// returns the block's weight spectra, too.
template <class T>
template <class Tensors>
Ready FftDepthwiseEngine<T>::append_tiles(TaskGraph& graph, const DepthwiseTiling<T>& d, const Ready& weights,
                                          const Ready& source, const Ready& target, const Tensors& tensors) const {
  const plan::Tiling& tiling = d.grid.tiling;
  const index_t layer = d.grid.layer();
  std::vector<TaskId> done;
  for (index_t n = 0; n < d.grid.batch; ++n) {
    for (index_t block = 0; block < blocks_; ++block) {
      const index_t c0 = block * lanes, c1 = std::min(c0 + lanes, problem_.in_channels);
      std::vector<std::vector<TaskId>> of_z_range(static_cast<std::size_t>(tiling.count.z));
      for (index_t z = 0; z < tiling.count.z; ++z) {
        const index_t begin = z * tiling.valid.z, end = begin + tiling.valid.z;
        std::vector<TaskId> after;
        weights.collect(0, c0, c1, after);
        d.grid.collect_source(d.to_y, source, n, c0, c1, begin, end, after);
        d.grid.collect_target(d.to_y, target, n, c0, c1, begin, end, after);
        for (index_t i = 0, count = 1; i < layer; i += count) {
          const index_t tile = (n * tiling.count.z + z) * layer + i;
          count = d.together == 1 ? 1 : std::min(d.together, tiling.count.x - d.grid.place(tile).x);
          const TaskId task = graph.add(
              {.name = "depthwise tiles",
               .cost = 2 * d.in.flops() * static_cast<double>(count),
               .scratch_bytes = scratch_bytes(d, sweep_spectra(d))},
              [this, &d, tensors, block, tile, count] { sweep(d, tile, count, block, tensors(block)); }, after);
          for (index_t z_range = d.grid.first_z_range(d.to_y, z); z_range <= z; ++z_range)
            of_z_range[static_cast<std::size_t>(z_range)].push_back(task);
        }
      }
      append_z_ranges(graph, of_z_range, done);
    }
  }
  return Ready(std::move(done), blocks_, tiling.count.z, lanes, d.grid.z_range_planes(d.to_y));
}

template <class T>
Ready FftDepthwiseEngine<T>::append_forward(TaskGraph& graph, const ConvReady& ready,
                                            std::shared_ptr<const ForwardArguments> a) const {
  const auto tensors = [this, a](index_t block) {
    return group_tensors(problem_, *a, static_cast<const T*>(a->w->spectra.get(spectra_at(block, true))));
  };
  return append_tiles(graph, forward_, ready.w, ready.x, {}, tensors);
}

template <class T>
Ready FftDepthwiseEngine<T>::append_data(TaskGraph& graph, const ConvReady& ready,
                                         const std::shared_ptr<const BackwardArguments>& a) const {
  const auto tensors = [this, a](index_t block) {
    return group_tensors(problem_, *a, static_cast<const T*>(a->w->spectra.get(spectra_at(block, false))));
  };
  return append_tiles(graph, data_, ready.w, ready.dy, ready.dx, tensors);
}

/// Return the source for a tile of the high-resolution side, and of the low-resolution side, in the weight gradient.
template <class T>
TileSource<T> FftDepthwiseEngine<T>::high_res(const BackwardArguments& a, index_t tile, index_t phase,
                                              index_t block) const {
  const TileGrid& grid = weights_.grid;
  const auto of_tile = [&](const ConstTensorView& tensor) {
    return block_of(grid.x_component(tensor.as<T>(), tile, phase), tensor.layout, grid.sample(tile), block * lanes);
  };
  TileSource<T> source{
      .block = of_tile(sides_.high_res(a.x, a.dy)), .origin = grid.x_begin(tile, phase), .window = grid.tiling.tile};
  if (!sides_.y_is_high_res() || !activated()) return source;
  source.activation = &problem_.epilogue.activation;
  source.y = of_tile(a.y);
  return source;
}

template <class T>
TileSource<T> FftDepthwiseEngine<T>::low_res(const BackwardArguments& a, index_t tile, index_t block) const {
  const TileGrid& grid = weights_.grid;
  const auto of_tile = [&](const ConstTensorView& tensor) {
    return block_of(grid.y_component(tensor.as<T>(), tile), tensor.layout, grid.sample(tile), block * lanes);
  };
  TileSource<T> source{
      .block = of_tile(sides_.low_res(a.x, a.dy)), .origin = grid.begin(tile), .window = grid.tiling.valid};
  if (sides_.y_is_high_res() || !activated()) return source;
  source.activation = &problem_.epilogue.activation;
  source.y = of_tile(a.y);
  return source;
}

/// Adds the products of tiles [first, last) of one channel block, in their order. There is one sum per phase.
template <class T>
void FftDepthwiseEngine<T>::sum_tiles(const BackwardArguments& a, index_t block, index_t first, index_t last,
                                      T* sums) const {
  const DepthwiseTiling<T>& d = weights_;
  Scratch scratch(a.memory, scratch_bytes(d, 2));
  T* x_hat = scratch.take<T>(bytes_of(d.elements()));
  T* dy_hat = scratch.take<T>(bytes_of(d.elements()));
  T* temporary = scratch.take<T>(d.scratch_bytes());
  const TileRow one{.step = d.grid.tiling.valid.x};
  const Counted high_res_count = sides_.high_res(Counted::input, Counted::gradient);
  const Counted low_res_count = sides_.low_res(Counted::input, Counted::gradient);
  for (index_t tile = first; tile < last; ++tile) {
    meter_.measure(low_res_count,
                   [&] { tile_io_.transform(d.valid, low_res(a, tile, block), one, dy_hat, d.strides(), temporary); });
    for (index_t phase = 0; phase < d.phases(); ++phase) {
      meter_.measure(high_res_count, [&] {
        tile_io_.transform(d.in, high_res(a, tile, phase, block), one, x_hat, d.strides(), temporary);
      });
      products_.multiply_lanes(
          LaneProduct<T>{x_hat, dy_hat, sums + phase * d.elements(), d.in.frequencies(), true, tile > first});
    }
  }
}

template <class T>
void FftDepthwiseEngine<T>::weight_gradient(const BackwardArguments& a, index_t block, const BufferStore& sums) const {
  const DepthwiseTiling<T>& d = weights_;
  Scratch scratch(a.memory, scratch_bytes(d, 1));
  T* total = scratch.take<T>(bytes_of(d.elements()));
  T* temporary = scratch.take<T>(d.scratch_bytes());
  const index_t parts = partial_sums();
  for (index_t phase = 0; phase < d.phases(); ++phase) {
    for (index_t part = 0; part < parts; ++part) {
      const auto* sum =
          static_cast<const T*>(sums.get(static_cast<std::size_t>(block * parts + part))) + phase * d.elements();
      for (index_t i = 0; i < d.elements(); ++i) total[i] = part == 0 ? sum[i] : total[i] + sum[i];
    }
    const auto dw = kernel_lanes(d.grid.w_component(a.dw.as<T>(), phase), block);
    meter_.measure(Counted::inverse,
                   [&] { d.kernel.inverse(total, d.strides(), dw, {.scale = d.scale(), .add = a.add_dw}, temporary); });
  }
}

/// Appends tasks that sum the products of parts of a channel block's tiles, after the tasks in `after`.
template <class T>
std::vector<TaskId> FftDepthwiseEngine<T>::append_sums(TaskGraph& graph, const ConvReady& ready,
                                                       const std::shared_ptr<const BackwardArguments>& a,
                                                       const std::shared_ptr<BufferStore>& sums,
                                                       std::vector<TaskId> after, index_t block) const {
  const index_t c0 = block * lanes, c1 = std::min(c0 + lanes, problem_.in_channels);
  const index_t parts = partial_sums(), tiles = weights_.grid.tiles();
  std::vector<TaskId> tasks;
  for (index_t n = 0; n < problem_.batch; ++n) {
    ready.x.collect(n, c0, c1, after);
    ready.dy.collect(n, c0, c1, after);
  }
  for (index_t part = 0; part < parts; ++part) {
    const index_t first = tiles * part / parts, last = tiles * (part + 1) / parts;
    tasks.push_back(graph.add(
        {.name = "depthwise products",
         .cost = 2 * weights_.in.flops() * static_cast<double>(last - first),
         .scratch_bytes = scratch_bytes(weights_, 2)},
        [this, a, sums, block, part, parts, first, last] {
          auto* sum = static_cast<T*>(sums->acquire(static_cast<std::size_t>(block * parts + part)));
          sum_tiles(*a, block, first, last, sum);
        },
        after));
  }
  return tasks;
}

template <class T>
Ready FftDepthwiseEngine<T>::append_weights(TaskGraph& graph, const ConvReady& ready,
                                            const std::shared_ptr<const BackwardArguments>& a) const {
  const DepthwiseTiling<T>& d = weights_;
  const auto sums =
      make_store(a->memory, static_cast<std::size_t>(blocks_ * partial_sums()), bytes_of(d.phases() * d.elements()));
  const RunBuffers buffers(graph, a->workspace, sums);
  std::vector<TaskId> done;
  for (index_t block = 0; block < blocks_; ++block) {
    const auto parts = append_sums(graph, ready, a, sums, buffers.ready(), block);
    done.push_back(graph.add(
        {.name = "weight gradient", .cost = d.in.flops(), .scratch_bytes = scratch_bytes(d, 1)},
        [this, a, sums, block] { weight_gradient(*a, block, *sums); }, parts));
  }
  buffers.end(graph, "free sums", done);
  return Ready(std::move(done), blocks_, 1, lanes, 1);
}

template <class T>
ConvGradientReady FftDepthwiseEngine<T>::append_backward(TaskGraph& graph, const ConvReady& ready,
                                                         std::shared_ptr<const BackwardArguments> a) const {
  return append_gradients<T>(
      graph, ready, bias_, a, [&] { return append_data(graph, ready, a); },
      [&] { return append_weights(graph, ready, a); });
}

std::string unsupported_reason(const ConvProblem& problem, const ConvOptions&, const ChoiceParts*) {
  if (!is_depthwise(problem)) return depthwise_only;
  return plan::tiles_unsupported_reason(problem);
}

Estimate estimate(const ConvProblem& problem, const ConvOptions& options, const MachineModel& machine,
                  const ChoiceParts* parts) {
  const plan::Tilings tilings = tilings_of(problem, wanted_of(problem, options), parts, machine);
  return {tilings.seconds(), plan::tiled_bytes(plan::Sides(problem).convolution(), tilings),
          parts_of(problem, tilings)};
}

std::unique_ptr<ConvEngine> create(const ConvProblem& problem, const ConvOptions& options, const ChoiceParts* parts) {
  return create_for_type<FftDepthwiseEngine>(problem,
                                             tilings_of(problem, wanted_of(problem, options), parts, machine_model()));
}

}  // namespace

Implementation fft_depthwise_implementation() {
  return {Engine::fft_tiled, "fft_tiled depthwise", false, unsupported_reason, estimate, create, propose_tiles};
}

}  // namespace convolume::conv
