// Choices for machines with many cores. Their topologies are synthetic.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>

#include "conv/direct/direct_nest.hpp"
#include "core/machine_row.hpp"
#include "core/processors.hpp"
#include "plan/cost_constants.hpp"
#include "plan/tiled_cost.hpp"

using namespace convolume;

namespace {

const char* const server = "node:2 l3:4(size=33554432) l2:8(size=1048576) l1d:1(size=49152) core:1 pu:2";
const char* const shared_l3 = "node:1 l3:1(size=33554432) l2:64(size=1048576) l1d:1(size=65536) core:1 pu:1";
const char* const pair_of_cores = "node:1 l3:1(size=33554432) l2:2(size=1048576) core:1 pu:1";

MachineModel model_on(const char* text, const char* name = "zen5") {
  const Topology machine = synthetic_topology(text);
  const auto& rows = built_in_rows();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const MachineRow& r) { return r.name == name; });
  return model_of(*row, "AVX3", &machine);
}

ConvProblem blocked(const char* text) {
  ConvProblem problem = parse_problem(text);
  problem.x_layout = problem.y_layout = Layout::blocked;
  return problem;
}

}  // namespace

TEST_CASE("64 cores get 64 threads, whatever their hyper-threads") {
  const test::TemporaryFolder no_control_groups;
  std::vector<int> processors(128);
  std::iota(processors.begin(), processors.end(), 0);
  CHECK(usable_cores(processors, synthetic_topology(server), no_control_groups.path()) == 64);
}

TEST_CASE("64 cores get enough groups of tiles, if there are so many tiles") {
  for (const char* text : {"ic32oc32id96kd3", "ic32oc32id64kd5", "ic64oc64id48kd3pd1", "ic128oc128id24kd3pd1",
                           "mb4ic32oc32id32kd3", "ic64oc64id1ih384iw384kd1kh5kw5"}) {
    const ConvProblem problem = blocked(text);
    for (const char* topology : {server, shared_l3}) {
      const MachineModel many = model_on(topology);
      for (const bool may_share : {false, true}) {
        const plan::Wanted training{.forward = true, .data = may_share, .weights = may_share};
        const plan::Tilings chosen = plan::choose_tilings(problem, may_share, training, many);
        const index_t tiles = problem.batch * chosen.forward.count.volume();
        CAPTURE(text, topology, may_share, to_string(chosen.forward.tile), chosen.forward.group, tiles);
        // Half of the cores have work from this direction alone. In training, the others find it in another direction.
        const index_t rounds = (tiles + chosen.forward.group - 1) / chosen.forward.group;
        CHECK((rounds >= 32 || chosen.forward.group == 1));
      }
    }
  }
}

TEST_CASE("groups of tiles hold less if more cores share the L3") {
  const MachineModel many = model_on(shared_l3), pair = model_on(pair_of_cores);
  for (const char* text :
       {"ic256oc256id96kd3", "ic32oc32id96kd3", "ic32oc32id128kd5", "ic16oc16id160kd3", "ic16oc16id160kd7"}) {
    const ConvProblem problem = blocked(text);
    const auto held = [&](const MachineModel& machine) {
      const plan::Tiling tiling = plan::choose_tilings(problem, false, {.forward = true}, machine).forward;
      const Extent3& t = tiling.tile;
      return 8.0 * static_cast<double>(tiling.group * t.z * t.y * (t.x / 2 + 1) *
                                       (problem.in_channels + problem.out_channels));
    };
    CAPTURE(text, held(many), held(pair));
    CHECK(held(many) <= 0.75 * held(pair));
  }
}

TEST_CASE("direct makes enough tasks for 64 cores") {
  for (const char* text : {"ic64oc64id48kd3pd1", "ic256oc256id16kd3pd1", "ic32oc32id64kd1"}) {
    const ConvProblem problem = blocked(text);
    for (const plan::Direction direction : plan::directions) {
      const plan::LoopNest nest = conv::rank_nests(problem, direction, model_on(server)).front().nest;
      CAPTURE(text, to_string(nest));
      CHECK(conv::tasks_of(nest, plan::spaces(problem, direction).front()) >= 64);
    }
  }
}

TEST_CASE("direct makes few tasks for small layers, and no core waits long for the other") {
  const MachineModel pair = model_on(pair_of_cores);
  REQUIRE(pair.cores == 2);
  for (const char* text :
       {"ic64id1ih56iw56oc64kd1kh1kw1", "ic32id1ih64iw64oc32kd1kh3kw3ph1pw1", "ic16oc16id16kd3pd1"}) {
    const ConvProblem problem = blocked(text);
    const plan::NestSpace space = plan::spaces(problem, plan::Direction::forward).front();
    const plan::LoopNest nest = conv::rank_nests(problem, plan::Direction::forward, pair).front().nest;
    CAPTURE(text, to_string(nest));
    const double tasks = conv::tasks_of(nest, space), at_peak = problem.flops() / (1e9 * pair.gflops_per_core);
    CHECK(tasks >= 4);
    CHECK((tasks <= 4 || at_peak / tasks > 16e-6));
    double part = 1;  // of the whole layer, that a task computes
    const auto loops = plan::bind(nest, space);
    for (std::size_t i = 0; i < loops.size(); ++i) {
      if (nest.loops[i].parallel)
        part *= static_cast<double>(loops[i].step) / static_cast<double>(space.of(loops[i].dim));
    }
    CHECK(std::ceil(tasks / 2) * part <= 0.56);
  }
}

