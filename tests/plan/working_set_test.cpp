// Working sets against enumeration.
#include "testing/random_nest.hpp"
#include "testing/random_problem.hpp"
#include <catch2/catch.hpp>

#include "convolume/nest.hpp"
#include "tests/plan/reuse_oracle.hpp"

using namespace convolume;
using namespace convolume::plan;

TEST_CASE("the working sets of a matrix product are those of paper 004, figure 4") {
  // C[i][j] += A[i][k] B[k][j]: i is the batch, j an output channel, k an input channel.
  const index_t M = 5, N = 7, K = 11;
  ConvProblem p{.batch = M, .in_channels = K, .out_channels = N, .input = {1, 1, 1}, .kernel = {1, 1, 1}};
  const NestSpace space = spaces(p, Direction::forward).front();
  const LoopNest nest = parse_nest("n k | c");
  const std::vector<index_t> source{0, 0, 0}, first_target{0, 1, 0}, last_target{0, N - 1, 0};
  CHECK(working_set(nest, space, source, first_target).all() == 2 * K + 3);
  CHECK(working_set(nest, space, source, last_target).all() == N * K + N + 1);
}

TEST_CASE("working sets of intervals are those that enumeration finds") {
  int intervals = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const auto [p, all] = test::nest_case(
        {.stream = 4, .most_channels = 20, .most_voxels = 6, .most_kernel = 4, .most_flops = 2e4}, seed);
    const LoopNest nest = test::random_nest(all, seed);
    const NestSpace& space = all[seed % all.size()];
    const auto loops = bind(nest, space);
    std::vector<std::vector<index_t>> times;
    for_each_tile(nest, space, loops.size(),
                  [&](const Extents& at, const Extents&) { times.push_back(test::positions_of(loops, at)); });
    for (const std::size_t part : {0, 1, 3, 7}) {
      const std::size_t from = (seed * 37 + part * 101) % times.size();
      const std::size_t to = from + (seed * 53 + part * part * 211) % (times.size() - from);
      INFO(to_string(p) << " transposed " << p.transposed << ": " << to_string(nest) << ", " << from << " to " << to);
      const Words wanted = test::enumerated_words(nest, space, times[from], times[to]);
      const Words got = working_set(nest, space, times[from], times[to]);
      CHECK(got.x == wanted.x);
      CHECK(got.w == wanted.w);
      CHECK(got.y == wanted.y);
      ++intervals;
    }
  }
  CHECK(intervals == 480);
}

TEST_CASE("iterations that do not exist are refused") {
  const NestSpace space = spaces(parse_problem("ic4id5oc4kd3"), Direction::forward).front();
  const LoopNest nest = parse_nest("k c z y x | kz ky kx k3");
  const std::vector<index_t> start(9, 0);
  const auto with = [&](std::size_t loop, index_t position) {
    std::vector<index_t> positions = start;
    positions[loop] = position;
    return positions;
  };
  CHECK(working_set(nest, space, start, with(8, 2)).y == 3);
  CHECK_THROWS_WITH(working_set(nest, space, start, with(1, 4)), Catch::Contains("at 4 in loop 2 'c'"));
  CHECK_THROWS_WITH(working_set(nest, space, with(8, -1), start),
                    Catch::Contains("first iteration is at -1 in loop 9"));
  std::vector<index_t> tail = with(0, 1);
  tail[8] = 1;  // the second tile of k has one channel
  CHECK_THROWS_WITH(working_set(nest, space, start, tail), Catch::Contains("at 1 in loop 9 'k3'"));
  CHECK_THROWS_WITH(working_set(nest, space, with(1, 1), start), Catch::Contains("comes before the first"));
  CHECK_THROWS_WITH(working_set(nest, space, {}, start), Catch::Contains("has 0 positions"));
}
