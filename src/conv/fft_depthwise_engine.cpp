// The tiled way for depthwise convolutions: no sum over channels, so a channel block of a tile is transformed,
// multiplied lane by lane and inverted in one sweep, and its spectrum never leaves the L2.
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

namespace convolume::conv {
namespace {

using plan::Direction;

/// The tiles of one direction and their transforms; spectra are [frequency block][kz][re, im][lane].
template <class T>
struct DepthwiseDirection {
  DepthwiseDirection(const ConvProblem& p, const plan::TiledWay& way)
      : grid{way, p.batch},
        in(grid.way.tile, grid.way.tile),
        valid(grid.way.tile, grid.way.valid),
        kernel(grid.way.tile, p.kernel) {}

  TileGrid grid;
  fft::TilePlan<T> in, valid, kernel;

  fft::TileStrides strides() const {
    constexpr index_t lanes = fft::tile_lanes<T>;
    return {
        .block = grid.way.tile.z * 2 * lanes, .frequency = 2 * lanes, .tile = 0, .channel_block = 0, .re_im = lanes};
  }
  index_t elements() const { return in.frequencies() * 2 * fft::tile_lanes<T>; }
  T scale() const { return T{1} / static_cast<T>(grid.way.tile.volume()); }
  std::size_t scratch_bytes() const {
    return std::max({in.scratch_bytes(), valid.scratch_bytes(), kernel.scratch_bytes()});
  }
};

template <class T>
class FftDepthwiseEngine final : public ConvEngine {
 public:
  FftDepthwiseEngine(const ConvProblem& p, const plan::TiledWays& ways)
      : problem_(p),
        forward_(p, ways[0]),
        data_(p, ways[1]),
        weights_(p, ways[2]),
        blocks_((p.in_channels + lanes - 1) / lanes) {}

  double seconds() const { return forward_.grid.way.seconds + data_.grid.way.seconds + weights_.grid.way.seconds; }

  Ready append_prepare(TaskGraph& graph, const Ready& ready,
                       std::shared_ptr<const PrepareArguments> arguments) const override;
  Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                       std::shared_ptr<const ForwardArguments> arguments) const override;
  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const BackwardArguments> arguments) const override;

  void init_weights(PreparedWeights::Impl& w) const override {
    w.geometry = fmt::format("{} forward {} backward {} of {}", key(), to_string(forward_.grid.way.tile),
                             to_string(data_.grid.way.tile), to_string(problem_.w_shape()));
    // Of either direction's tile, one after the other.
    w.spectra.init(w.memory, static_cast<std::size_t>(2 * blocks_),
                   bytes_of(std::max(forward_.elements(), data_.elements())));
    w.packed.init(w.memory, 0, 0);
  }
  void init_input_spectra(Spectra::Impl& s) const override { s.geometry = key() + " x: none kept"; }
  void init_gradient_spectra(Spectra::Impl& s) const override { s.geometry = key() + " dy: none kept"; }

  std::string numerics() const override {
    return fmt::format("fft_tiled depthwise forward {}, {}; backward data {}, {}; backward weights {} in {} sums, {}",
                       forward_.in.describe(), forward_.valid.describe(), data_.in.describe(), data_.valid.describe(),
                       weights_.in.describe(), partial_sums(), weights_.kernel.describe());
  }
  std::vector<CacheCost> caches() const override {
    const double rate = 0.35 * 1e9 * machine_model().gflops_per_core;
    return {{"w_hat", 2 * static_cast<std::size_t>(blocks_) * bytes_of(std::max(forward_.elements(), data_.elements())),
             static_cast<double>(blocks_) * forward_.kernel.flops() / rate, true}};
  }
  TransformCounts transforms() const noexcept override { return meter_.counts(); }

 private:
  static constexpr index_t lanes = fft::tile_lanes<T>;
  static std::size_t bytes_of(index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }
  std::string key() const { return fmt::format("fft_tiled depthwise {} {}", name_of(problem_.type), simd_target()); }
  /// Of a block's weight gradient: fixed, so that every number of threads adds the same way.
  index_t partial_sums() const { return std::min<index_t>(weights_.grid.tiles(), 8); }

  template <class Element, class Lanes>
  fft::PlainTile<Element> kernel_lanes(const Lanes& view, index_t block) const;
  void weight_spectrum(const DepthwiseDirection<T>& direction, const View<const T>& w, index_t block, T* spectrum,
                       std::pmr::memory_resource* memory) const;
  void sweep(const DepthwiseDirection<T>& direction, const TileSource<T>& source, const T* weights, bool conjugate,
             const TileTarget<T>& target, std::pmr::memory_resource* memory) const;
  void sum_tiles(const BackwardArguments& a, index_t block, index_t first, index_t last, T* sum) const;
  void weight_gradient(const BackwardArguments& a, index_t block, const BufferStore& sums) const;

