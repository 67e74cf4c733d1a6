// Convolution by tiles (overlap-save) in the frequency domain. Channels are the lanes of vectors, so transforms need no
// shuffles, and the sum over channels is one complex matrix product per frequency (Zlateski, Jia, Li, Durand 2018).
//
// A group of tiles is transformed, multiplied and inverted at once, so that its spectra stay in the caches. The
// weight gradient, which sums over tiles, processes all tiles together. If all directions share the tiles of y, the
// forward pass stores the spectra of x for the weight gradient, and backward data stores the spectra of dy. Backward
// data then adds the overlapping results of neighbouring tiles.
//
// Strided and dilated convolutions are split into dense convolutions of polyphase components (plan/polyphase.hpp).
// Transposed convolutions swap forward and backward data.
#include "conv/tiled/fft_tiled_engine.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "conv/caches/buffer_store.hpp"
#include "conv/caches/caches.hpp"
#include "conv/caches/run_buffers.hpp"
#include "conv/caches/source_hash.hpp"
#include "conv/spectra/tiled_choice.hpp"
#include "conv/tensor_io/bias_gradient.hpp"
#include "conv/tensor_io/kernel_copy.hpp"
#include "conv/tiled/tiled_voxels.hpp"
#include "conv/tiled/tiled_weight_gradient.hpp"
#include "convolume/machine.hpp"
#include "plan/cost_constants.hpp"
#include "plan/sides.hpp"
#include "plan/tiled_support.hpp"

namespace convolume::conv {
namespace {

/// Elements of weights that a task copies at least: about 3 us. Smaller tasks would take less time than to hand them
/// out.
constexpr index_t least_packed_elements = 32768;

using plan::Direction;

template <class Arguments>
std::vector<TaskId> hash_source(TaskGraph& graph, const Ready& x, const std::shared_ptr<const Arguments>& a) {
  if (!checks_sources()) return {};
  return {graph.add(
      {.name = "hash input"}, [a] { a->x_hat->source_hash[0] = hash_tensor(a->x); }, x.tasks())};
}

template <class Arguments>
std::vector<TaskId> check_source(TaskGraph& graph, const Ready& x, const std::shared_ptr<const Arguments>& a) {
  if (!checks_sources()) return {};
  return {graph.add(
      {.name = "check input spectra"},
      [a] {
        if (a->x_hat->source_hash[0] == hash_tensor(a->x)) return;
        throw StaleCache(
            "convolution: x_hat does not hold the spectra of x; run forward on this x with this cache first");
      },
      x.tasks())};
}

template <class T>
class FftTiledEngine final : public ConvEngine {
 public:
  FftTiledEngine(const ConvProblem& p, const ConvOptions& options, const plan::Tilings& tilings)
      : problem_(p),
        sides_(p),
        tilings_(tilings),
        forward_(sides_.convolution(), sides_.direction(Direction::forward),
                 tilings_.of(sides_.direction(Direction::forward)), Counted::input, false, meter_),
        data_(sides_.convolution(), sides_.direction(Direction::backward_data),
              tilings_.of(sides_.direction(Direction::backward_data)), Counted::gradient,
              p.epilogue.activation.kind != Activation::Kind::none, meter_),
        weights_(sides_, p.epilogue.activation, tilings_, meter_) {
    share_out(options);
  }

  Ready append_prepare(TaskGraph& graph, const Ready& ready,
                       std::shared_ptr<const PrepareArguments> arguments) const override;
  Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                       std::shared_ptr<const ForwardArguments> arguments) const override;
  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const BackwardArguments> arguments) const override;

