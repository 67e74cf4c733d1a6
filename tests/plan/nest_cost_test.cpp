// The estimated seconds and the traffic of loop nests.
#include <cmath>

#include "testing/selected_row.hpp"
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "convolume/blocking.hpp"
#include "convolume/error.hpp"
#include "plan/nest/product_loops.hpp"

using namespace convolume;
using namespace convolume::plan;

namespace {

ConvProblem blocked(const char* text) {
  ConvProblem problem = parse_problem(text);
  problem.x_layout = problem.y_layout = Layout::blocked;
  return problem;
}

NestCost forward_cost(const char* nest, const ConvProblem& problem, const MachineModel& machine = machine_model()) {
  return nest_cost(parse_nest(nest), problem, Direction::forward, machine);
}

double tensor_bytes(const ConvProblem& p) {
  return 4.0 * static_cast<double>(p.x_shape().elements() + p.y_shape().elements() + p.w_shape().elements());
}

}  // namespace

TEST_CASE("a nest whose tensors fit into a cache loads each element into it once") {
  const ConvProblem problem = blocked("ic32oc48id6kd3");  // 4 x 4 x 4 results
  const NestCost cost = forward_cost("k* z* y* | c kz ky kx c16 x k32", problem);
  CHECK(cost.bytes[2] == tensor_bytes(problem));
  CHECK(cost.bytes[1] == tensor_bytes(problem));
  CHECK(cost.bytes[0] > tensor_bytes(problem));  // the weights alone are larger than the L1
}

TEST_CASE("pad lanes of blocked tensors are traffic") {
  const NestCost one = forward_cost("k* z* y* | kz ky kx c x k", blocked("ic16oc16id6kd3"));
  const NestCost padded = forward_cost("k* z* y* | kz ky kx c x k", blocked("ic16oc9id6kd3"));
  CHECK(one.bytes == padded.bytes);
  CHECK(one.compute_seconds == padded.compute_seconds);
}

TEST_CASE("a smaller cache never loads less, and only its own traffic changes") {
  const ConvProblem problem = blocked("ic64oc64id20kd3pd1");
  const char* nest = "k* z y c x | kz ky kx c16 x14 k32";
  MachineModel small = machine_model();
  const NestCost before = forward_cost(nest, problem, small);
  for (small.usable_l2_bytes /= 2; small.usable_l2_bytes > 1024; small.usable_l2_bytes /= 2) {
    const NestCost after = forward_cost(nest, problem, small);
    CHECK(after.bytes[1] >= before.bytes[1]);
    CHECK(after.bytes[0] == before.bytes[0]);
    CHECK(after.bytes[2] == before.bytes[2]);
    CHECK(after.compute_seconds == before.compute_seconds);
  }
  CHECK(forward_cost(nest, problem, small).bytes[1] > before.bytes[1]);
}

TEST_CASE("sums that leave the registers are read and written again") {
  const ConvProblem problem = blocked("ic64oc32id20kd3");
  const NestCost inside = forward_cost("z* y* x | c kz ky kx c16 x14 k32", problem);
  const NestCost outside = forward_cost("z* y* c kz ky kx x | c16 x14 k32", problem);
  CHECK(outside.tile_seconds > 10 * inside.tile_seconds);
  CHECK(outside.seconds() > inside.seconds());
}

TEST_CASE("a product that runs the rows of a tile begins seldom") {
  const ConvProblem problem = blocked("mb2ic64ih28oc64oh28kh3ph1");
  const double rows = forward_cost("n* k c ky kx y x | c16 x14 k32", problem).tile_seconds;
  const double taps = forward_cost("n* k c y ky kx x | c16 x14 k32", problem).tile_seconds;
  CHECK(taps > 1.2 * rows);
  // Other loops between them change nothing.
  CHECK(forward_cost("n* k c ky kx y x | c16 x14 k32", problem).tile_seconds ==
        forward_cost("n* c k kx ky y x | c16 x14 k32", problem).tile_seconds);
}

