// Convolution by tiles (overlap-save) in the frequency domain, with channels in the lanes: transforms are vertical, and
// the sum over channels is a product of complex matrices per frequency (Zlateski, Jia, Li, Durand 2018). A group of
// tiles goes through transform, product and inverse at once, so that its spectra stay in the caches; sums over tiles
// (the weights' gradient) take all tiles through one stage after the other, a chunk at a time.
#include <algorithm>

#include <fmt/format.h>

#include "conv/bias_gradient.hpp"
#include "conv/choice.hpp"
#include "conv/engine.hpp"
#include "conv/prepared.hpp"
#include "conv/tiled_voxels.hpp"
#include "conv/tiled_weight_gradient.hpp"
#include "convolume/cpu.hpp"

namespace convolume::conv {
namespace {

using plan::Direction;

template <class T>
class FftTiledEngine final : public ConvEngine {
 public:
  FftTiledEngine(const ConvProblem& p, const ConvOptions& options, const plan::TiledWays& ways)
      : problem_(p),
        forward_(p, Direction::forward, ways[0], meter_),
        data_(p, Direction::backward_data, ways[1], meter_),
        weights_(p, ways[2], meter_) {
    const std::size_t bytes = bytes_of(forward_.weights().elements());
    keep_weights_ = options.cache_spectra && (options.memory_budget == 0 || bytes <= options.memory_budget);
  }

  double seconds() const { return forward_.seconds() + data_.seconds() + weights_.seconds(); }

  Ready append_prepare(TaskGraph& graph, const Ready& ready,
                       std::shared_ptr<const PrepareArguments> arguments) const override;
  Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                       std::shared_ptr<const ForwardArguments> arguments) const override;
  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const BackwardArguments> arguments) const override;

  void init_weights(PreparedWeights::Impl& w) const override {
    w.geometry = fmt::format("{} forward {} of {}, {}", key(), to_string(forward_.tile()),
                             to_string(problem_.w_shape()), keep_weights_ ? "spectra" : "packed");
    w.spectra.init(w.memory, keep_weights_ ? 1 : 0, bytes_of(forward_.weights().elements()));
    w.packed.init(w.memory, 1, bytes_of(problem_.w_shape().elements()));
  }
  // Tiles of all directions differ, and a group's spectra never leave the caches: nothing is kept between directions.
  void init_input_spectra(Spectra::Impl& s) const override { s.geometry = key() + " x: none kept"; }
  void init_gradient_spectra(Spectra::Impl& s) const override { s.geometry = key() + " dy: none kept"; }

  std::string numerics() const override {
    return fmt::format("fft_tiled forward {}; backward data {}; backward weights {}", forward_.describe(),
                       data_.describe(), weights_.describe());
  }
  std::vector<CacheCost> caches() const override {
    const double rate = 0.35e9 * machine_model().gflops_per_core;
    return {{"w_hat", bytes_of(forward_.weights().elements()), forward_.kernel_flops() / rate, keep_weights_}};
  }
  TransformCounts transforms() const noexcept override { return meter_.counts(); }

 private:
  static std::size_t bytes_of(index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }
  std::string key() const { return fmt::format("fft_tiled {} {}", name_of(problem_.type), simd_target()); }

  View<const T> packed(const PreparedWeights::Impl& w) const {
    return {static_cast<const T*>(w.packed.get(0)), problem_.w_shape()};
  }
  void pack(const View<const T>& w, PreparedWeights::Impl& prepared) const;
  /// Weight spectra that live for one run.
  template <class Arguments>
  std::vector<TaskId> append_own_spectra(TaskGraph& graph, const TiledVoxels<T>& direction,
                                         const std::shared_ptr<const Arguments>& a,
                                         const std::shared_ptr<BufferStore>& own, const Ready& ready) const;
  Ready append_data(TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a) const;

  ConvProblem problem_;
  mutable TransformMeter meter_;
  TiledVoxels<T> forward_, data_;
  TiledWeightGradient<T> weights_;
  bool keep_weights_ = true;
};

template <class T>
void FftTiledEngine<T>::pack(const View<const T>& w, PreparedWeights::Impl& prepared) const {
  T* to = static_cast<T*>(prepared.packed.acquire(0));
  const Extent3& k = problem_.kernel;
  for (index_t o = 0; o < w.shape.n; ++o) {
    for (index_t c = 0; c < w.shape.c; ++c) {
      for (index_t z = 0; z < k.z; ++z) {
        for (index_t y = 0; y < k.y; ++y) to = std::copy_n(&w(o, c, z, y, 0), k.x, to);
      }
    }
  }
}

