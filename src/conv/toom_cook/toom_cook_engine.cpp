// Convolution with kernels of 3 x 3 x 3 voxels by the Toom-Cook algorithm F(4,3) along each axis, often called Winograd
// (Lavin, Gray, "Fast algorithms for convolutional neural networks", 2016). Windows of 6 x 6 x 6 voxels give 4 x 4 x 4
// results with 216 real multiplications per pair of channels, instead of 1728. Planar kernels of 1 x 3 x 3 voxels need
// 36 for 4 x 4 results instead of 144, and kernels of 3 x 1 x 1 voxels need 6 for 4 results instead of 12.
//
// Values of voxels are never kept, because computing them again is faster than moving them. Values of weights are kept
// for the forward pass. Backward data computes its own from the packed weights.
#include "conv/toom_cook/toom_cook_engine.hpp"

#include <fmt/format.h>

#include "conv/caches/buffer_store.hpp"
#include "conv/caches/caches.hpp"
#include "conv/caches/run_buffers.hpp"
#include "conv/tensor_io/bias_gradient.hpp"
#include "conv/tensor_io/kernel_copy.hpp"
#include "conv/toom_cook/window_choice.hpp"
#include "conv/toom_cook/window_gradient.hpp"
#include "conv/toom_cook/window_voxels.hpp"
#include "convolume/machine.hpp"
#include "ops/append.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {
namespace {

using plan::Direction;

/// Kernels that a task copies at least: a few microseconds.
constexpr index_t least_kernels = 1024;

template <class T>
class ToomCookEngine final : public ConvEngine {
 public:
  ToomCookEngine(const ConvProblem& p, const ConvOptions& options)
      : problem_(p),
        sides_(p),
        forward_(sides_.convolution(), sides_.direction(Direction::forward)),
        data_(sides_.convolution(), sides_.direction(Direction::backward_data)),
        gradient_(p) {
    // A training iteration transforms the weights once in any case.
    const std::size_t bytes = bytes_of<T>(forward_.weight_elements());
    const double pairs = static_cast<double>(p.in_channels * p.out_channels);
    weights_ = {.name = "w_hat",
                .bytes = bytes,
                .seconds_saved = plan::window_weight_seconds(forward_.shape(), pairs, p.type, machine_model()),
                .kept = options.cache_spectra && (options.memory_budget == 0 || bytes <= options.memory_budget),
                .free_to_drop = true};
  }

  Ready append_prepare(TaskGraph& graph, const Ready& ready,
                       std::shared_ptr<const PrepareArguments> arguments) const override;
  Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                       std::shared_ptr<const ForwardArguments> arguments) const override;
  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const BackwardArguments> arguments) const override;

  void init_weights(PreparedWeights::Impl& w) const override {
    w.geometry = fmt::format("{} of {}{}, {}", key(), to_string(problem_.w_shape()),
                             sides_.y_is_high_res() ? " transposed" : "", weights_.kept ? "values" : "packed");
    w.spectra.init(w.memory, weights_.kept ? 1 : 0, weights_.bytes);
    w.packed.init(w.memory, 1, bytes_of<T>(problem_.w_shape().elements()));
    w.forward_only_spectra = true;  // backward data computes values of its own from the packed weights
  }
  void init_input_spectra(Spectra::Impl& s) const override { s.geometry = key() + " x: none kept"; }
  void init_gradient_spectra(Spectra::Impl& s) const override { s.geometry = key() + " dy: none kept"; }

  std::string numerics() const override {
    const plan::WindowSums& sums = gradient_.sums();
    return fmt::format(
        "{} points 0 11/16 23/16 infinity, channels in {} x {} and pairwise, weight gradient in {} windows x {} and "
        "pairwise",
        key(), plan::terms_in_register, plan::register_sums_in_turn, to_string(sums.chunk), plan::window_sums_in_turn);
  }
  std::vector<CacheCost> caches() const override { return {weights_}; }

 private:
  std::string key() const { return fmt::format("toom_cook {} {}", name_of(problem_.type), kernel_target()); }
  static const T* packed(const PreparedWeights::Impl& w) { return static_cast<const T*>(w.packed.get(0)); }

  /// Appends tasks that compute values of the weights for one run, in `own`, after the tasks in `after`.
  template <class Arguments>
  std::vector<TaskId> append_own_values(TaskGraph& graph, const WindowVoxels<T>& direction,
                                        const std::shared_ptr<const Arguments>& a,
                                        const std::shared_ptr<BufferStore>& own, std::vector<TaskId> after) const;
  Ready append_data(TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a) const;

  ConvProblem problem_;
  plan::Sides sides_;
  WindowVoxels<T> forward_, data_;
  WindowGradient<T> gradient_;
  BiasGradient<T> bias_{problem_};
  CacheCost weights_;
};

template <class T>
Ready ToomCookEngine<T>::append_prepare(TaskGraph& graph, const Ready& ready,
                                        std::shared_ptr<const PrepareArguments> a) const {
  const Shape5 shape = problem_.w_shape();
  std::vector<TaskId> after;
  ready.collect(0, 0, shape.n, after);
  const TaskId memory = graph.add(
      {.name = "take packed weights"}, [a] { a->prepared->packed.acquire(0); }, after);
  const std::vector<TaskId> packing = ops::append_ranges(
      graph, "pack weights", shape.n * shape.c, static_cast<double>(problem_.kernel.volume()), {memory},
      [a](index_t begin, index_t end) {
        copy_kernels(a->w.as<T>(), begin, end, static_cast<T*>(a->prepared->packed.acquire(0)));
      },
      0, least_kernels);
  // Backward data reads the packed weights only.
  const bool forward = a->prepared->readers != PreparedWeights::Impl::Readers::backward_data;
  if (!weights_.kept || !forward) return Ready::all_of(packing);
  return Ready::all_of(forward_.append_weights(
      graph, [a] { return packed(*a->prepared); }, [a] { return static_cast<T*>(a->prepared->spectra.acquire(0)); },
      a->prepared->memory, packing));
}