TEST_CASE("direct computes whole samples if weights exceed their share of the L3 and all cores have enough tasks") {
  const MachineModel pair = model_on(pair_of_cores);
  const auto parts_of_samples = [](const ConvProblem& problem, const MachineModel& machine,
                                   plan::Direction direction = plan::Direction::forward) {
    const plan::LoopNest nest = conv::rank_nests(problem, direction, machine).front().nest;
    const plan::NestSpace space = plan::spaces(problem, direction).front();
    const auto loops = plan::bind(nest, space);
    double parts = 1;
    for (std::size_t i = 0; i < loops.size(); ++i) {
      const plan::Dim dim = loops[i].dim;
      const bool voxels = dim == plan::Dim::z || dim == plan::Dim::y || dim == plan::Dim::x;
      if (nest.loops[i].parallel && voxels) parts *= static_cast<double>(loops[i].trips());
    }
    CAPTURE(to_string(problem), to_string(nest));
    CHECK(conv::tasks_of(nest, space) >= 4 * std::min(machine.cores, 16));
    return parts;
  };
  const ConvProblem wide = blocked("ic256id8oc512od8kd3pd1");
  CHECK(parts_of_samples(wide, pair) == 1);
  CHECK(parts_of_samples(wide, pair, plan::Direction::backward_data) == 1);
  CHECK(parts_of_samples(blocked("mb2ic512id6oc512od6kd3pd1"), pair) == 1);
  // 64 cores need parts of samples too.
  CHECK(parts_of_samples(wide, model_on(server)) > 1);
  // 16 pairs of blocks are tasks for three cores, but no more than 16.
  CHECK(parts_of_samples(wide, model_on("node:1 l3:1(size=33554432) l2:3(size=1048576) core:1 pu:1")) == 1);
  // Weights that the L3 holds are read for each part.
  CHECK(parts_of_samples(wide, model_on("node:1 l3:1(size=134217728) l2:2(size=1048576) core:1 pu:1")) > 1);
}

TEST_CASE("a task of direct computes all samples if weights exceed the L2 and all cores have enough tasks") {
  // Returns whether no samples are divided between tasks.
  const auto computes_all = [](const ConvProblem& problem, const MachineModel& machine,
                               plan::Direction direction = plan::Direction::forward) {
    const plan::LoopNest nest = conv::rank_nests(problem, direction, machine).front().nest;
    const auto loops = plan::bind(nest, plan::spaces(problem, direction).front());
    CAPTURE(to_string(problem), to_string(nest));
    for (std::size_t i = 0; i < loops.size(); ++i) {
      if (nest.loops[i].parallel && loops[i].dim == plan::Dim::n && loops[i].trips() > 1) return false;
    }
    CHECK(conv::tasks_of(nest, plan::spaces(problem, direction).front()) >= 4 * machine.cores);
    return true;
  };
  const MachineModel pair = model_on(pair_of_cores, "emerald_rapids");
  const ConvProblem deep = blocked("mb2ic256id6oc256od6kd3pd1"), planar = blocked("mb4ic256ih14oc256oh14kh3ph1");
  CHECK(computes_all(deep, pair));
  CHECK(computes_all(deep, pair, plan::Direction::backward_data));
  CHECK(computes_all(planar, pair));
  // 64 cores need a task for each sample.
  CHECK(!computes_all(deep, model_on(server, "emerald_rapids")));
  // Weights that fit into the L2 are read by each sample.
  CHECK(!computes_all(blocked("mb4ic64ih7oc256oh7kh3ph1"), pair));
  // The results of so many samples leave the L2.
  CHECK(!computes_all(blocked("mb64ic256ih14oc256oh14kh3ph1"), pair));
}

TEST_CASE("a first layer whose stride reads single values goes to direct, without the stride to tiles") {
  const MachineModel machine = model_on(pair_of_cores, "emerald_rapids");
  const auto direct_over_tiles = [&](const char* text) {
    ConvProblem problem = parse_problem(text);
    problem.y_layout = Layout::blocked;
    const plan::Tilings tilings = plan::choose_tilings(problem, false, {.forward = true}, machine);
    return conv::rank_nests(problem, plan::Direction::forward, machine).front().seconds /
           tilings.forward.cost.seconds();
  };
  CHECK(direct_over_tiles("ic1id64oc48od32kd7sd2pd3") < plan::near_estimates);
  CHECK(direct_over_tiles("ic1id38oc48od32kd7") > plan::near_estimates);
}
