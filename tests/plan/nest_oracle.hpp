// What loop nests are tested against: plain enumeration of iterations and elements.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "testing/random_problem.hpp"

#include "convolume/nest.hpp"
#include "plan/groups.hpp"

namespace convolume::test {

/// A problem with the spaces of one direction.
struct NestCase {
  ConvProblem problem;
  std::vector<plan::NestSpace> spaces;
};

/// Draws a problem that nests can describe, and a direction in which something is multiplied.
inline NestCase nest_case(ProblemRanges ranges, std::uint64_t seed) {
  ranges.depthwise = false;
  for (std::uint64_t draw = seed;; draw += 100'000) {
    const ConvProblem problem = random_problem(ranges, draw);
    if (plan::is_depthwise(problem)) continue;
    auto spaces = plan::spaces(problem, plan::directions[seed % 3]);
    // If all windows lie in the padding, no tap reaches a voxel of dx.
    if (!spaces.empty()) return {problem, std::move(spaces)};
  }
}

/// Elements of x, w and y within one group, numbered as in the plain layout.
using MultiplyAdd = std::array<index_t, 3>;

inline index_t number(index_t outer, index_t channels, index_t channel, const Extent3& extent, const Extent3& at) {
  return (((outer * channels + channel) * extent.z + at.z) * extent.y + at.y) * extent.x + at.x;
}

inline bool inside(const Extent3& at, const Extent3& extent) {
  for (int axis = 0; axis < 3; ++axis) {
    if (at[axis] < 0 || at[axis] >= extent[axis]) return false;
  }
  return true;
}

inline void for_each_voxel(const Extent3& e, const std::function<void(const Extent3&)>& body) {
  for (index_t z = 0; z < e.z; ++z) {
    for (index_t y = 0; y < e.y; ++y) {
      for (index_t x = 0; x < e.x; ++x) body({z, y, x});
    }
  }
}

/// Returns the multiply-adds of one group by the definition of the problem, each once.
inline std::map<MultiplyAdd, int> multiply_adds(const ConvProblem& p) {
  std::map<MultiplyAdd, int> all;
  const index_t in = p.in_channels / p.groups, out = p.out_channels / p.groups;
  const Extent3 output = p.output();
  for (index_t n = 0; n < p.batch; ++n) {
    for (index_t c = 0; c < in; ++c) {
      for (index_t k = 0; k < out; ++k) {
        for_each_voxel(p.kernel, [&](const Extent3& tap) {
          for_each_voxel(p.transposed ? p.input : output, [&](const Extent3& low) {
            const Extent3 high = low * p.stride + tap * p.dilation - p.pad_before;
            const Extent3 x = p.transposed ? low : high, y = p.transposed ? high : low;
            if (!inside(x, p.input) || !inside(y, output)) return;
            const index_t w = p.transposed ? number(c, out, k, p.kernel, tap) : number(k, in, c, p.kernel, tap);
            all[{number(n, in, c, p.input, x), w, number(n, out, k, output, y)}] = 1;
          });
        });
      }
    }
  }
  return all;
}

inline void for_each_iteration(const plan::NestSpace& space, const std::function<void(const plan::Extents&)>& body,
                               plan::Extents begin = {}, const plan::Extents* limit = nullptr) {
  const plan::Extents end = limit != nullptr ? *limit : space.extent;
  plan::Extents at = begin;
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (begin[i] >= end[i]) return;
  }
  for (;;) {
    body(at);
    std::size_t i = at.size();
    while (i > 0 && ++at[i - 1] == end[i - 1]) {
      at[i - 1] = begin[i - 1];
      --i;
    }
    if (i == 0) return;
  }
}

/// The places of an iteration: windowed voxel, voxel of the other tensor, tap of the kernel.
struct Places {
  Extent3 windowed, target, tap;
};

inline index_t at_dim(const plan::Extents& at, plan::Dim dim) { return at[static_cast<std::size_t>(dim)]; }

inline Places places_of(const plan::NestSpace& s, const plan::Extents& at) {
  using plan::Dim;
  const Extent3 result{at_dim(at, Dim::z), at_dim(at, Dim::y), at_dim(at, Dim::x)};
  const Extent3 tap{at_dim(at, Dim::kz), at_dim(at, Dim::ky), at_dim(at, Dim::kx)};
  return {result * s.result_step + tap * s.tap_step - s.offset, result * s.target_step + s.target_first,
          tap * s.kernel_step + s.kernel_first};
}

/// Returns the elements of an iteration, or nothing if it reads padding.
inline std::optional<MultiplyAdd> elements_of(const plan::NestSpace& s, const plan::Extents& at) {
  using plan::Dim;
  using plan::Operand;
  const Places places = places_of(s, at);
  if (!inside(places.windowed, s.source_extent)) return std::nullopt;
  const index_t n = at_dim(at, Dim::n), k = at_dim(at, Dim::k), c = at_dim(at, Dim::c);
  const bool x_is_windowed = s.windowed == Operand::x;
  const Extent3 &x = x_is_windowed ? places.windowed : places.target,
                &y = x_is_windowed ? places.target : places.windowed;
  const Extent3 &x_extent = x_is_windowed ? s.source_extent : s.target_extent,
                &y_extent = x_is_windowed ? s.target_extent : s.source_extent;
  const index_t w = s.transposed ? number(c, s.of(Dim::k), k, s.kernel_extent, places.tap)
                                 : number(k, s.of(Dim::c), c, s.kernel_extent, places.tap);
  return MultiplyAdd{number(n, s.of(Dim::c), c, x_extent, x), w, number(n, s.of(Dim::k), k, y_extent, y)};
}

/// Returns the positions of all loops, in trips, at an iteration.
inline std::vector<index_t> positions_of(const std::vector<plan::BoundLoop>& loops, const plan::Extents& at) {
  std::vector<index_t> positions;
  plan::Extents left = at;
  for (const plan::BoundLoop& loop : loops) {
    index_t& rest = left[static_cast<std::size_t>(loop.dim)];
    positions.push_back(rest / loop.step);
    rest %= loop.step;
  }
  return positions;
}

/// Returns whether an operand has an element of its own for each iteration of a dimension.
inline bool moves(const plan::NestSpace& space, plan::Operand operand, plan::Dim dim) {
  using plan::Dim;
  using plan::Operand;
  const bool tap = dim >= Dim::kz;
  if (dim == Dim::k) return operand != Operand::x;
  if (dim == Dim::c) return operand != Operand::y;
  if (operand == Operand::w) return tap;
  return !tap || space.windowed == operand;
}

}  // namespace convolume::test