TEST_CASE("a product runs the innermost loops over results if they stand in its order") {
  const auto around = [](const char* text, const char* problem, Direction direction = Direction::forward) {
    const LoopNest nest = parse_nest(text);
    const ConvProblem p = parse_problem(problem);
    const NestSpace space = spaces(p, direction).front();
    const bool forward = direction == Direction::forward;
    std::string dims;
    const std::vector<BoundLoop> loops = bind(nest, space);
    std::size_t first = 0;
    while (nest.loops[first].parallel) ++first;
    for (const std::size_t i :
         loops_around_products(loops, first, nest.microkernel,
                               {.lanes = forward ? Dim::k : Dim::c, .terms = forward ? Dim::c : Dim::k})) {
      dims += std::string(dims.empty() ? "" : " ") + std::string(name_of(loops[i].dim));
    }
    return dims;
  };
  const char* volume = "mb2ic64oc96id20kd3pd1";
  // Two lane blocks: rows of 20 voxels are two pieces, with 14 voxels, with 13 or with 10.
  for (const char* x : {"x14", "x13", "x10"}) {
    CHECK(around(fmt::format("n* c kz ky kx k z y x | c16 {} k32", x).c_str(), volume) == "c kz ky kx");
  }
  CHECK(around("n* c kz ky kx k z y x | c16 x9 k32", volume) == "c kz ky kx k z y x");
  CHECK(around("n* c kz ky k z y x kx | c16 x10 k32", volume) == "c kz ky k z y x kx");
  CHECK(around("n* c kz ky kx k y z x | c16 x10 k32", volume) == "c kz ky kx k y");
  CHECK(around("n* c kz ky kx z y k x | c16 x10 k32", volume) == "c kz ky kx z y");
  CHECK(around("n* x c kz ky kx k z y | c16 x10 k32", volume) == "x c kz ky kx");
  CHECK(around("n* x c kz ky kx k z y | c16 x2 k32", volume) == "x c kz ky kx");
  // One lane block is run only if there is one. Four blocks have rows of at most six voxels.
  CHECK(around("n* c kz ky kx k z y x | c16 x20 k16", volume) == "c kz ky kx k");
  CHECK(around("n* c kz ky kx z y x | c16 x20 k", "mb2ic64oc16id20kd3pd1") == "c kz ky kx");
  CHECK(around("n* c kz ky kx z y x | c16 x14 k", "mb2ic64oc16id20kd3pd1") == "c kz ky kx");
  CHECK(around("n* c kz ky kx z y x | c16 x9 k", "mb2ic64oc16id20kd3pd1") == "c kz ky kx z y x");
  CHECK(around("n* c kz ky kx k z y x | c16 x5 k64", volume) == "c kz ky kx");
  CHECK(around("n* c kz ky kx k z y x | c16 x4 k64", volume) == "c kz ky kx k z y x");
  // Three taps of a row leave room for eleven voxels.
  CHECK(around("n* c kz ky k z y x | c16 kx x10 k32", volume) == "c kz ky");
  CHECK(around("n* c kz ky k z y x | c16 kx x9 k32", volume) == "c kz ky k z y x");
  // Tiles of 26 voxels are two pieces, those of 28 are three with 13 voxels and two with 14.
  CHECK(around("n* k x c y x26 | c16 x13 k32", "mb2ic64ih98oc96oh98kh1") == "k x c");
  CHECK(around("n* k x c x26 | c16 x13 k32", "mb2ic64ih1iw98oc96oh1ow98kh1") == "k x c");
  CHECK(around("n* k x c x28 | c16 x13 k32", "mb2ic64ih1iw100oc96oh1ow100kh1") == "k x c x");
  // Samples instead of voxels.
  const char* voxel = "mb40ic64oc96ih2oh2kh1";
  CHECK(around("c y x k n | c16 n14 k32", voxel) == "c y x");
  CHECK(around("c k y x n | c16 n14 k32", voxel) == "c k y x");
  CHECK(around("c y x k n | c16 n8 k32", voxel) == "c y x k n");
  // The lanes of backward data are the input channels.
  CHECK(around("n* k kz ky kx c z y x | k16 x10 c32", volume, Direction::backward_data) == "k kz ky kx");
  CHECK(around("n* | c kz ky kx x k", "mb2ic16oc16id3kd3") == "");
}