  template <class Body>
  Ready append_tiles(TaskGraph& graph, const DepthwiseDirection<T>& direction, index_t margin, const Ready& weights,
                     const Ready& source, const Ready& target, const Body& body) const;
  Ready append_data(TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a) const;
  Ready append_weights(TaskGraph& graph, const ConvReady& ready,
                       const std::shared_ptr<const BackwardArguments>& a) const;

  ConvProblem problem_;
  DepthwiseDirection<T> forward_, data_, weights_;
  index_t blocks_;  // of channels
  mutable TransformMeter meter_;
};

/// The kernels of a channel block, one per lane.
template <class T>
template <class Element, class Lanes>
fft::PlainTile<Element> FftDepthwiseEngine<T>::kernel_lanes(const Lanes& view, index_t block) const {
  fft::PlainTile<Element> tile{.lanes = {}, .plane_stride = view.stride[2], .row_stride = view.stride[3], .boxes = {}};
  for (index_t lane = 0; lane < std::min(lanes, problem_.in_channels - block * lanes); ++lane) {
    tile.lanes[static_cast<std::size_t>(lane)] = view.channel(block * lanes + lane, 0);
    tile.boxes[static_cast<std::size_t>(lane)] = {{0, 0, 0}, problem_.kernel};
  }
  return tile;
}

template <class T>
void FftDepthwiseEngine<T>::weight_spectrum(const DepthwiseDirection<T>& d, const View<const T>& w, index_t block,
                                            T* spectrum, std::pmr::memory_resource* memory) const {
  Scratch scratch(memory, d.scratch_bytes());
  T* temporary = scratch.take<T>(d.scratch_bytes());
  meter_.measure(Counted::weights,
                 [&] { d.kernel.forward(kernel_lanes<const T>(w, block), spectrum, d.strides(), temporary); });
}

template <class T>
Ready FftDepthwiseEngine<T>::append_prepare(TaskGraph& graph, const Ready& ready,
                                            std::shared_ptr<const PrepareArguments> a) const {
  std::vector<TaskId> tasks;
  for (index_t block = 0; block < blocks_; ++block) {
    std::vector<TaskId> after;
    const index_t first = block * lanes, last = std::min(first + lanes, problem_.in_channels);
    for (index_t channel = first; channel < last; ++channel) ready.collect(0, channel, channel + 1, after);
    tasks.push_back(graph.add(
        {.name = "weight spectra", .cost = 2 * forward_.kernel.flops()},
        [this, a, block] {
          PreparedWeights::Impl& prepared = *a->prepared;
          const auto at = static_cast<std::size_t>(2 * block);
          for (const auto& [d, i] : {std::pair{&forward_, at}, std::pair{&data_, at + 1}}) {
            auto* spectrum = static_cast<T*>(prepared.spectra.acquire(i));
            weight_spectrum(*d, a->w.template as<T>(), block, spectrum, prepared.memory);
          }
        },
        after));
  }
  return Ready(std::move(tasks), blocks_, 1, lanes, 1);
}

/// There, through the product, and back.
template <class T>
void FftDepthwiseEngine<T>::sweep(const DepthwiseDirection<T>& d, const TileSource<T>& source, const T* weights,
                                  bool conjugate, const TileTarget<T>& target,
                                  std::pmr::memory_resource* memory) const {
  Scratch scratch(memory, bytes_of(d.elements()) + d.scratch_bytes() + 128);
  T* spectrum = scratch.take<T>(bytes_of(d.elements()));
  T* temporary = scratch.take<T>(d.scratch_bytes());
  meter_.measure(conjugate ? Counted::input : Counted::gradient,
                 [&] { transform_tile(d.in, source, spectrum, d.strides(), temporary); });
  multiply_lanes(LaneProduct<T>{spectrum, weights, spectrum, d.in.frequencies(), conjugate});
  meter_.measure(Counted::inverse, [&] { invert_tile(d.valid, spectrum, d.strides(), target, temporary); });
}

