#include "plan/nest/window_reuse.hpp"

#include <algorithm>
#include <numeric>

#include "plan/nest/index_of.hpp"

namespace convolume::plan {

WindowReuse::WindowReuse(const NestSpace& space, int axis, std::span<const BoundLoop> loops)
    : extent_{.result = space.of(result_dim(axis)), .tap = space.of(tap_dim(axis))},
      result_step_(space.result_step[axis]),
      tap_step_(space.tap_step[axis]),
      offset_(space.offset[axis]),
      voxels_(space.source_extent[axis]) {
  for (std::size_t i = 0; i < loops.size(); ++i) {
    const bool over_taps = loops[i].dim == tap_dim(axis);
    if (!over_taps && loops[i].dim != result_dim(axis)) continue;
    loops_.push_back({.index = i, .over_taps = over_taps, .extent = loops[i].extent, .step = loops[i].step});
  }
  const index_t common = std::gcd(result_step_, tap_step_);
  result_shift_ = tap_step_ / common;
  tap_shift_ = -result_step_ / common;
}

bool WindowReuse::has(std::size_t loop) const {
  return std::any_of(loops_.begin(), loops_.end(), [&](const AxisLoop& one) { return one.index == loop; });
}

bool WindowReuse::in_tensor(const Pair& pair) const {
  const index_t voxel = pair.result * result_step_ + pair.tap * tap_step_ - offset_;
  return voxel >= 0 && voxel < voxels_;
}

WindowReuse::Fork WindowReuse::fork(Pair a, Pair b) const {
  for (const AxisLoop& loop : loops_) {
    index_t &of_a = loop.over_taps ? a.tap : a.result, &of_b = loop.over_taps ? b.tap : b.result;
    const index_t at = of_a / loop.step, other = of_b / loop.step;
    if (at != other) return {.loop = loop.index, .later = other > at};
    of_a -= at * loop.step;
    of_b -= at * loop.step;
  }
  return {.loop = none, .later = false};
}

bool WindowReuse::carries(std::size_t loop, const Pair& source, const Pair& target) const {
  const Fork at = fork(source, target);
  return has(loop) ? at.loop == loop && at.later : at.loop == none || at.loop > loop;
}

std::optional<WindowReuse::Pair> WindowReuse::shifted(const Pair& pair, index_t steps) const {
  const Pair other{.result = pair.result + steps * result_shift_, .tap = pair.tap + steps * tap_shift_};
  if (other.result < 0 || other.result >= extent_.result || other.tap < 0 || other.tap >= extent_.tap) {
    return std::nullopt;
  }
  return other;
}

index_t WindowReuse::most_steps(std::size_t loop) const {
  // The pairs differ within one iteration of the loops outside. They agree in `loop` but for its own dimension.
  Pair inside{.result = 1, .tap = 1};
  for (auto at = loops_.rbegin(); at != loops_.rend() && at->index >= loop; ++at) {
    (at->over_taps ? inside.tap : inside.result) = at->extent;
  }
  return std::min((inside.result - 1) / std::abs(result_shift_), (inside.tap - 1) / std::abs(tap_shift_));
}

template <class Body>
bool WindowReuse::find(std::size_t level, const Pair& begin, const Pair& size, const Body& body) const {
  if (level == loops_.size()) return body(begin);
  const AxisLoop& loop = loops_[level];
  const index_t all = loop.over_taps ? size.tap : size.result;
  for (index_t at = 0; at < all; at += loop.step) {
    Pair inner = begin, left = size;
    (loop.over_taps ? inner.tap : inner.result) += at;
    (loop.over_taps ? left.tap : left.result) = std::min(loop.step, all - at);
    if (find(level + 1, inner, left, body)) return true;
  }
  return false;
}

std::optional<WindowReuse::Pair> WindowReuse::first() const {
  std::optional<Pair> found;
  find(0, {}, extent_, [&](const Pair& pair) {
    if (in_tensor(pair)) found = pair;
    return found.has_value();
  });
  return found;
}

std::optional<WindowReuse::Pair> WindowReuse::first_source(std::size_t loop) const {
  const index_t most = most_steps(loop);
  std::optional<Pair> found;
  if (most == 0) return found;
  find(0, {}, extent_, [&](const Pair& pair) {
    if (!in_tensor(pair)) return false;
    for (index_t steps = -most; steps <= most; ++steps) {
      const std::optional<Pair> target = shifted(pair, steps);
      if (!target || !carries(loop, pair, *target)) continue;
      found = pair;
      return true;
    }
    return false;
  });
  return found;
}

WindowReuse::Targets WindowReuse::targets(const Pair& source, std::size_t loop) const {
  const index_t most = most_steps(loop);
  std::optional<Targets> found;
  for (index_t steps = -most; steps <= most; ++steps) {
    const std::optional<Pair> target = shifted(source, steps);
    if (!target || !carries(loop, source, *target)) continue;
    if (!found) found = {.first = *target, .last = *target};
    if (!fork(found->first, *target).later) found->first = *target;
    if (fork(found->last, *target).later) found->last = *target;
  }
  return found.value();
}

void WindowReuse::write(const Pair& pair, std::span<index_t> positions) const {
  Pair left = pair;
  for (const AxisLoop& loop : loops_) {
    index_t& rest = loop.over_taps ? left.tap : left.result;
    positions[loop.index] = rest / loop.step;
    rest %= loop.step;
  }
}

}  // namespace convolume::plan
