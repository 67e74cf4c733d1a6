// Direct convolution: sums over channels and taps, computed by a microkernel whose lanes are channels of the result.
// Suits kernels of one voxel and small deep layers, for which a transform takes longer.
#include "conv/direct/direct_engine.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "conv/caches/buffer_store.hpp"
#include "conv/caches/caches.hpp"
#include "conv/caches/run_buffers.hpp"
#include "conv/caches/scratch.hpp"
#include "conv/direct/direct_nest.hpp"
#include "conv/direct/direct_region.hpp"
#include "conv/direct/direct_weights.hpp"
#include "conv/direct/nest_choice.hpp"
#include "conv/taps/tap_geometry.hpp"
#include "conv/tensor_io/bias_gradient.hpp"
#include "conv/tensor_io/direction_tensors.hpp"
#include "convolume/blocking.hpp"
#include "convolume/cpu.hpp"
#include "ops/append.hpp"
#include "plan/cost_model.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {
namespace {

using plan::Direction;

/// Elements of weights that a task reorders at least: about 2 us. Smaller tasks would take less time than to hand them
/// out.
constexpr index_t least_packed_elements = 8192;

template <class T>
class DirectEngine final : public ConvEngine {
 public:
  DirectEngine(const ConvProblem& p, const Nests& nests)
      : problem_(p),
        sides_(p),
        to_low_res_(voxels(p, nests, Direction::forward)),
        to_high_res_(voxels(p, nests, Direction::backward_data)),
        gradient_(p, nests[static_cast<std::size_t>(Direction::backward_weights)]),
        non_temporal_(writes_copies_non_temporal(to_low_res_.weights)) {}

  Ready append_prepare(TaskGraph& graph, const Ready& ready,
                       std::shared_ptr<const PrepareArguments> arguments) const override;
  Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                       std::shared_ptr<const ForwardArguments> arguments) const override;
  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const BackwardArguments> arguments) const override;

  void init_weights(PreparedWeights::Impl& w) const override {
    w.geometry = fmt::format("direct {} of {}", name_of(problem_.type), to_string(problem_.w_shape()));
    w.packed.init(w.memory, 1, bytes_of(to_low_res_.weights.elements()));
  }
  void init_input_spectra(Spectra::Impl& s) const override { s.geometry = "direct"; }
  void init_gradient_spectra(Spectra::Impl& s) const override { s.geometry = "direct"; }

  /// The choice says the rest: its nests are the order of all sums.
  std::string numerics() const override { return fmt::format("direct {} {}", name_of(problem_.type), kernel_target()); }

 private:
  static constexpr index_t block = fft::tile_lanes<T>;
  /// Returns the direction of `p` that is `of_convolution` of its convolution without transposition.
  static VoxelDirection<T> voxels(const ConvProblem& p, const Nests& nests, Direction of_convolution) {
    const Direction direction = plan::Sides(p).direction(of_convolution);
    return VoxelDirection<T>(p, direction, nests[static_cast<std::size_t>(direction)]);
  }
  /// Returns whether the regions of the only pass that reads these weights pack them.
  bool regions_pack(const PreparedWeights::Impl& w) const {
    if (w.readers == PreparedWeights::Impl::Readers::all) return false;
    const bool high_res = (w.readers == PreparedWeights::Impl::Readers::forward) == sides_.y_is_high_res();
    return (high_res ? to_high_res_ : to_low_res_).can_pack;
  }
  /// Returns the weights that regions read. The rows of a tensor are channels of the low-resolution side.
  static RegionWeights<T> region_weights(const PreparedWeights::Impl& w, bool high_res, bool packs) {
    if (!packs) return {.packed = static_cast<const T*>(w.packed.get(0))};
    View<const T> tensor = w.tensor.as<T>();
    if (high_res) {
      std::swap(tensor.shape.n, tensor.shape.c);
      std::swap(tensor.stride[0], tensor.stride[1]);
    }
    return {.tensor = tensor};
  }
  static std::size_t bytes_of(index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }

  template <class Body>
  Ready append_packing_by_lanes(TaskGraph& graph, const std::vector<TaskId>& after, index_t least,
                                const Body& body) const;
  template <class Tensors, class Body>
  Ready append_regions(TaskGraph& graph, const VoxelDirection<T>& direction, bool packs, const Ready& source,
                       const Ready& target, const Ready& weights, const Tensors& tensors, const Body& body) const;
  template <class Arguments>
  std::vector<TaskId> append_transposed_weights(TaskGraph& graph, const std::vector<TaskId>& after,
                                                const std::shared_ptr<const Arguments>& a,
                                                const std::shared_ptr<BufferStore>& own) const;
  template <class Arguments, class Tensors>
  Ready append_voxels(TaskGraph& graph, bool high_res, const Ready& source, const Ready& target, const Ready& weights,
                      const std::shared_ptr<const Arguments>& a, const Tensors& tensors) const;
  Ready append_data(TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a) const;
  template <class Body>
  std::vector<TaskId> append_groups(TaskGraph& graph, const ConvReady& ready,
                                    const std::shared_ptr<const BackwardArguments>& a, const std::vector<TaskId>& first,
                                    const Body& body) const;
  Ready append_weights(TaskGraph& graph, const ConvReady& ready,
                       const std::shared_ptr<const BackwardArguments>& a) const;

  ConvProblem problem_;
  plan::Sides sides_;
  // From the high-resolution side to the low-resolution side, and back.
  VoxelDirection<T> to_low_res_, to_high_res_;
  WeightGradient<T> gradient_;
  BiasGradient<T> bias_{problem_};
  bool non_temporal_;  ///< packed weights are so large that no cache would hold them, so stores are non-temporal
};