TEST_CASE("lines and patches, which are multiplied in place, begin no products and are not copied") {
  const char* text = "mb2ic64ih28oc64oh28kh1";
  const NestCost lines = forward_cost("n* y* k x | c c16 x14 k32", parse_problem(text));
  CHECK(lines.tile_seconds < forward_cost("n* y* k x | c c16 x14 k32", blocked(text)).tile_seconds);
  CHECK(lines.copy_seconds == 0);
  const char* passes = "n* y* k c x | c16 x14 k32";  // sums that are added to are no lines
  CHECK(forward_cost(passes, parse_problem(text)).tile_seconds == forward_cost(passes, blocked(text)).tile_seconds);
  CHECK(forward_cost(passes, parse_problem(text)).copy_seconds > 0);
  // Of the backward data of a kernel that equals its stride, each voxel of dy has a box of its own.
  ConvProblem patches = parse_problem("ic3ih32oc64oh8kh4sh4");
  patches.y_layout = Layout::blocked;
  ConvProblem others = patches;
  others.x_layout = Layout::blocked;
  const auto backward = [](const ConvProblem& p) {
    return nest_cost(parse_nest("y* x | k ky kx k16 x14 c"), p, Direction::backward_data, machine_model());
  };
  CHECK(backward(patches).tile_seconds < backward(others).tile_seconds);
}

TEST_CASE("pieces of a row of nearly equal lengths are one product") {
  const ConvProblem problem = blocked("ic32ih100oc32oh100kh1");
  const double longest = forward_cost("k c y x | c16 x14 k32", problem).tile_seconds;
  CHECK(forward_cost("k c y x | c16 x13 k32", problem).tile_seconds < 1.1 * longest);  // eight pieces too
  CHECK(forward_cost("k c y x | c16 x12 k32", problem).tile_seconds > 1.3 * longest);
}

TEST_CASE("narrow register tiles compute slower") {
  const ConvProblem problem = blocked("ic32oc32id24kd3");
  const double wide = forward_cost("z* y* x | c kz ky kx c16 x14 k32", problem).compute_seconds;
  const double narrow = forward_cost("k* z* y* x | c kz ky kx c16 x2 k16", problem).compute_seconds;
  const double one = forward_cost("k* z* y* x | c kz ky kx c16 x1 k16", problem).compute_seconds;
  CHECK(wide < narrow);
  CHECK(narrow < one);
}

TEST_CASE("the issue table decides what a register tile reaches") {
  const ConvProblem problem = blocked("ic32oc32id24kd3");
  const char* nest = "z* y* x | c kz ky kx c16 x2 k32";
  MachineModel machine = machine_model();
  const double before = forward_cost(nest, problem, machine).compute_seconds;
  machine.issue.latency *= 2;
  CHECK(forward_cost(nest, problem, machine).compute_seconds == Approx(2 * before));
  machine.issue.latency = 1;
  machine.issue.loads = 0.5;
  CHECK(forward_cost(nest, problem, machine).compute_seconds > before);
}