  void init_weights(PreparedWeights::Impl& w) const override {
    w.geometry = fmt::format("{} forward {} of {} step {}{}, {}", key(), to_string(forward_.tile()),
                             to_string(problem_.w_shape()), to_string(problem_.stride),
                             sides_.y_is_high_res() ? " transposed" : "", keep_weights_ ? "spectra" : "packed");
    w.spectra.init(w.memory, keep_weights_ ? 1 : 0, bytes_of(forward_.weights().elements()));
    w.packed.init(w.memory, 1, bytes_of(problem_.w_shape().elements()));
    w.forward_only_spectra = true;  // backward data computes spectra for its own tiles from the packed weights
  }
  void init_input_spectra(Spectra::Impl& s) const override {
    s.geometry = key() + " x: none kept";
    if (!keep_input_) return;
    s.geometry = fmt::format("{} {} tiles {} step {} from {} of x {}", key(), to_string(tilings_.forward.count),
                             to_string(tilings_.forward.tile), to_string(tilings_.forward.valid),
                             to_string(problem_.pad_before), to_string(problem_.x_shape()));
    s.maps.init(s.memory, 1, bytes_of(forward_.kept().elements()));
    s.source_hash.assign(1, 0);
  }
  // Spectra of dy are passed from backward data to the weight gradient within one backward pass.
  void init_gradient_spectra(Spectra::Impl& s) const override { s.geometry = key() + " dy: none kept"; }

  std::string numerics() const override {
    return fmt::format("fft_tiled forward {}; backward data {}; backward weights {}", forward_.describe(),
                       data_.describe(), weights_.describe());
  }
  std::vector<CacheCost> caches() const override { return caches_; }
  TransformCounts transforms() const noexcept override { return meter_.counts(); }
  bool x_hat_replaces_x() const noexcept override { return keep_input_ && !checks_sources(); }

 private:
  void share_out(const ConvOptions& options);
  static std::size_t bytes_of(index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }
  std::string key() const { return fmt::format("fft_tiled {} {}", name_of(problem_.type), kernel_target()); }

  View<const T> packed(const PreparedWeights::Impl& w) const {
    return {static_cast<const T*>(w.packed.get(0)), problem_.w_shape()};
  }
  /// Appends tasks that compute weight spectra for one run, after the tasks in `after`.
  template <class Arguments>
  std::vector<TaskId> append_own_spectra(TaskGraph& graph, const TiledVoxels<T>& direction,
                                         const std::shared_ptr<const Arguments>& a,
                                         const std::shared_ptr<BufferStore>& own, std::vector<TaskId> after) const;
  std::vector<TaskId> append_input_spectra(TaskGraph& graph, const Ready& x, const std::vector<TaskId>& weights,
                                           const std::shared_ptr<const ForwardArguments>& a) const;
  Ready append_data(TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a,
                    SharedSpectra& shared) const;

  ConvProblem problem_;
  plan::Sides sides_;
  plan::Tilings tilings_;
  mutable TransformMeter meter_;
  TiledVoxels<T> forward_, data_;
  TiledWeightGradient<T> weights_;
  BiasGradient<T> bias_{problem_};
  std::vector<CacheCost> caches_;
  bool keep_weights_ = true, keep_input_ = false, share_gradient_ = false;
};

/// Decides which spectra are kept within the budget. Caches that save the most time per byte come first. Spectra of dy
/// do not count, because they exist during one backward pass only.
template <class T>
void FftTiledEngine<T>::share_out(const ConvOptions& options) {
  const MachineModel& machine = machine_model();
  const double rate = machine.spilled_tile_transform_share * 1e9 * machine.gflops_per_core;
  const double tiles = static_cast<double>(problem_.batch * tilings_.forward.count.volume());
  const double repeated = plan::repeated_transform_factor * tiles;
  using Content = CacheCost::Content;
  // A training iteration transforms the weights once in any case.
  caches_ = {{.name = "w_hat",
              .bytes = bytes_of(forward_.weights().elements()),
              .seconds_saved = forward_.kernel_flops() / rate,
              .free_to_drop = true},
             {.name = "x_hat",
              .bytes = bytes_of(forward_.kept().elements()),
              .seconds_saved = repeated * forward_.source_flops() / rate,
              .content = Content::input},
             {.name = "dy_hat",
              .bytes = bytes_of(data_.kept().elements()),
              .seconds_saved = repeated * data_.source_flops() / rate,
              .budgeted = false,
              .content = Content::gradient}};
  if (!tilings_.shared) caches_.resize(1);
  std::stable_sort(caches_.begin(), caches_.end(), more_saved_per_byte);
  std::size_t held = 0;
  for (CacheCost& cache : caches_) {
    const std::size_t bytes = cache.budgeted ? cache.bytes : 0;
    cache.kept = options.cache_spectra && (options.memory_budget == 0 || held + bytes <= options.memory_budget);
    if (cache.kept) held += bytes;
    if (cache.content == Content::weights) keep_weights_ = cache.kept;
    if (cache.content == Content::input) keep_input_ = cache.kept;
    if (cache.content == Content::gradient) share_gradient_ = cache.kept;
  }
}