template <class T>
Ready DirectEngine<T>::append_prepare(TaskGraph& graph, const Ready& ready,
                                      std::shared_ptr<const PrepareArguments> a) const {
  std::vector<TaskId> after;
  ready.collect(0, 0, problem_.w_shape().n, after);
  if (regions_pack(*a->prepared)) {
    return Ready::all_of({graph.add(
        {.name = "take weights"}, [a] { a->prepared->tensor = a->w; }, after)});
  }
  const WeightBlocks<T>& layout = to_low_res_.weights;
  const index_t pairs = layout.lane_blocks() * layout.term_blocks();
  const auto cost = static_cast<double>(layout.taps * layout.square());
  const index_t least = std::max<index_t>(1, least_packed_elements / (layout.taps * layout.square()));
  // A single task takes the memory itself.
  const bool several = ops::numbers_per_task(pairs, least) < pairs;
  if (several) {
    after = {graph.add(
        {.name = "take packed weights"}, [a] { a->prepared->packed.acquire(0); }, after)};
  }
  const auto body = [this, a](index_t begin, index_t end) {
    const WeightBlocks<T>& to = to_low_res_.weights;
    T* packed = static_cast<T*>(a->prepared->packed.acquire(0));
    Scratch scratch(a->prepared->memory, pack_scratch_bytes(to));
    T* temporary = scratch.take<T>(pack_scratch_bytes(to));
    for (index_t i = begin; i < end; ++i) {
      const index_t o = i / to.term_blocks(), c = i % to.term_blocks();
      to_low_res_.squares.pack(a->w.as<T>(), to, o, c, non_temporal_, packed + to.offset(o, c, 0), temporary);
    }
  };
  if (several && to_low_res_.nest.grid.column_groups > 1 && !sides_.y_is_high_res()) {
    return append_packing_by_lanes(graph, after, least, body);
  }
  return Ready::all_of(
      ops::append_ranges(graph, "pack weights", pairs, cost, after, body, pack_scratch_bytes(layout), least));
}

