// Direct depthwise convolution: the channels of a voxel are lanes, and each result is a sum over taps alone. Suits
// small kernels, for which a transform takes longer, and strides.
#include <algorithm>

#include <fmt/format.h>

#include "conv/caches/buffer_store.hpp"
#include "conv/caches/caches.hpp"
#include "conv/caches/run_buffers.hpp"
#include "conv/choice.hpp"
#include "conv/depthwise/depthwise_engines.hpp"
#include "conv/depthwise/direct_depthwise.hpp"
#include "conv/taps/tap_geometry.hpp"
#include "conv/tensor_io/bias_gradient.hpp"
#include "conv/tensor_io/direction_tensors.hpp"
#include "convolume/cpu.hpp"
#include "plan/cost_model.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {
namespace {

using plan::Direction;

template <class T>
class DirectDepthwiseEngine final : public ConvEngine {
 public:
  explicit DirectDepthwiseEngine(const ConvProblem& p)
      : problem_(p),
        sides_(p),
        to_low_res_(sides_.convolution(), Direction::forward),
        to_high_res_(sides_.convolution(), Direction::backward_data),
        gradient_(sides_.convolution(), to_low_res_),
        blocks_((p.in_channels + lanes - 1) / lanes) {}

  Ready append_prepare(TaskGraph& graph, const Ready& ready,
                       std::shared_ptr<const PrepareArguments> arguments) const override;
  Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                       std::shared_ptr<const ForwardArguments> arguments) const override;
  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const BackwardArguments> arguments) const override;

  void init_weights(PreparedWeights::Impl& w) const override {
    w.geometry = fmt::format("direct depthwise {} of {}", name_of(problem_.type), to_string(problem_.w_shape()));
    w.packed.init(w.memory, 1, bytes_of(blocks_ * taps() * lanes));
  }
  void init_input_spectra(Spectra::Impl& s) const override { s.geometry = "direct depthwise"; }
  void init_gradient_spectra(Spectra::Impl& s) const override { s.geometry = "direct depthwise"; }

  std::string numerics() const override {
    return fmt::format("direct depthwise {} {}: sums of rows of taps, {} taps or one row together; backward weights {}",
                       name_of(problem_.type), kernel_target(), depthwise_taps_per_pass, gradient_.describe());
  }

 private:
  static constexpr index_t lanes = fft::tile_lanes<T>;
  static std::size_t bytes_of(index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }
  index_t taps() const { return problem_.kernel.volume(); }
  index_t end_channel(index_t block) const { return std::min((block + 1) * lanes, problem_.in_channels); }

  template <class Arguments, class Tensors>
  Ready append_boxes(TaskGraph& graph, bool high_res, const Ready& source, const Ready& target, const Ready& weights,
                     const std::shared_ptr<const Arguments>& a, const Tensors& tensors) const;
  Ready append_data(TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a) const;
  std::vector<TaskId> append_sums(TaskGraph& graph, const ConvReady& ready,
                                  const std::shared_ptr<const BackwardArguments>& a,
                                  const std::shared_ptr<BufferStore>& own, TaskId memory, index_t block) const;
  Ready append_weights(TaskGraph& graph, const ConvReady& ready,
                       const std::shared_ptr<const BackwardArguments>& a) const;

  ConvProblem problem_;
  plan::Sides sides_;
  // From the high-resolution side to the low-resolution side, and back.
  DepthwiseDirection<T> to_low_res_, to_high_res_;
  DepthwiseGradient<T> gradient_;
  BiasGradient<T> bias_{problem_};
  index_t blocks_;  // of channels
};