template <class T>
Ready FftTiledEngine<T>::append_prepare(TaskGraph& graph, const Ready& ready,
                                        std::shared_ptr<const PrepareArguments> a) const {
  std::vector<TaskId> after;
  ready.collect(0, 0, problem_.w_shape().n, after);
  const Shape5 shape = problem_.w_shape();
  const index_t pairs = shape.n * shape.c, taps = problem_.kernel.volume();
  const index_t least = std::max<index_t>(1, least_packed_elements / taps);
  // A single task takes the memory itself.
  if (ops::numbers_per_task(pairs, least) < pairs) {
    after = {graph.add(
        {.name = "take packed weights"}, [a] { a->prepared->packed.acquire(0); }, after)};
  }
  const std::vector<TaskId> packing = ops::append_ranges(
      graph, "pack weights", pairs, static_cast<double>(taps), after,
      [a](index_t begin, index_t end) {
        copy_kernels(a->w.as<T>(), begin, end, static_cast<T*>(a->prepared->packed.acquire(0)));
      },
      0, least);
  // Backward data reads the packed weights only.
  const bool forward = a->prepared->readers != PreparedWeights::Impl::Readers::backward_data;
  if (!keep_weights_ || !forward) return Ready::all_of(packing);
  return Ready::all_of(forward_.append_weight_spectra(
      graph, [this, a] { return packed(*a->prepared); },
      [a] { return static_cast<T*>(a->prepared->spectra.acquire(0)); }, a->prepared->memory, packing));
}

template <class T>
template <class Arguments>
std::vector<TaskId> FftTiledEngine<T>::append_own_spectra(TaskGraph& graph, const TiledVoxels<T>& direction,
                                                          const std::shared_ptr<const Arguments>& a,
                                                          const std::shared_ptr<BufferStore>& own,
                                                          std::vector<TaskId> after) const {
  return direction.append_weight_spectra(
      graph, [this, a] { return packed(*a->w); }, [own] { return static_cast<T*>(own->acquire(0)); }, a->memory, after);
}

/// Returns the tasks that groups of tiles wait for if the spectra of x are kept.
template <class T>
std::vector<TaskId> FftTiledEngine<T>::append_input_spectra(TaskGraph& graph, const Ready& x,
                                                            const std::vector<TaskId>& weights,
                                                            const std::shared_ptr<const ForwardArguments>& a) const {
  if (!keep_input_ || a->x_hat == nullptr) return {};
  // GroupedEngine fills the bindings of its groups in a task of the run. Every task that reads bindings must come after
  // this task, and so it waits for a bound tensor.
  std::vector<TaskId> first = weights;
  x.collect(0, 0, 1, 0, 1, first);
  std::vector<TaskId> tasks{graph.add(
      {.name = "take input spectra"}, [a] { a->x_hat->maps.acquire(0); }, first)};
  for (const TaskId task : hash_source(graph, x, a)) tasks.push_back(task);
  return tasks;
}

template <class T>
Ready FftTiledEngine<T>::append_forward(TaskGraph& graph, const ConvReady& ready,
                                        std::shared_ptr<const ForwardArguments> a) const {
  const auto own = make_store(a->memory, keep_weights_ ? 0 : 1, bytes_of(forward_.weights().elements()));
  const RunBuffers buffers(graph, a->workspace, own);
  std::vector<TaskId> weights = buffers.ready();
  ready.w.collect(0, 0, problem_.w_shape().n, weights);
  if (!keep_weights_) weights = append_own_spectra(graph, forward_, a, own, std::move(weights));
  for (const TaskId task : append_input_spectra(graph, ready.x, weights, a)) weights.push_back(task);
  const auto tensors = [this, a, own] {
    const BufferStore& spectra = keep_weights_ ? a->w->spectra : *own;
    auto result = group_tensors(problem_, *a, static_cast<const T*>(spectra.get(0)));
    if (!keep_input_ || a->x_hat == nullptr) return result;
    result.keep = static_cast<T*>(a->x_hat->maps.acquire(0));
    return result;
  };
  Ready done = forward_.append_groups(graph, ready.x, {}, weights, tensors);
  buffers.end(graph, "free weight spectra", done.tasks());
  return done;
}