/// Appends about 64 tasks body(begin, end) over the pairs (lane block, term block), so that a region waits for the
/// weights of its own lanes only. A task has at least `least` pairs if the lanes of a region have so many. With a cost
/// of 0, packing is as urgent as the regions that wait for it, and regions that are ready run first. So a region often
/// finds its weights in the L2, unless they are written with non-temporal stores.
template <class T>
template <class Body>
Ready DirectEngine<T>::append_packing_by_lanes(TaskGraph& graph, const std::vector<TaskId>& after, index_t least,
                                               const Body& body) const {
  const WeightBlocks<T>& layout = to_low_res_.weights;
  const index_t blocks = layout.lane_blocks(), terms = layout.term_blocks();
  const index_t lanes = std::max(ceil_div(blocks, 64), std::min(to_low_res_.nest.grid.columns, ceil_div(least, terms)));
  // Several lane blocks together have all their terms in one task.
  const index_t part = lanes > 1 ? terms : std::max(ceil_div(blocks * terms, 64), least);
  std::vector<std::vector<TaskId>> tasks(static_cast<std::size_t>(ceil_div(terms, part)));
  for (index_t o = 0; o < blocks; o += lanes) {
    const index_t last = std::min(blocks, o + lanes) * terms;
    index_t begin = o * terms;
    for (auto& some : tasks) {
      const index_t end = std::min(last, begin + lanes * part);
      some.push_back(graph.add(
          {.name = "pack weights", .cost = 0, .scratch_bytes = pack_scratch_bytes(layout)},
          [body, begin, end] { body(begin, end); }, after));
      begin = end;
    }
  }
  Ready done;
  for (auto& some : tasks) done = done & Ready(std::move(some), ceil_div(blocks, lanes), 1, lanes * block, 1);
  return done;
}

/// Appends a task body(region) for each region, which may pack its weights. `weights` says which tasks complete the
/// weights of each channel of the results. `tensors()` returns the tensors that a region reads and writes.
template <class T>
template <class Tensors, class Body>
Ready DirectEngine<T>::append_regions(TaskGraph& graph, const VoxelDirection<T>& d, bool packs, const Ready& source,
                                      const Ready& target, const Ready& weights, const Tensors& tensors,
                                      const Body& body) const {
  const RegionGrid& grid = d.nest.grid;
  const Extent3& domain = d.map.domain();
  const index_t samples = d.nest.samples, sample_tiles = (problem_.batch + samples - 1) / samples;
  const double cost = problem_.flops() / static_cast<double>(sample_tiles * grid.per_sample() * grid.column_groups);
  std::vector<TaskId> done;
  for (index_t n = 0; n < problem_.batch; n += samples) {
    const std::size_t first_done = done.size();
    const index_t last = std::min(problem_.batch, n + samples);
    for (index_t group = 0; group < grid.column_groups; ++group) {
      const index_t first = group * grid.columns, columns = std::min(grid.columns, d.weights.lane_blocks() - first);
      for (index_t z = 0; z < grid.count.z; ++z) {
        std::vector<TaskId> z_range;
        for (index_t y = 0; y < grid.count.y; ++y) {
          const Box box = grid.box(z * grid.count.y + y, domain), window = d.map.window(box);
          std::vector<TaskId> after;
          weights.collect(0, first * block, std::min((first + columns) * block, d.weights.lanes), after);
          for (index_t i = n; i < last; ++i) {
            source.collect(i, 0, d.weights.terms, std::max<index_t>(0, window.begin.z),
                           std::max<index_t>(1, window.end.z), after);
            target.collect(i, first * block, std::min((first + columns) * block, d.weights.lanes), box.begin.z,
                           box.end.z, after);
          }
          const Region region{.sample = n, .samples = last - n, .box = box, .first_column = first, .columns = columns};
          z_range.push_back(graph.add(
              {.name = "direct region",
               .cost = cost,
               .scratch_bytes = region_scratch_bytes(d, region, tensors(), packs)},
              [body, region] { body(region); }, after));
        }
        done.push_back(z_range.size() == 1 ? z_range.front()
                                           : graph.add(
                                                 {.name = "join regions"}, [] {}, z_range));
      }
    }
    // The samples of a tile are complete together.
    const std::vector<TaskId> tile(done.begin() + static_cast<std::ptrdiff_t>(first_done), done.end());
    for (index_t i = n + 1; i < last; ++i) done.insert(done.end(), tile.begin(), tile.end());
  }
  return Ready(std::move(done), grid.column_groups, grid.count.z, grid.columns * block, grid.extent.z);
}