TEST_CASE("taps of the weight gradient share passes over the voxels if they are the innermost loops") {
  const test::SelectedRow row("zen5");
  MachineModel wide = machine_model();
  wide.gflops_per_core = 32 * wide.ghz * wide.issue.multiply_adds;  // vectors of 16 floats, whatever runs here
  MachineModel narrow = wide;
  narrow.gflops_per_core /= 2;
  const auto cost = [](const char* nest, const ConvProblem& p, const MachineModel& machine) {
    return nest_cost(parse_nest(nest), p, Direction::backward_weights, machine);
  };
  const ConvProblem problem = blocked("ic16oc16ih96kh3");
  const char *together = "y ky kx | y4 x c k", *alone = "ky kx y | y4 x c k";
  CHECK(cost(together, problem, wide).compute_seconds < cost(alone, problem, wide).compute_seconds);
  CHECK(cost(together, problem, narrow).compute_seconds == cost(alone, problem, narrow).compute_seconds);
  ConvProblem first = blocked("ic1oc16ih96kh3");
  const double staged = cost(together, first, wide).compute_seconds;
  first.x_layout = Layout::plain;
  CHECK(cost(together, first, wide).compute_seconds < staged);
  // Shared passes never read less than both tensors once.
  for (const char* text :
       {"ic1oc16ih96kh3", "ic1oc32ih64iw300kh7", "ic16oc16id20kd3pd1", "ic16oc32id24kd7", "ic32oc32ih40kh1"}) {
    for (const MachineModel& machine : {wide, narrow}) {
      CAPTURE(text, machine.gflops_per_core);
      ConvProblem p = blocked(text);
      if (p.in_channels == 1) p.x_layout = Layout::plain;
      const NestCost one = cost(p.in_channels > 16 ? "y c kz ky kx | x c16 k" : "z y kz ky kx | x c k", p, machine);
      for (const double bytes : one.bytes)
        CHECK(bytes >= 4.0 * static_cast<double>(p.x_shape().elements() + p.y_shape().elements()));
      CHECK(std::isfinite(one.seconds()));
      CHECK(one.seconds() > 0);
    }
  }
}

TEST_CASE("twice the batch costs twice the work, but weights are packed once") {
  const ConvProblem one = blocked("mb2ic32oc32id20kd3"), two = blocked("mb4ic32oc32id20kd3");
  for (const Direction direction : directions) {
    const auto nest = parse_nest(direction == Direction::forward         ? "n* z* y* x | c kz ky kx c16 x14 k32"
                                 : direction == Direction::backward_data ? "n* z* y* x | k kz ky kx k16 x14 c32"
                                                                         : "n+* z c k32 kz ky kx | y x c16 k32");
    const NestCost a = nest_cost(nest, one, direction, machine_model());
    const NestCost b = nest_cost(nest, two, direction, machine_model());
    CHECK(b.compute_seconds == Approx(2 * a.compute_seconds));
    CHECK(b.task_seconds == Approx(2 * a.task_seconds));
    CHECK(b.pack_seconds == a.pack_seconds);
    CHECK(b.seconds() > a.seconds());
  }
}

TEST_CASE("plain tensors are copied, and blocked ones if several results of a row read padding") {
  ConvProblem problem = blocked("ic32oc32id20kd3");
  const char* nest = "z* y* x | c kz ky kx c16 x14 k32";
  CHECK(forward_cost(nest, problem).copy_seconds == 0);
  CHECK(forward_cost(nest, blocked("ic32oc32id18kd3pd1")).copy_seconds == 0);
  CHECK(forward_cost(nest, blocked("ic32oc32id20kd3pd2dd1")).copy_seconds > 0);
  problem.x_layout = problem.y_layout = Layout::plain;
  CHECK(forward_cost(nest, problem).copy_seconds > 0);
}

TEST_CASE("the needed bandwidth is that at which traffic takes as long as the computation") {
  const NestCost cost = forward_cost("z* y* x | c kz ky kx c16 x14 k32", blocked("ic32oc32id20kd3"));
  for (std::size_t level = 0; level < NestCost::levels; ++level) {
    CHECK(cost.bytes[level] / cost.needed_bandwidth(level) == Approx(cost.compute_seconds + cost.tile_seconds));
  }
}

TEST_CASE("more taps of a single channel cost more, however long their rows are") {
  double before = 0;
  for (int taps = 6; taps <= 20; ++taps) {
    const std::string text = "ic1oc32ih60oh58iw60kh3kw" + std::to_string(taps) + "ow" + std::to_string(61 - taps);
    const double seconds = forward_cost("y* x | ky kx x14 k", parse_problem(text)).compute_seconds;
    CAPTURE(taps);
    CHECK(std::isfinite(seconds));
    // Rows of results become shorter by one, and may then fill registers less.
    CHECK(seconds / (61 - taps) > 0.9 * before);
    before = seconds / (61 - taps);
  }
}

TEST_CASE("a nest of another problem has no cost") {
  CHECK_THROWS_AS(forward_cost("k64 c | k32", blocked("ic32oc32id20kd3")), InvalidArgument);
}
