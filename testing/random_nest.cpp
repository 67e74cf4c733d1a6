#include "testing/random_nest.hpp"

#include <algorithm>
#include <utility>

#include "core/random.hpp"

namespace convolume::test {
namespace {

using plan::Dim;
using plan::Loop;

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : key_{.seed = seed, .a = 18} {}
  index_t below(index_t n) { return static_cast<index_t>(uniform_below(key_, next_++, static_cast<std::uint64_t>(n))); }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

/// Marks as many of the outermost loops as may be, if `wanted`.
void mark_outermost(plan::LoopNest& nest, std::span<const plan::NestSpace> spaces, bool Loop::*mark, bool wanted) {
  for (std::size_t i = 0; i < nest.microkernel && wanted; ++i) {
    nest.loops[i].*mark = true;
    try {
      plan::validate(nest, spaces);
    } catch (const InvalidArgument&) {
      nest.loops[i].*mark = false;
      return;
    }
  }
}

}  // namespace

plan::LoopNest random_nest(std::span<const plan::NestSpace> spaces, std::uint64_t seed) {
  Draws draws(seed);
  // Each dimension is a list of falling extents. The lists are merged in a random order.
  std::vector<std::vector<Loop>> dims;
  for (const Dim dim : plan::all_dims) {
    index_t extent = 1;
    for (const plan::NestSpace& space : spaces) extent = std::max(extent, space.of(dim));
    std::vector<Loop> loops{{.dim = dim, .extent = draws.below(2) == 0 ? Loop::all : extent}};
    if (extent == 1 && draws.below(2) == 0) continue;
    for (index_t more = draws.below(3); more > 0 && extent > 1; --more) {
      extent = 1 + draws.below(extent - 1);
      loops.push_back({.dim = dim, .extent = extent});
    }
    dims.push_back(std::move(loops));
  }
  plan::LoopNest nest;
  while (!dims.empty()) {
    const auto i = draws.below(static_cast<index_t>(dims.size()));
    nest.loops.push_back(dims[static_cast<std::size_t>(i)].front());
    dims[static_cast<std::size_t>(i)].erase(dims[static_cast<std::size_t>(i)].begin());
    if (dims[static_cast<std::size_t>(i)].empty()) dims.erase(dims.begin() + i);
  }
  if (nest.loops.empty()) nest.loops.push_back({.dim = Dim::x});
  nest.microkernel = static_cast<std::size_t>(draws.below(static_cast<index_t>(nest.loops.size())));
  mark_outermost(nest, spaces, &Loop::separate, draws.below(2) == 0);
  mark_outermost(nest, spaces, &Loop::parallel, draws.below(2) == 0);
  return nest;
}

}  // namespace convolume::test