/// Appends tasks that transpose terms and lanes of the packed weights, for results on the high-resolution side.
template <class T>
template <class Arguments>
std::vector<TaskId> DirectEngine<T>::append_transposed_weights(TaskGraph& graph, const std::vector<TaskId>& after,
                                                               const std::shared_ptr<const Arguments>& a,
                                                               const std::shared_ptr<BufferStore>& own) const {
  const TaskId memory = graph.add(
      {.name = "take transposed weights"}, [own] { own->acquire(0); }, after);
  const WeightBlocks<T>& layout = to_high_res_.weights;
  const auto cost = static_cast<double>(layout.taps * layout.square());
  return ops::append_ranges(graph, "transpose weights", layout.lane_blocks() * layout.term_blocks(), cost, {memory},
                            [this, a, own](index_t begin, index_t end) {
                              const WeightBlocks<T>&from = to_low_res_.weights, &result = to_high_res_.weights;
                              const bool non_temporal = writes_copies_non_temporal(result);
                              const auto* packed = static_cast<const T*>(a->w->packed.get(0));
                              T* to = static_cast<T*>(own->acquire(0));
                              for (index_t i = begin; i < end; ++i) {
                                const index_t c = i / result.term_blocks(), o = i % result.term_blocks();
                                to_high_res_.squares.transpose(packed + from.offset(o, c, 0), from.square_terms(),
                                                               result.square_terms(), result.taps, non_temporal,
                                                               to + result.offset(c, o, 0));
                              }
                            });
}

/// Appends the tasks that compute one side from the other. `tensors()` returns the tensors that a region reads and
/// writes.
template <class T>
template <class Arguments, class Tensors>
Ready DirectEngine<T>::append_voxels(TaskGraph& graph, bool high_res, const Ready& source, const Ready& target,
                                     const Ready& weights, const std::shared_ptr<const Arguments>& a,
                                     const Tensors& tensors) const {
  std::vector<TaskId> after;
  weights.collect(0, 0, problem_.w_shape().n, after);
  const VoxelDirection<T>& direction = high_res ? to_high_res_ : to_low_res_;
  const bool packs = regions_pack(*a->w);
  if (!high_res || packs || direction.transposes_weights) {
    // Each channel of the high-resolution side needs the weights of all lanes.
    return append_regions(graph, direction, packs, source, target, high_res ? Ready::all_of(after) : weights, tensors,
                          [&direction, a, high_res, packs, tensors](const Region& region) {
                            run_region(direction, region, tensors(), region_weights(*a->w, high_res, packs), a->memory);
                          });
  }
  const auto own = make_store(a->memory, 1, bytes_of(to_high_res_.weights.elements()));
  const RunBuffers buffers(graph, a->workspace, own);
  after.insert(after.end(), buffers.ready().begin(), buffers.ready().end());
  after = append_transposed_weights(graph, after, a, own);
  Ready done = append_regions(graph, direction, false, source, target, Ready::all_of(after), tensors,
                              [&direction, a, own, tensors](const Region& region) {
                                run_region<T>(direction, region, tensors(),
                                              {.packed = static_cast<const T*>(own->get(0))}, a->memory);
                              });
  buffers.end(graph, "free transposed weights", done.tasks());
  return done;
}