/// body(block, tile) for every channel block of every tile, whose source begins `margin` voxels from its first one.
template <class T>
template <class Body>
Ready FftDepthwiseEngine<T>::append_tiles(TaskGraph& graph, const DepthwiseDirection<T>& d, index_t margin,
                                          const Ready& weights, const Ready& source, const Ready& target,
                                          const Body& body) const {
  const plan::TiledWay& way = d.grid.way;
  const index_t layer = way.count.y * way.count.x;
  std::vector<TaskId> done;
  for (index_t n = 0; n < d.grid.batch; ++n) {
    for (index_t block = 0; block < blocks_; ++block) {
      const index_t c0 = block * lanes, c1 = std::min(c0 + lanes, problem_.in_channels);
      for (index_t z = 0; z < way.count.z; ++z) {
        const index_t begin = z * way.valid.z, window = begin + margin;
        std::vector<TaskId> after, tasks;
        weights.collect(0, c0, c1, after);
        source.collect(n, c0, c1, std::max<index_t>(0, window), std::max<index_t>(1, window + way.tile.z), after);
        target.collect(n, c0, c1, begin, begin + way.valid.z, after);
        for (index_t i = 0; i < layer; ++i) {
          const index_t tile = (n * way.count.z + z) * layer + i;
          tasks.push_back(graph.add(
              {.name = "depthwise tile", .cost = 2 * d.in.flops()}, [body, block, tile] { body(block, tile); }, after));
        }
        done.push_back(graph.add(
            {.name = "layer of tiles"}, [] {}, tasks));
      }
    }
  }
  return Ready(std::move(done), blocks_, way.count.z, lanes, way.valid.z);
}

template <class T>
Ready FftDepthwiseEngine<T>::append_forward(TaskGraph& graph, const ConvReady& ready,
                                            std::shared_ptr<const ForwardArguments> a) const {
  const auto body = [this, a](index_t block, index_t tile) {
    const DepthwiseDirection<T>& d = forward_;
    const index_t n = d.grid.sample(tile), c = block * lanes;
    const Extent3 begin = d.grid.begin(tile);
    const TileSource<T> source{.block = block_of(a->x.template as<T>(), problem_.x_layout, n, c),
                               .origin = begin - problem_.pad_before,
                               .window = d.grid.way.tile};
    const TileTarget<T> target{.block = block_of(a->y.template as<T>(), problem_.y_layout, n, c),
                               .origin = begin,
                               .window = d.grid.way.valid,
                               .scale = d.scale(),
                               .bias = problem_.epilogue.bias ? a->bias.template as<T>().data + c : nullptr,
                               .activation = problem_.epilogue.activation};
    const auto* weights = static_cast<const T*>(a->w->spectra.get(static_cast<std::size_t>(2 * block)));
    sweep(d, source, weights, true, target, a->memory);
  };
  return append_tiles(graph, forward_, -problem_.pad_before.z, ready.w, ready.x, {}, body);
}

template <class T>
Ready FftDepthwiseEngine<T>::append_data(TaskGraph& graph, const ConvReady& ready,
                                         const std::shared_ptr<const BackwardArguments>& a) const {
  const Extent3 margin = problem_.kernel - Extent3::all(1), offset = problem_.pad_before - margin;
  const auto body = [this, a, margin, offset](index_t block, index_t tile) {
    const DepthwiseDirection<T>& d = data_;
    const index_t n = d.grid.sample(tile), c = block * lanes;
    const Extent3 begin = d.grid.begin(tile);
    const bool activated = problem_.epilogue.activation.kind != Activation::Kind::none;
    // The valid part of a convolution stands behind the margin unless the source is shifted by that.
    TileSource<T> source{.block = block_of(a->dy.template as<T>(), problem_.y_layout, n, c),
                         .origin = begin + offset,
                         .window = d.grid.way.tile,
                         .shift = margin,
                         .activation = activated ? &problem_.epilogue.activation : nullptr};
    if (activated) source.y = block_of(a->y.template as<T>(), problem_.y_layout, n, c);
    const TileTarget<T> target{.block = block_of(a->dx.template as<T>(), problem_.x_layout, n, c),
                               .origin = begin,
                               .window = d.grid.way.valid,
                               .scale = d.scale(),
                               .add = a->add_dx};
    const auto* weights = static_cast<const T*>(a->w->spectra.get(static_cast<std::size_t>(2 * block + 1)));
    sweep(d, source, weights, false, target, a->memory);
  };
  return append_tiles(graph, data_, offset.z, ready.w, ready.dy, ready.dx, body);
}

/// The products of tiles [first, last) of one channel block, in their order.
template <class T>
void FftDepthwiseEngine<T>::sum_tiles(const BackwardArguments& a, index_t block, index_t first, index_t last,
                                      T* sum) const {
  const DepthwiseDirection<T>& d = weights_;
  Scratch scratch(a.memory, 2 * bytes_of(d.elements()) + d.scratch_bytes() + 192);
  T* x_hat = scratch.take<T>(bytes_of(d.elements()));
  T* dy_hat = scratch.take<T>(bytes_of(d.elements()));
  T* temporary = scratch.take<T>(d.scratch_bytes());
  const bool activated = problem_.epilogue.activation.kind != Activation::Kind::none;
  for (index_t tile = first; tile < last; ++tile) {
    const index_t n = d.grid.sample(tile), c = block * lanes;
    const Extent3 begin = d.grid.begin(tile);
    const TileSource<T> x{.block = block_of(a.x.as<T>(), problem_.x_layout, n, c),
                          .origin = begin - problem_.pad_before,
                          .window = d.grid.way.tile};
    TileSource<T> dy{.block = block_of(a.dy.as<T>(), problem_.y_layout, n, c),
                     .origin = begin,
                     .window = d.grid.way.valid,
                     .activation = activated ? &problem_.epilogue.activation : nullptr};
    if (activated) dy.y = block_of(a.y.as<T>(), problem_.y_layout, n, c);
    meter_.measure(Counted::input, [&] { transform_tile(d.in, x, x_hat, d.strides(), temporary); });
    meter_.measure(Counted::gradient, [&] { transform_tile(d.valid, dy, dy_hat, d.strides(), temporary); });
    multiply_lanes(LaneProduct<T>{x_hat, dy_hat, sum, d.in.frequencies(), true, tile > first});
  }
}

