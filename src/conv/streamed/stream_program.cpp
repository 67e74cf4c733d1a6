#include "conv/streamed/stream_program.hpp"

#include <algorithm>

#include "conv/direct/nest_choice.hpp"
#include "conv/implementations.hpp"
#include "conv/spectra/tiled_choice.hpp"
#include "conv/streamed/stream_plan.hpp"
#include "convolume/error.hpp"
#include "convolume/nest.hpp"
#include "plan/groups.hpp"

namespace convolume::conv {
namespace {

constexpr std::size_t alignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

Workspace::Buffer BoundedWorkspace::take(TaskGraph&, std::size_t bytes) {
  const auto fits = [&](const Held* held) { return held->bytes >= bytes; };
  auto found = std::find_if(free_.begin(), free_.end(), fits);
  const auto large = static_cast<std::size_t>(
      std::count_if(held_.begin(), held_.end(), [&](const Held& held) { return held.bytes >= bytes; }));
  if (found == free_.end() || large < most_) {
    held_.push_back({.bytes = bytes});
    return {.slot = &held_.back().address, .ready = {}};
  }
  Held& held = **found;
  free_.erase(found);
  return {.slot = &held.address, .ready = held.last};
}

void BoundedWorkspace::free(TaskGraph&, const Buffer& buffer, std::span<const TaskId> last) {
  for (Held& held : held_) {
    if (&held.address != buffer.slot) continue;
    held.last.assign(last.begin(), last.end());
    free_.push_back(&held);
  }
}

std::size_t BoundedWorkspace::bytes() const {
  std::size_t bytes = 0;
  for (const Held& held : held_) bytes += aligned(held.bytes);
  return bytes;
}

void BoundedWorkspace::place(std::byte* memory) {
  for (Held& held : held_) {
    held.address = memory;
    memory += aligned(held.bytes);
  }
}

namespace {

/// Returns the nest for a smaller space. Of loops over a dimension that a loop further in covers alone by now, only the
/// innermost stays. So the order of sums does not change.
plan::LoopNest clipped(const plan::LoopNest& nest, const plan::NestSpace& space) {
  plan::LoopNest kept{.loops = {}, .microkernel = 0};
  plan::Extents inside{};
  for (std::size_t i = nest.loops.size(); i-- > 0;) {
    plan::Loop loop = nest.loops[i];
    const index_t all = space.of(loop.dim);
    index_t& covered = inside[static_cast<std::size_t>(loop.dim)];
    if (covered == all) continue;
    if (loop.extent >= all) loop.extent = plan::Loop::all;
    covered = loop.extent == plan::Loop::all ? all : loop.extent;
    kept.loops.insert(kept.loops.begin(), loop);
    if (i < nest.microkernel) ++kept.microkernel;
  }
  return kept;
}

/// Returns the choice of the cost model for an engine that is given by name, without a plan. Empty if it does not serve
/// the problem.
Choice estimated_choice(const ConvProblem& problem, const ConvOptions& options) {
  std::optional<Estimate> best;
  for (const Implementation& implementation : implementations()) {
    if (implementation.engine != options.engine) continue;
    const Assessment assessment = assess(implementation, problem, options);
    if (assessment.estimate && (!best || assessment.estimate->seconds < best->seconds)) best = assessment.estimate;
  }
  return best ? Choice{.engine = options.engine, .parts = best->parts} : Choice();
}

}  // namespace

ConvPlan plan_of_tile(const ConvPlan& whole, const ConvOptions& options, const ConvProblem& tile) {
  const Choice all = parse_choice(whole.choice());
  ConvOptions mine = options;
  mine.engine = all.engine;
  mine.choice.clear();
  mine.want_dx = mine.want_dw = false;
  // Tilings and nests of gradients may not fit the smaller tensors, and are not used: those of the tile's own plan are.
  if (all.parts) {
    Choice choice = estimated_choice(tile, mine);
    const auto *tiles = all.as<TiledParts>(), *own_tiles = choice.as<TiledParts>();
    const auto *nests = all.as<NestParts>(), *own_nests = choice.as<NestParts>();
    if (tiles != nullptr && own_tiles != nullptr) {
      choice.parts = own_tiles->with(plan::Direction::forward, *tiles);
    } else if (nests != nullptr && own_nests != nullptr) {
      const ConvProblem one = tile.groups > 1 ? plan::one_group(tile) : tile;
      Nests mixed = own_nests->nests();
      mixed[0] = clipped(nests->nests()[0], plan::spaces(one, plan::Direction::forward).front());
      choice.parts = std::make_shared<NestParts>(std::move(mixed));
    }
    if (choice.engine == mine.engine) mine.choice = to_string(choice);  // otherwise make() says why not
  }
  return ConvPlan::make(tile, mine);
}

TensorView view_in(void* const* slot, const Shape5& shape, DataType type) {
  if (type == DataType::f32) return View<float>(Address<float>::in(slot), shape);
  return View<double>(Address<double>::in(slot), shape);
}

std::size_t block_bytes(std::size_t bytes) noexcept {
  constexpr std::size_t largest_class = 32768;
  return bytes > largest_class ? (bytes + page_bytes - 1) / page_bytes * page_bytes : bytes + bytes / 8 + alignment;
}

std::size_t largest_scratch(const TaskGraph& graph) {
  std::size_t most = 0;
  for (const TaskDescription& task : graph.describe()) most = std::max(most, task.options.scratch_bytes);
  return most;
}

StreamProgram::StreamProgram(const ConvPlan& whole, const ConvOptions& options, const ConvProblem& tile,
                             StreamSlots& slots, int threads, std::pmr::memory_resource* memory)
    : slots_(slots),
      threads_(threads),
      memory_(memory),
      plan_(plan_of_tile(whole, options, tile)),
      workspace_(static_cast<std::size_t>(threads) + 1) {}

bool StreamProgram::append(const PreparedWeights& weights) {
  const ConvProblem& p = plan_.problem();
  ForwardBindings bindings{
      .x = view_in(&slots_.x, p.x_shape(), p.type), .w = weights, .y = view_in(&slots_.y, p.y_shape(), p.type)};
  if (p.epilogue.bias) bindings.bias = view_in(&slots_.bias, {1, p.out_channels, {1, 1, 1}}, p.type);
  try {
    plan_.append_forward(graph_, {}, bindings, memory_, &workspace_);
  } catch (const StaleCache&) {
    return false;
  }
  return true;
}

std::size_t StreamProgram::scratch_bytes() const {
  return static_cast<std::size_t>(threads_) * block_bytes(largest_scratch(graph_));
}

}  // namespace convolume::conv