template <class T>
Ready DirectEngine<T>::append_forward(TaskGraph& graph, const ConvReady& ready,
                                      std::shared_ptr<const ForwardArguments> a) const {
  return append_voxels(graph, sides_.y_is_high_res(), ready.x, {}, ready.w, a,
                       [this, a] { return direction_tensors<T>(problem_, *a); });
}

template <class T>
Ready DirectEngine<T>::append_data(TaskGraph& graph, const ConvReady& ready,
                                   const std::shared_ptr<const BackwardArguments>& a) const {
  return append_voxels(graph, !sides_.y_is_high_res(), ready.dy, ready.dx, ready.w, a,
                       [this, a] { return direction_tensors<T>(problem_, *a); });
}

/// Appends a task body(tensors, group) for each group of each part, after the tasks in `first`.
template <class T>
template <class Body>
std::vector<TaskId> DirectEngine<T>::append_groups(TaskGraph& graph, const ConvReady& ready,
                                                   const std::shared_ptr<const BackwardArguments>& a,
                                                   const std::vector<TaskId>& first, const Body& body) const {
  const Ready &high_res = sides_.high_res(ready.x, ready.dy), &low_res = sides_.low_res(ready.x, ready.dy);
  const WeightNest& nest = gradient_.nest();
  const double cost = problem_.flops() / static_cast<double>(nest.parts() * nest.in_groups * nest.out_groups);
  std::vector<TaskId> tasks;
  for (index_t part = 0; part < nest.parts(); ++part) {
    std::vector<TaskId> after = first;
    const PairGroup all = gradient_.group(part, 0, 0);
    const Box window = input_window(sides_.convolution(), all.box);
    for (index_t n = all.first_sample; n < all.last_sample; ++n) {
      high_res.collect(n, 0, sides_.convolution().in_channels, window.begin.z, window.end.z, after);
      low_res.collect(n, 0, sides_.convolution().out_channels, all.box.begin.z, all.box.end.z, after);
    }
    for (index_t i = 0; i < nest.in_groups * nest.out_groups; ++i) {
      const PairGroup group = gradient_.group(part, i / nest.out_groups, i % nest.out_groups);
      tasks.push_back(graph.add(
          {.name = "weight gradient sums",
           .cost = cost,
           .scratch_bytes = gradient_.scratch_bytes(gradient_tensors<T>(problem_, sides_, *a), group)},
          [this, a, group, body] { body(gradient_tensors<T>(problem_, sides_, *a), group); }, after));
    }
  }
  return tasks;
}

template <class T>
Ready DirectEngine<T>::append_weights(TaskGraph& graph, const ConvReady& ready,
                                      const std::shared_ptr<const BackwardArguments>& a) const {
  if (gradient_.at_once()) {
    return Ready::all_of(append_groups(
        graph, ready, a, {},
        [this, a](const GradientTensors<T>& tensors, const PairGroup& group) { gradient_.write(*a, tensors, group); }));
  }
  const auto own = make_store(a->memory, 1, bytes_of(gradient_.elements()));
  const RunBuffers buffers(graph, a->workspace, own);
  // The memory is taken only when it is needed, because later layers may still hold their own sums.
  std::vector<TaskId> first = buffers.ready();
  ready.dy.collect(0, 0, 1, 0, 1, first);
  const TaskId memory = graph.add(
      {.name = "take weight sums"}, [own] { own->acquire(0); }, first);
  const auto sums =
      append_groups(graph, ready, a, {memory}, [this, own](const GradientTensors<T>& tensors, const PairGroup& group) {
        gradient_.sum(tensors, group, static_cast<T*>(own->acquire(0)));
      });
  const auto body = [this, a, own](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) gradient_.finish(*a, i, static_cast<T*>(own->acquire(0)));
  };
  auto done = ops::append_ranges(graph, "weight gradient", gradient_.pairs(),
                                 static_cast<double>(to_low_res_.weights.taps * to_low_res_.weights.square()), sums,
                                 body, gradient_.finish_scratch_bytes());
  buffers.end(graph, "free weight sums", done);
  return Ready::all_of(std::move(done));
}