template <class T>
void FftDepthwiseEngine<T>::weight_gradient(const BackwardArguments& a, index_t block, const BufferStore& sums) const {
  const DepthwiseDirection<T>& d = weights_;
  Scratch scratch(a.memory, bytes_of(d.elements()) + d.scratch_bytes() + 128);
  T* total = scratch.take<T>(bytes_of(d.elements()));
  T* temporary = scratch.take<T>(d.scratch_bytes());
  const index_t parts = partial_sums();
  for (index_t part = 0; part < parts; ++part) {
    const auto* sum = static_cast<const T*>(sums.get(static_cast<std::size_t>(block * parts + part)));
    for (index_t i = 0; i < d.elements(); ++i) total[i] = part == 0 ? sum[i] : total[i] + sum[i];
  }
  const auto dw = kernel_lanes<T>(a.dw.as<T>(), block);
  meter_.measure(Counted::inverse,
                 [&] { d.kernel.inverse(total, d.strides(), dw, {.scale = d.scale(), .add = a.add_dw}, temporary); });
}

template <class T>
Ready FftDepthwiseEngine<T>::append_weights(TaskGraph& graph, const ConvReady& ready,
                                            const std::shared_ptr<const BackwardArguments>& a) const {
  const DepthwiseDirection<T>& d = weights_;
  const index_t parts = partial_sums(), tiles = d.grid.tiles();
  auto sums = std::make_shared<BufferStore>();
  sums->init(a->memory, static_cast<std::size_t>(blocks_ * parts), bytes_of(d.elements()));
  std::vector<TaskId> done;
  for (index_t block = 0; block < blocks_; ++block) {
    const index_t c0 = block * lanes, c1 = std::min(c0 + lanes, problem_.in_channels);
    std::vector<TaskId> after, tasks;
    for (index_t n = 0; n < problem_.batch; ++n) {
      ready.x.collect(n, c0, c1, after);
      ready.dy.collect(n, c0, c1, after);
    }
    for (index_t part = 0; part < parts; ++part) {
      const index_t first = tiles * part / parts, last = tiles * (part + 1) / parts;
      tasks.push_back(graph.add(
          {.name = "depthwise products", .cost = 2 * d.in.flops() * static_cast<double>(last - first)},
          [this, a, sums, block, part, parts, first, last] {
            auto* sum = static_cast<T*>(sums->acquire(static_cast<std::size_t>(block * parts + part)));
            sum_tiles(*a, block, first, last, sum);
          },
          after));
    }
    done.push_back(graph.add(
        {.name = "weight gradient", .cost = d.in.flops()},
        [this, a, sums, block] { weight_gradient(*a, block, *sums); }, tasks));
  }
  graph.add(
      {.name = "release sums", .task_class = TaskClass::update}, [sums] { sums->release(); }, done);
  return Ready(std::move(done), blocks_, 1, lanes, 1);
}

template <class T>
ConvGradientReady FftDepthwiseEngine<T>::append_backward(TaskGraph& graph, const ConvReady& ready,
                                                         std::shared_ptr<const BackwardArguments> a) const {
  ConvGradientReady result;
  if (a->dx) result.dx = append_data(graph, ready, a);
  if (a->dw) result.dw = append_weights(graph, ready, a);
  if (a->dbias) result.dbias = append_bias_gradient<T>(graph, ready.dy, problem_, a);
  return result;
}

}  // namespace

Offer offer_fft_depthwise(const ConvProblem& problem, const plan::TiledWays& ways) {
  const auto offer = [](auto engine) {
    const double seconds = engine->seconds();
    return Offer{std::move(engine), seconds};
  };
  if (problem.type == DataType::f32) return offer(std::make_unique<FftDepthwiseEngine<float>>(problem, ways));
  return offer(std::make_unique<FftDepthwiseEngine<double>>(problem, ways));
}

}  // namespace convolume::conv