/// Packs the weights as [channel block][tap][lane], with zeros in lanes without a channel.
template <class T>
Ready DirectDepthwiseEngine<T>::append_prepare(TaskGraph& graph, const Ready& ready,
                                               std::shared_ptr<const PrepareArguments> a) const {
  std::vector<TaskId> after;
  ready.collect(0, 0, problem_.in_channels, after);
  const auto pack = [this, a] {
    T* packed = static_cast<T*>(a->prepared->packed.acquire(0));
    const View<const T> w = a->w.template as<T>();
    for (index_t block = 0; block < blocks_; ++block, packed += taps() * lanes) {
      const BlockView<const T> kernels = kernel_block(w, block * lanes);
      to_low_res_.boxes.load({.block = kernels, .extent = kernels.extent}, packed, nullptr);
    }
  };
  return Ready::all_of(
      {graph.add({.name = "pack weights", .cost = static_cast<double>(problem_.in_channels * taps())}, pack, after)});
}

/// Appends the tasks that compute one side from the other. `tensors()` returns the tensors that a box reads and writes.
template <class T>
template <class Arguments, class Tensors>
Ready DirectDepthwiseEngine<T>::append_boxes(TaskGraph& graph, bool high_res, const Ready& source, const Ready& target,
                                             const Ready& weights, const std::shared_ptr<const Arguments>& a,
                                             const Tensors& tensors) const {
  const DepthwiseDirection<T>& d = high_res ? to_high_res_ : to_low_res_;
  const RegionGrid& grid = d.grid;
  const double cost = problem_.flops() / static_cast<double>(problem_.batch * blocks_ * grid.per_sample());
  std::vector<TaskId> done;
  for (index_t n = 0; n < problem_.batch; ++n) {
    for (index_t block = 0; block < blocks_; ++block) {
      for (index_t z = 0; z < grid.count.z; ++z) {
        std::vector<TaskId> z_range;
        for (index_t y = 0; y < grid.count.y; ++y) {
          const Box box = grid.box(z * grid.count.y + y, d.map.domain()), window = d.map.window(box);
          std::vector<TaskId> after;
          weights.collect(0, 0, problem_.w_shape().n, after);
          source.collect(n, block * lanes, end_channel(block), std::max<index_t>(0, window.begin.z),
                         std::max<index_t>(1, window.end.z), after);
          target.collect(n, block * lanes, end_channel(block), box.begin.z, box.end.z, after);
          const Region region{.sample = n, .box = box, .first_column = block};
          const auto run = [&d, a, tensors, region] {
            run_depthwise(d, region, tensors(), static_cast<const T*>(a->w->packed.get(0)), a->memory);
          };
          const std::size_t scratch = depthwise_scratch_bytes(d, region, tensors());
          z_range.push_back(graph.add({.name = "depthwise box", .cost = cost, .scratch_bytes = scratch}, run, after));
        }
        done.push_back(z_range.size() == 1 ? z_range.front()
                                           : graph.add(
                                                 {.name = "join boxes"}, [] {}, z_range));
      }
    }
  }
  return Ready(std::move(done), blocks_, grid.count.z, lanes, grid.extent.z);
}

template <class T>
Ready DirectDepthwiseEngine<T>::append_forward(TaskGraph& graph, const ConvReady& ready,
                                               std::shared_ptr<const ForwardArguments> a) const {
  return append_boxes(graph, sides_.y_is_high_res(), ready.x, {}, ready.w, a,
                      [this, a] { return direction_tensors<T>(problem_, *a); });
}

template <class T>
Ready DirectDepthwiseEngine<T>::append_data(TaskGraph& graph, const ConvReady& ready,
                                            const std::shared_ptr<const BackwardArguments>& a) const {
  return append_boxes(graph, !sides_.y_is_high_res(), ready.dy, ready.dx, ready.w, a,
                      [this, a] { return direction_tensors<T>(problem_, *a); });
}

