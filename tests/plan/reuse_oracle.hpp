// Reuse in loop nests, found by listing all iterations.
#pragma once

#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "convolume/reuse.hpp"
#include "tests/plan/nest_oracle.hpp"

namespace convolume::test {

/// The elements of an iteration: of the windowed operand none, if the iteration reads padding.
inline std::array<std::optional<index_t>, 3> touched_by(const plan::NestSpace& space, const plan::Extents& at) {
  using plan::Dim;
  using plan::Operand;
  const Places places = places_of(space, at);
  const index_t n = at_dim(at, Dim::n), k = at_dim(at, Dim::k), c = at_dim(at, Dim::c);
  std::array<std::optional<index_t>, 3> elements;
  for (const Operand operand : {Operand::x, Operand::y}) {
    const bool windowed = operand == space.windowed;
    const Extent3 &voxel = windowed ? places.windowed : places.target,
                  &extent = windowed ? space.source_extent : space.target_extent;
    if (windowed && !inside(voxel, extent)) continue;
    elements[static_cast<std::size_t>(operand)] = operand == Operand::x ? number(n, space.of(Dim::c), c, extent, voxel)
                                                                        : number(n, space.of(Dim::k), k, extent, voxel);
  }
  elements[static_cast<std::size_t>(Operand::w)] = number(k, space.of(Dim::c), c, space.kernel_extent, places.tap);
  return elements;
}

using Time = std::vector<index_t>;  ///< positions of all loops

/// The first source of a dependence, and all its targets in order.
struct FoundDependence {
  Time source;
  std::set<Time> targets;
};
/// By operand and loop.
using FoundDependences = std::map<std::pair<plan::Operand, std::size_t>, FoundDependence>;

/// Returns every dependence, by comparing all pairs of iterations that use one element.
inline FoundDependences enumerated_dependences(const plan::LoopNest& nest, const plan::NestSpace& space) {
  const auto loops = plan::bind(nest, space);
  std::array<std::map<index_t, std::vector<Time>>, 3> uses;  // in the order of the nest
  plan::for_each_tile(nest, space, loops.size(), [&](const plan::Extents& at, const plan::Extents&) {
    const auto elements = touched_by(space, at);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (elements[i]) uses[i][*elements[i]].push_back(positions_of(loops, at));
    }
  });
  FoundDependences found;
  for (const plan::Operand operand : plan::operands) {
    for (const auto& [element, times] : uses[static_cast<std::size_t>(operand)]) {
      for (auto source = times.begin(); source != times.end(); ++source) {
        for (auto target = source + 1; target != times.end(); ++target) {
          const auto differs = std::mismatch(source->begin(), source->end(), target->begin()).first;
          const std::pair key{operand, static_cast<std::size_t>(differs - source->begin())};
          const auto known = found.find(key);
          if (known == found.end() || *source < known->second.source) found[key] = {*source, {}};
          FoundDependence& one = found[key];
          if (one.source == *source) one.targets.insert(*target);
        }
      }
    }
  }
  return found;
}

/// Returns the distinct elements of all iterations from `first` to `last`.
inline plan::Words enumerated_words(const plan::LoopNest& nest, const plan::NestSpace& space, const Time& first,
                                    const Time& last) {
  std::array<std::set<index_t>, 3> seen;
  const auto loops = plan::bind(nest, space);
  plan::for_each_tile(nest, space, loops.size(), [&](const plan::Extents& at, const plan::Extents&) {
    const Time time = positions_of(loops, at);
    if (time < first || last < time) return;
    const auto elements = touched_by(space, at);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (elements[i]) seen[i].insert(*elements[i]);
    }
  });
  const auto size = [&](std::size_t i) { return static_cast<index_t>(seen[i].size()); };
  return {.x = size(0), .w = size(1), .y = size(2)};
}

}  // namespace convolume::test
