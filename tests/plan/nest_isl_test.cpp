// Working sets and footprints against isl, a library for sets of integers (label peers).
#include "testing/random_nest.hpp"
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <isl/ctx.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/val.h>

#include "convolume/nest.hpp"
#include "tests/plan/nest_oracle.hpp"

using namespace convolume;
using namespace convolume::plan;

namespace {

/// The names of the dimensions, as a tuple.
std::string tuple() {
  std::vector<const char*> names;
  for (const Dim dim : all_dims) names.push_back(name_of(dim));
  return fmt::format("[{}]", fmt::join(names, ","));
}

std::string domain_text(const NestSpace& space) {
  std::string text = "{ " + tuple() + " : ";
  for (const Dim dim : all_dims) {
    text += fmt::format("{}0 <= {} < {}", dim == Dim::n ? "" : " and ", name_of(dim), space.of(dim));
  }
  return text + " }";
}

std::string schedule_text(const std::vector<BoundLoop>& loops) {
  std::vector<std::string> times;
  std::array<std::string, all_dims.size()> rest;
  for (const Dim dim : all_dims) rest[static_cast<std::size_t>(dim)] = name_of(dim);
  for (const BoundLoop& loop : loops) {
    std::string& left = rest[static_cast<std::size_t>(loop.dim)];
    times.push_back(fmt::format("floor(({})/{})", left, loop.step));
    left = fmt::format("(({}) mod {})", left, loop.step);
  }
  return fmt::format("{{ {} -> [{}] }}", tuple(), fmt::join(times, ","));
}

std::string access_text(const NestSpace& space, Operand operand) {
  constexpr std::array results{"z", "y", "x"}, taps{"kz", "ky", "kx"};
  if (operand == Operand::w) return fmt::format("{{ {} -> [k,c,kz,ky,kx] }}", tuple());
  std::string text = fmt::format("{{ {} -> [n,{}", tuple(), operand == Operand::x ? "c" : "k"), inside;
  for (int axis = 0; axis < 3; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (operand != space.windowed) {
      text += fmt::format(",{}", results[i]);
      continue;
    }
    const std::string voxel = fmt::format("{}*{} + {}*{} - {}", space.result_step[axis], results[i],
                                          space.tap_step[axis], taps[i], space.offset[axis]);
    text += fmt::format(",{}", voxel);
    inside += fmt::format("{}0 <= {} < {}", inside.empty() ? " : " : " and ", voxel, space.source_extent[axis]);
  }
  return text + "]" + inside + " }";
}

std::string point_text(const std::vector<index_t>& at) { return fmt::format("{{ [{}] }}", fmt::join(at, ",")); }

/// The iterations from `first` to `last` in the order of the loops.
isl_set* interval(isl_ctx* ctx, const NestSpace& space, const std::vector<BoundLoop>& loops,
                  const std::vector<index_t>& first, const std::vector<index_t>& last) {
  isl_map* schedule = isl_map_intersect_domain(isl_map_read_from_str(ctx, schedule_text(loops).c_str()),
                                               isl_set_read_from_str(ctx, domain_text(space).c_str()));
  isl_set *from = isl_set_read_from_str(ctx, point_text(first).c_str()),
          *to = isl_set_read_from_str(ctx, point_text(last).c_str());
  isl_map* up = isl_map_lex_le(isl_set_get_space(from));
  isl_map* down = isl_map_lex_ge(isl_set_get_space(to));
  isl_set* times = isl_set_intersect(isl_set_apply(from, up), isl_set_apply(to, down));
  return isl_set_apply(times, isl_map_reverse(schedule));
}

index_t touched(isl_ctx* ctx, const NestSpace& space, isl_set* iterations, Operand operand) {
  isl_map* access = isl_map_read_from_str(ctx, access_text(space, operand).c_str());
  isl_set* elements = isl_set_apply(isl_set_copy(iterations), access);
  isl_val* count = isl_set_count_val(elements);
  const index_t result = isl_val_get_num_si(count);
  isl_val_free(count);
  isl_set_free(elements);
  return result;
}

}  // namespace

TEST_CASE("working sets agree with isl") {
  isl_ctx* ctx = isl_ctx_alloc();
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto [p, all] =
        test::nest_case({.stream = 5, .most_channels = 9, .most_voxels = 4, .most_kernel = 3, .most_flops = 4e3}, seed);
    const LoopNest nest = test::random_nest(all, seed);
    const NestSpace& space = all.front();
    const auto loops = bind(nest, space);
    INFO(to_string(p) << " transposed " << p.transposed << ": " << to_string(nest));
    std::vector<std::vector<index_t>> times;
    for_each_tile(nest, space, loops.size(),
                  [&](const Extents& at, const Extents&) { times.push_back(test::positions_of(loops, at)); });
    const auto &first = times[(seed * 37) % times.size()], &last = times.back();
    isl_set* iterations = interval(ctx, space, loops, first, last);
    const Words got = working_set(nest, space, first, last);
    CHECK(got.x == touched(ctx, space, iterations, Operand::x));
    CHECK(got.w == touched(ctx, space, iterations, Operand::w));
    CHECK(got.y == touched(ctx, space, iterations, Operand::y));
    isl_set_free(iterations);
    // The whole space is a footprint.
    isl_set* whole = isl_set_read_from_str(ctx, domain_text(space).c_str());
    for (const Operand operand : operands) {
      const Footprint footprint = plan::footprint(space, {}, space.extent, operand, Layout::plain);
      CHECK(footprint.words == touched(ctx, space, whole, operand));
    }
    isl_set_free(whole);
  }
  isl_ctx_free(ctx);
}