template <class T>
ConvGradientReady DirectEngine<T>::append_backward(TaskGraph& graph, const ConvReady& ready,
                                                   std::shared_ptr<const BackwardArguments> a) const {
  return append_gradients<T>(
      graph, ready, bias_, a, [&] { return append_data(graph, ready, a); },
      [&] { return append_weights(graph, ready, a); });
}

std::string unsupported_reason(const ConvProblem& problem, const ConvOptions&, const ChoiceParts*) {
  if (is_depthwise(problem)) return not_depthwise;
  if (leaves_out_voxels(problem)) return no_cropped_volumes;
  // The rows between the taps are staged as well, so the span of a dilated kernel is limited.
  const Extent3 span = problem.span();
  if (span.z * span.y > 16 * problem.kernel.z * problem.kernel.y) {
    return fmt::format("dilation {} puts taps too far apart", to_string(problem.dilation));
  }
  return {};
}

/// Returns the nests of a choice, or those that the cost model chooses.
Nests nests_of(const ConvProblem& problem, const ChoiceParts* parts, const MachineModel& machine) {
  const auto* given = dynamic_cast<const NestParts*>(parts);
  if (given == nullptr) return choose_nests(problem, machine);
  for (const Direction direction : plan::directions) {
    plan::validate(given->nests()[static_cast<std::size_t>(direction)], plan::spaces(problem, direction));
  }
  return given->nests();
}

/// Returns what takes longest in a direction.
Explanation::Bound bound_of(const char* result, const plan::NestCost& cost, double floor) {
  static constexpr std::array levels{"loads from the L2", "loads from the L3", "loads from memory"};
  const std::size_t slowest = cost.slowest_level();
  const std::array parts{std::pair{cost.compute_seconds + cost.tile_seconds, "multiply-adds"},
                         std::pair{cost.move_seconds[slowest], levels[slowest]}, std::pair{cost.copy_seconds, "copies"},
                         std::pair{cost.pack_seconds, "packing of weights"}, std::pair{cost.task_seconds, "tasks"}};
  const auto longest = *std::max_element(parts.begin(), parts.end());
  return {.result = result,
          .seconds = cost.seconds(),
          .part = longest.second,
          .part_seconds = longest.first,
          .floor_seconds = floor};
}

Estimate estimate(const ConvProblem& problem, const ConvOptions& options, const MachineModel& machine,
                  const ChoiceParts* parts) {
  const plan::Wanted wanted = wanted_of(options);
  const Nests nests = nests_of(problem, parts, machine);
  Estimate estimate{.bytes = 2 * plan::packed_weight_bytes(problem), .parts = std::make_shared<NestParts>(nests)};
  const double floor = plan::direct_floor_seconds(problem, machine);
  for (const auto& [direction, is_wanted, result] :
       {std::tuple{Direction::forward, wanted.forward, "y"}, std::tuple{Direction::backward_data, wanted.data, "dx"},
        std::tuple{Direction::backward_weights, wanted.weights, "dw"}}) {
    if (!is_wanted) continue;
    const plan::NestCost cost =
        plan::nest_cost(nests[static_cast<std::size_t>(direction)], problem, direction, machine);
    estimate.seconds += cost.seconds();
    estimate.bounds.push_back(bound_of(result, cost, floor));
  }
  return estimate;
}

std::unique_ptr<ConvEngine> create(const ConvProblem& problem, const ConvOptions&, const ChoiceParts* parts) {
  return create_for_type<DirectEngine>(problem, nests_of(problem, parts, machine_model()));
}

}  // namespace

Implementation direct_implementation() {
  return {Engine::direct, "direct",         true,     unsupported_reason, estimate, create,
          propose_nests,  parse_nest_parts, nest_form};
}

}  // namespace convolume::conv