template <class T>
template <class Arguments>
std::vector<TaskId> ToomCookEngine<T>::append_own_values(TaskGraph& graph, const WindowVoxels<T>& direction,
                                                         const std::shared_ptr<const Arguments>& a,
                                                         const std::shared_ptr<BufferStore>& own,
                                                         std::vector<TaskId> after) const {
  return direction.append_weights(
      graph, [a] { return packed(*a->w); }, [own] { return static_cast<T*>(own->acquire(0)); }, a->memory, after);
}

template <class T>
Ready ToomCookEngine<T>::append_forward(TaskGraph& graph, const ConvReady& ready,
                                        std::shared_ptr<const ForwardArguments> a) const {
  const auto own = make_store(a->memory, weights_.kept ? 0 : 1, weights_.bytes);
  const RunBuffers buffers(graph, a->workspace, own);
  std::vector<TaskId> weights = buffers.ready();
  ready.w.collect(0, 0, problem_.w_shape().n, weights);
  if (!weights_.kept) weights = append_own_values(graph, forward_, a, own, std::move(weights));
  const auto tensors = [this, a, own] {
    const BufferStore& values = weights_.kept ? a->w->spectra : *own;
    return group_tensors(problem_, *a, static_cast<const T*>(values.get(0)));
  };
  Ready done = forward_.append_groups(graph, ready.x, {}, weights, tensors);
  buffers.end(graph, "free weight values", done.tasks());
  return done;
}

template <class T>
Ready ToomCookEngine<T>::append_data(TaskGraph& graph, const ConvReady& ready,
                                     const std::shared_ptr<const BackwardArguments>& a) const {
  const auto own = make_store(a->memory, 1, bytes_of<T>(data_.weight_elements()));
  const RunBuffers buffers(graph, a->workspace, own);
  std::vector<TaskId> weights = buffers.ready();
  ready.w.collect(0, 0, problem_.w_shape().n, weights);
  // The memory is taken only when it is needed, because later layers may still hold their own values.
  ready.dy.collect(0, 0, 1, 0, 1, weights);
  weights = append_own_values(graph, data_, a, own, std::move(weights));
  const auto tensors = [this, a, own] { return group_tensors(problem_, *a, static_cast<const T*>(own->get(0))); };
  Ready done = data_.append_groups(graph, ready.dy, ready.dx, weights, tensors);
  buffers.end(graph, "free weight values", done.tasks());
  return done;
}

template <class T>
ConvGradientReady ToomCookEngine<T>::append_backward(TaskGraph& graph, const ConvReady& ready,
                                                     std::shared_ptr<const BackwardArguments> a) const {
  return append_gradients<T>(
      graph, ready, bias_, a, [&] { return append_data(graph, ready, a); },
      [&] { return gradient_.append(graph, ready, a); });
}

std::string unsupported_reason(const ConvProblem& problem, const ConvOptions&, const ChoiceParts* parts) {
  if (is_depthwise(problem)) return not_depthwise;
  const plan::Sides sides(problem);
  std::string reason = plan::toom_cook_unsupported_reason(sides.convolution());
  const auto* windows = dynamic_cast<const WindowParts*>(parts);
  if (reason.empty() && windows != nullptr) reason = reason_against_windows(problem, *windows);
  return reason;
}

Estimate estimate(const ConvProblem& problem, const ConvOptions& options, const MachineModel& machine,
                  const ChoiceParts*) {
  const plan::Sides sides(problem);
  const ConvProblem& dense = sides.convolution();
  return {.seconds = plan::toom_cook_seconds(dense, wanted_of(problem, options), machine),
          .bytes = plan::toom_cook_bytes(dense, wanted_of(problem, options)),
          .parts = propose_windows(problem, options, 1).front()};
}

std::unique_ptr<ConvEngine> create(const ConvProblem& problem, const ConvOptions& options, const ChoiceParts*) {
  return create_for_type<ToomCookEngine>(problem, options);
}

/// Returns why `automatic` does not choose the engine with this SIMD target: it was not measured there, or it loses too
/// often (docs/performance/log/toom_cook.md).
std::string by_name_reason() {
  const std::string target = simd_target();
  if (target == "AVX2") return {};
  if (target == "AVX3") return "slower than others on too many layers with AVX3; name the engine to use it";
  return fmt::format("not measured with {} yet; name the engine to use it", target);
}

}  // namespace

Implementation toom_cook_implementation() {
  return {.engine = Engine::toom_cook,
          .name = "toom_cook",
          .group_by_group = true,
          .unsupported_reason = unsupported_reason,
          .estimate = estimate,
          .create = create,
          .propose = propose_windows,
          .parse = parse_window_parts,
          .form = window_form,
          .larger_error = true,
          .some_layers_only = true,
          .by_name_reason = by_name_reason};
}

}  // namespace convolume::conv