template <class T>
Ready FftTiledEngine<T>::append_prepare(TaskGraph& graph, const Ready& ready,
                                        std::shared_ptr<const PrepareArguments> a) const {
  std::vector<TaskId> after;
  ready.collect(0, 0, problem_.w_shape().n, after);
  const TaskId packing = graph.add(
      {.name = "pack weights"}, [this, a] { pack(a->w.as<T>(), *a->prepared); }, after);
  if (!keep_weights_) return Ready::all_of({packing});
  return Ready::all_of(forward_.append_weight_spectra(
      graph, [this, a] { return packed(*a->prepared); },
      [a] { return static_cast<T*>(a->prepared->spectra.acquire(0)); }, a->prepared->memory, {packing}));
}

template <class T>
template <class Arguments>
std::vector<TaskId> FftTiledEngine<T>::append_own_spectra(TaskGraph& graph, const TiledVoxels<T>& direction,
                                                          const std::shared_ptr<const Arguments>& a,
                                                          const std::shared_ptr<BufferStore>& own,
                                                          const Ready& ready) const {
  std::vector<TaskId> after;
  ready.collect(0, 0, problem_.out_channels, after);
  own->init(a->memory, 1, bytes_of(direction.weights().elements()));
  return direction.append_weight_spectra(
      graph, [this, a] { return packed(*a->w); }, [own] { return static_cast<T*>(own->acquire(0)); }, a->memory, after);
}

template <class T>
Ready FftTiledEngine<T>::append_forward(TaskGraph& graph, const ConvReady& ready,
                                        std::shared_ptr<const ForwardArguments> a) const {
  const auto own = std::make_shared<BufferStore>();
  std::vector<TaskId> weights;
  if (keep_weights_) {
    ready.w.collect(0, 0, problem_.out_channels, weights);
  } else {
    weights = append_own_spectra(graph, forward_, a, own, ready.w);
  }
  const auto ends = [this, a, own] {
    const BufferStore& spectra = keep_weights_ ? a->w->spectra : *own;
    return GroupEnds<T>{.source = a->x.template as<T>(),
                        .target = a->y.template as<T>(),
                        .weights = static_cast<const T*>(spectra.get(0)),
                        .bias = problem_.epilogue.bias ? a->bias.template as<T>().data : nullptr,
                        .activation = problem_.epilogue.activation,
                        .memory = a->memory};
  };
  Ready done = forward_.append_groups(graph, ready.x, {}, weights, ends);
  if (!keep_weights_) {
    graph.add(
        {.name = "release weight spectra", .task_class = TaskClass::update}, [own] { own->release(); }, done.tasks());
  }
  return done;
}

template <class T>
Ready FftTiledEngine<T>::append_data(TaskGraph& graph, const ConvReady& ready,
                                     const std::shared_ptr<const BackwardArguments>& a) const {
  const auto own = std::make_shared<BufferStore>();
  const auto weights = append_own_spectra(graph, data_, a, own, ready.w);
  const auto ends = [this, a, own] {
    GroupEnds<T> result{.source = a->dy.template as<T>(),
                        .target = a->dx.template as<T>(),
                        .weights = static_cast<const T*>(own->get(0)),
                        .add = a->add_dx,
                        .memory = a->memory};
    if (problem_.epilogue.activation.kind != Activation::Kind::none) {
      result.gradient = &problem_.epilogue.activation;
      result.y = a->y.template as<T>();
    }
    return result;
  };
  Ready done = data_.append_groups(graph, ready.dy, ready.dx, weights, ends);
  graph.add(
      {.name = "release weight spectra", .task_class = TaskClass::update}, [own] { own->release(); }, done.tasks());
  return done;
}

template <class T>
ConvGradientReady FftTiledEngine<T>::append_backward(TaskGraph& graph, const ConvReady& ready,
                                                     std::shared_ptr<const BackwardArguments> a) const {
  ConvGradientReady result;
  if (a->dx) result.dx = append_data(graph, ready, a);
  if (a->dw) result.dw = weights_.append(graph, ready, a);
  if (a->dbias) result.dbias = append_bias_gradient<T>(graph, ready.dy, problem_, a);
  return result;
}

template <class T>
Offer make_offer(const ConvProblem& problem, const ConvOptions& options, const plan::TiledWays& ways) {
  auto engine = std::make_unique<FftTiledEngine<T>>(problem, options, ways);
  const double seconds = engine->seconds();
  return {std::move(engine), seconds};
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
  constexpr index_t largest_tile = 64;
  for (int axis = 0; axis < 3; ++axis) {
    if (problem.kernel[axis] > largest_tile) {
      return fmt::format("tiles have up to {} voxels, the kernel {}", largest_tile, problem.kernel[axis]);
    }
  }
  const auto choice = options.choice.empty() ? std::nullopt : std::optional(parse_choice(options.choice));
  const plan::TiledWays ways = tiled_ways(problem, choice);
  Offer offer = problem.groups != 1             ? offer_fft_depthwise(problem, ways)
                : problem.type == DataType::f32 ? make_offer<float>(problem, options, ways)
                                                : make_offer<double>(problem, options, ways);
  offer.choice = to_string(choice_of(Engine::fft_tiled, ways));
  return offer;
}

}  // namespace convolume::conv