/// Appends tasks that compute the sums of all parts of a channel block.
template <class T>
std::vector<TaskId> DirectDepthwiseEngine<T>::append_sums(TaskGraph& graph, const ConvReady& ready,
                                                          const std::shared_ptr<const BackwardArguments>& a,
                                                          const std::shared_ptr<BufferStore>& own, TaskId memory,
                                                          index_t block) const {
  const Ready &high_res = sides_.high_res(ready.x, ready.dy), &low_res = sides_.low_res(ready.x, ready.dy);
  const RegionGrid& grid = to_low_res_.grid;
  const double cost = problem_.flops() / static_cast<double>(gradient_.parts() * blocks_);
  std::vector<TaskId> tasks;
  for (index_t part = 0; part < gradient_.parts(); ++part) {
    std::vector<TaskId> after{memory};
    for (index_t i = gradient_.first_box(part); i < gradient_.first_box(part + 1); ++i) {
      const Box box = grid.box(i % grid.per_sample(), to_low_res_.map.domain()),
                window = input_window(sides_.convolution(), box);
      const index_t n = i / grid.per_sample();
      high_res.collect(n, block * lanes, end_channel(block), window.begin.z, window.end.z, after);
      low_res.collect(n, block * lanes, end_channel(block), box.begin.z, box.end.z, after);
    }
    tasks.push_back(graph.add(
        {.name = "depthwise sums",
         .cost = cost,
         .scratch_bytes = gradient_.scratch_bytes(gradient_tensors<T>(problem_, sides_, *a), part)},
        [this, a, own, part, block] {
          gradient_.sum(gradient_tensors<T>(problem_, sides_, *a), part, block, static_cast<T*>(own->acquire(0)));
        },
        after));
  }
  return tasks;
}

template <class T>
Ready DirectDepthwiseEngine<T>::append_weights(TaskGraph& graph, const ConvReady& ready,
                                               const std::shared_ptr<const BackwardArguments>& a) const {
  const auto own = make_store(a->memory, 1, bytes_of(gradient_.elements()));
  const RunBuffers buffers(graph, a->workspace, own);
  // The memory is taken only when it is needed, because later layers may still hold their own sums.
  std::vector<TaskId> first = buffers.ready();
  ready.dy.collect(0, 0, 1, 0, 1, first);
  const TaskId memory = graph.add(
      {.name = "take weight sums"}, [own] { own->acquire(0); }, first);
  std::vector<TaskId> done;
  for (index_t block = 0; block < blocks_; ++block) {
    const auto sums = append_sums(graph, ready, a, own, memory, block);
    done.push_back(graph.add(
        {.name = "weight gradient",
         .cost = static_cast<double>(gradient_.parts() * taps() * lanes),
         .scratch_bytes = gradient_.finish_scratch_bytes()},
        [this, a, own, block] { gradient_.finish(*a, block, static_cast<T*>(own->acquire(0))); }, sums));
  }
  buffers.end(graph, "free weight sums", done);
  return Ready(std::move(done), blocks_, 1, lanes, 1);
}

template <class T>
ConvGradientReady DirectDepthwiseEngine<T>::append_backward(TaskGraph& graph, const ConvReady& ready,
                                                            std::shared_ptr<const BackwardArguments> a) const {
  return append_gradients<T>(
      graph, ready, bias_, a, [&] { return append_data(graph, ready, a); },
      [&] { return append_weights(graph, ready, a); });
}

std::string direct_unsupported_reason(const ConvProblem& problem, const ConvOptions&, const ChoiceParts* parts) {
  if (!is_depthwise(problem)) return depthwise_only;
  if (leaves_out_voxels(problem)) return no_cropped_volumes;
  if (parts != nullptr) {
    return "depthwise convolutions sum over no channels and run no nests; leave the nests out";
  }
  return {};
}

Estimate direct_estimate(const ConvProblem& problem, const ConvOptions& options, const MachineModel& machine,
                         const ChoiceParts*) {
  const double weights = static_cast<double>(problem.w_shape().elements()) * static_cast<double>(size_of(problem.type));
  const plan::Sides sides(problem);
  return {plan::direct_depthwise_seconds(sides.convolution(), sides.wanted(wanted_of(options)), machine), 2 * weights};
}

std::unique_ptr<ConvEngine> create_direct(const ConvProblem& problem, const ConvOptions&, const ChoiceParts*) {
  return create_for_type<DirectDepthwiseEngine>(problem);
}

}  // namespace

Implementation direct_depthwise_implementation() {
  return {Engine::direct, "direct depthwise", false, direct_unsupported_reason, direct_estimate, create_direct};
}

}  // namespace convolume::conv