template <class T>
Ready FftTiledEngine<T>::append_data(TaskGraph& graph, const ConvReady& ready,
                                     const std::shared_ptr<const BackwardArguments>& a, SharedSpectra& shared) const {
  // The weight gradient begins when all spectra of dy are complete. Then the spectra of the weights are no longer
  // needed, and their memory serves for its sums.
  const bool shares = share_gradient_ && a->dw;
  const std::size_t bytes = bytes_of(data_.weights().elements());
  const auto own = make_store(a->memory, 1, shares ? std::max(bytes, weights_.sums_bytes()) : bytes);
  const RunBuffers buffers(graph, a->workspace, own);
  std::vector<TaskId> weights = buffers.ready();
  ready.w.collect(0, 0, problem_.w_shape().n, weights);
  auto before = append_own_spectra(graph, data_, a, own, std::move(weights));
  if (shares) {
    shared.dy = make_store(a->memory, 1, bytes_of(data_.kept().elements()));
    shared.dy_buffers.emplace(graph, a->workspace, shared.dy);
    // The memory is taken only when it is needed, because later layers may still hold their own spectra of dy.
    std::vector<TaskId> first = shared.dy_buffers->ready();
    ready.dy.collect(0, 0, problem_.out_channels, 0, 1, first);
    before.push_back(graph.add(
        {.name = "take gradient spectra"}, [dy = shared.dy] { dy->acquire(0); }, first));
  }
  const auto tensors = [this, a, own, dy_hat = shared.dy] {
    auto result = group_tensors(problem_, *a, static_cast<const T*>(own->get(0)));
    if (dy_hat) result.keep = static_cast<T*>(dy_hat->acquire(0));
    return result;
  };
  Ready done = data_.append_groups(graph, ready.dy, ready.dx, before, tensors);
  if (shares) {
    shared.ready = done.tasks();
    shared.sums = own;
    shared.sums_buffers = buffers;
  } else {
    buffers.end(graph, "free weight spectra", done.tasks());
  }
  return done;
}

template <class T>
ConvGradientReady FftTiledEngine<T>::append_backward(TaskGraph& graph, const ConvReady& ready,
                                                     std::shared_ptr<const BackwardArguments> a) const {
  SharedSpectra shared;
  const auto append_weights = [&] {
    if (keep_input_ && a->x_hat != nullptr) {
      shared.x = true;
      for (const TaskId task : check_source(graph, ready.x & ready.dy, a)) shared.ready.push_back(task);
    }
    return weights_.append(graph, ready, a, shared);
  };
  return append_gradients<T>(
      graph, ready, bias_, a, [&] { return append_data(graph, ready, a, shared); }, append_weights);
}

std::string unsupported_reason(const ConvProblem& problem, const ConvOptions&, const ChoiceParts*) {
  if (is_depthwise(problem)) return not_depthwise;
  return plan::tiles_unsupported_reason(problem);
}

Estimate estimate(const ConvProblem& problem, const ConvOptions& options, const MachineModel& machine,
                  const ChoiceParts* parts) {
  const plan::Tilings tilings = tilings_of(problem, wanted_of(problem, options), parts, machine);
  return {tilings.seconds(), plan::tiled_bytes(plan::Sides(problem).convolution(), tilings),
          parts_of(problem, tilings)};
}

std::unique_ptr<ConvEngine> create(const ConvProblem& problem, const ConvOptions& options, const ChoiceParts* parts) {
  const plan::Tilings tilings = tilings_of(problem, wanted_of(problem, options), parts, machine_model());
  return create_for_type<FftTiledEngine>(problem, options, tilings);
}

}  // namespace

Implementation fft_tiled_implementation() {
  return {Engine::fft_tiled, "fft_tiled",       true,      unsupported_reason, estimate, create,
          propose_tiles,     parse_tiled_parts, tiled_form};
}

}  // namespace convolume::conv
