// Working sets, footprints and dependences against isl, a library for sets of integers (label peers).
#include "testing/random_nest.hpp"
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <isl/ctx.h>
#include <isl/map.h>
#include <isl/point.h>
#include <isl/set.h>
#include <isl/val.h>

#include "convolume/nest.hpp"
#include "convolume/reuse.hpp"
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

/// Returns the only point of a set; nothing if the set is empty.
std::vector<index_t> point_of(isl_set* set) {
  std::vector<index_t> positions;
  if (!isl_set_is_empty(set)) {
    isl_point* point = isl_set_sample_point(isl_set_copy(set));
    for (int i = 0; i < static_cast<int>(isl_set_dim(set, isl_dim_set)); ++i) {
      isl_val* value = isl_point_get_coordinate_val(point, isl_dim_set, i);
      positions.push_back(isl_val_get_num_si(value));
      isl_val_free(value);
    }
    isl_point_free(point);
  }
  isl_set_free(set);
  return positions;
}

/// Returns the pairs of positions of `count` loops that agree outside of loop `loop`, and of which the second is larger
/// in it.
std::string carried_text(std::size_t count, std::size_t loop) {
  std::vector<std::string> from, to, rules;
  for (std::size_t i = 0; i < count; ++i) {
    from.push_back(fmt::format("a{}", i));
    to.push_back(fmt::format("b{}", i));
    if (i <= loop) rules.push_back(fmt::format("a{0} {1} b{0}", i, i < loop ? "=" : "<"));
  }
  return fmt::format("{{ [{}] -> [{}] : {} }}", fmt::join(from, ","), fmt::join(to, ","), fmt::join(rules, " and "));
}

/// The source and the targets of algorithm 1, lines 6 and 7.
struct IslDependence {
  std::vector<index_t> source, first_target, last_target;
};
IslDependence dependence_of(isl_ctx* ctx, const NestSpace& space, const std::vector<BoundLoop>& loops, Operand operand,
                            std::size_t loop) {
  isl_map* schedule = isl_map_intersect_domain(isl_map_read_from_str(ctx, schedule_text(loops).c_str()),
                                               isl_set_read_from_str(ctx, domain_text(space).c_str()));
  isl_map* access = isl_map_read_from_str(ctx, access_text(space, operand).c_str());
  isl_map* by_time = isl_map_apply_range(isl_map_reverse(schedule), access);
  isl_map* back = isl_map_reverse(isl_map_copy(by_time));
  isl_map* same = isl_map_apply_range(by_time, back);
  isl_map* carried = isl_map_intersect(same, isl_map_read_from_str(ctx, carried_text(loops.size(), loop).c_str()));
  isl_set* source = isl_set_lexmin(isl_map_domain(isl_map_copy(carried)));
  isl_set* targets = isl_set_apply(isl_set_copy(source), carried);
  IslDependence found;
  found.first_target = point_of(isl_set_lexmin(isl_set_copy(targets)));
  found.last_target = point_of(isl_set_lexmax(targets));
  found.source = point_of(source);
  return found;
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

TEST_CASE("dependences agree with isl") {
  isl_ctx* ctx = isl_ctx_alloc();
  std::size_t found = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto [p, all] =
        test::nest_case({.stream = 7, .most_channels = 4, .most_voxels = 5, .most_kernel = 3, .most_flops = 1e3}, seed);
    const LoopNest nest = test::random_nest(all, seed);
    const NestSpace& space = all.front();
    const auto loops = bind(nest, space);
    INFO(to_string(p) << " transposed " << p.transposed << ": " << to_string(nest));
    const auto got = dependences(nest, space);
    auto next = got.begin();
    for (const Operand operand : operands) {
      for (std::size_t loop = 0; loop < loops.size(); ++loop) {
        INFO(name_of(operand) << " carried by loop " << loop);
        const IslDependence wanted = dependence_of(ctx, space, loops, operand, loop);
        const bool has = next != got.end() && next->operand == operand && next->loop == loop;
        REQUIRE(has == !wanted.source.empty());
        if (!has) continue;
        CHECK(next->source == wanted.source);
        CHECK(next->first_target == wanted.first_target);
        CHECK(next->last_target == wanted.last_target);
        isl_set* between = interval(ctx, space, loops, next->source, next->last_target);
        CHECK(next->last.all() == touched(ctx, space, between, Operand::x) + touched(ctx, space, between, Operand::w) +
                                      touched(ctx, space, between, Operand::y));
        isl_set_free(between);
        ++next;
        ++found;
      }
    }
    CHECK(next == got.end());
  }
  CHECK(found > 50);
  isl_ctx_free(ctx);
}
