// The energy of loop nests: counts, prices, packing, cores and memories for several layers.
#include "convolume/energy.hpp"

#include <cmath>
#include <map>

#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "core/random.hpp"
#include "models/energy_counts.hpp"
#include "models/energy_model.hpp"

using namespace convolume;
using namespace convolume::plan;

namespace {

constexpr const char* conv4_string = "FwFhX0(8)Y0(8)C0(16)K0(16)C1(128)K1(256)X1(56)Y1(56)";

/// Draws loops whose extents divide each other.
BlockLoops random_loops(const TileCounts& counts, std::uint64_t seed) {
  std::uint64_t draws = 0;
  const auto draw = [&](std::size_t count) { return uniform_below({.seed = seed}, draws++, count); };
  BlockLoops loops;
  for (const Dim dim : all_dims) {
    const index_t all = counts.sizes(dim).back();
    for (std::uint64_t level = draw(3); level > 0; --level) loops.push_back({dim, all});
    loops.push_back({dim, all});
  }
  for (std::size_t i = loops.size(); i > 1; --i) std::swap(loops[i - 1], loops[draw(i)]);
  std::map<Dim, index_t> outside;
  for (std::size_t i = loops.size(); i-- > 0;) {
    const auto found = outside.find(loops[i].dim);
    if (found != outside.end()) {
      std::vector<index_t> valid;
      for (const index_t size : counts.sizes(loops[i].dim)) {
        if (found->second % size == 0) valid.push_back(size);
      }
      loops[i].extent = valid[draw(valid.size())];
    }
    outside[loops[i].dim] = loops[i].extent;
  }
  return loops;
}

double reads_of(const EnergyReport& report, const char* memory, Operand operand) {
  for (const MemoryUse& use : report.memories) {
    if (use.name == memory) return use.accesses[static_cast<std::size_t>(operand)];
  }
  return -1;
}

}  // namespace

TEST_CASE("fast counts equal those of buffers() for random nests") {
  const std::array problems{"mb2ic4id6ih8iw9oc6kd3kh2kw3pd1", "mb3ic6ih12iw10oc4kh3ph1sh2", "ic2id7oc3kd4dd1pd2"};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const ConvProblem problem = parse_problem(problems[seed % problems.size()]);
    const TileCounts counts(energy_layer(problem, {.c = 1, .k = 1}));
    const BlockLoops loops = random_loops(counts, seed);
    const LoopNest nest = nest_of(loops, counts.layer());
    CAPTURE(seed, to_string(nest));
    REQUIRE(block_loops(nest, counts).size() <= loops.size());
    BufferChains exact, table2;
    counts.chains(loops, Counts::exact, exact);
    counts.chains(loops, Counts::table2, table2);
    std::array<std::size_t, 3> next{};
    for (const Buffer& buffer : buffers(nest, counts.layer().space)) {
      const auto o = static_cast<std::size_t>(buffer.operand);
      REQUIRE(next[o] < exact[o].count);
      const BufferUse& use = exact[o].buffers[next[o]];
      CHECK(use.words == static_cast<double>(buffer.words));
      CHECK(use.reads == buffer.reads_exact);
      CHECK(table2[o].buffers[next[o]].reads == Approx(buffer.reads_table2).epsilon(1e-12));
      ++next[o];
    }
    for (std::size_t o = 0; o < 3; ++o) CHECK(next[o] == exact[o].count);
  }
}

TEST_CASE("a datapath counts vectors of channels as one") {
  const TileCounts vectors(energy_layer(parse_problem("ic32ih8iw8oc48kh3"), {.c = 16, .k = 16}));
  const TileCounts scalars(energy_layer(parse_problem("ic2ih8iw8oc3kh3"), {.c = 1, .k = 1}));
  constexpr std::array words{16.0, 256.0, 16.0};
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const BlockLoops small = random_loops(scalars, seed);
    BlockLoops large = small;
    for (BlockLoop& loop : large) loop.extent *= loop.dim == Dim::c || loop.dim == Dim::k ? 16 : 1;
    BufferChains a, b;
    scalars.chains(small, Counts::exact, a);
    vectors.chains(large, Counts::exact, b);
    for (std::size_t o = 0; o < 3; ++o) {
      REQUIRE(a[o].count == b[o].count);
      CHECK(b[o].dram == words[o] * a[o].dram);
      for (std::size_t i = 0; i < a[o].count; ++i) {
        CHECK(b[o].buffers[i].words == words[o] * a[o].buffers[i].words);
        CHECK(b[o].buffers[i].reads == words[o] * a[o].buffers[i].reads);
      }
    }
  }
}

TEST_CASE("the worked example of conv4 has the buffers that follow from Table 2") {
  const EnergyLayer layer = table4_layer("conv4", 1, {.c = 1, .k = 1});
  const auto report = [&](Counts counts) {
    return nest_energy(parse_blocking_string(conv4_string), layer, named_hierarchy("free"), {.counts = counts});
  };
  const EnergyReport exact = report(Counts::exact), table2 = report(Counts::table2);
  CHECK(reads_of(exact, "IB0", Operand::x) == 160'563'200);
  CHECK(reads_of(exact, "IB1", Operand::x) == 10'035'200);
  CHECK(reads_of(exact, "KB0", Operand::w) == 924'844'032);
  CHECK(reads_of(exact, "OB1", Operand::y) == 2.0 * 56 * 56 * 256 * 8 - 56 * 56 * 256);
  CHECK(reads_of(table2, "IB0", Operand::x) == Approx(250'880'000));
  CHECK(reads_of(table2, "IB1", Operand::x) == Approx(10'035'200));
  CHECK(exact.macs == 924'844'032);
  CHECK(exact.string == conv4_string + std::string());
}

TEST_CASE("the layers of Table 4 have the multiply-adds of the paper") {
  constexpr std::array giga{779.5, 23.33, 0.3539, 0.9248, 0.9248};
  for (std::size_t i = 0; i < giga.size(); ++i) {
    CHECK(table4_layer(table4_layers()[i]).macs == Approx(1e9 * giga[i]).epsilon(1e-3));
  }
  CHECK(table4_layer("fc2").macs == 64.0 * 4096 * 4096);
  CHECK(table4_layer("fc2", 1).macs == 4096.0 * 4096);
  const EnergyLayer pool = table4_layer("pool"), lrn = table4_layer("lrn");
  CHECK(pool.macs == 56.0 * 56 * 128 * 4);
  CHECK(lrn.macs == 55.0 * 55 * 96 * 5);
  for (const EnergyLayer* layer : {&pool, &lrn}) {
    const EnergyReport report = nest_energy(parse_nest("n z y x kz | ky kx"), *layer, named_hierarchy("free"));
    CHECK(report.sram_pj[1] + report.dram_pj[1] == 0);  // no weights
  }
  CHECK_THROWS_WITH(table4_layer("conv6"), Catch::Contains("conv6") && Catch::Contains("conv5"));
}

TEST_CASE("energies of memories are those of Table 3, and interpolated between") {
  CHECK(access_pj(1024, 64) == Approx(1.20));
  CHECK(access_pj(32 * 1024, 256) == Approx(3.52));
  CHECK(access_pj(1024 * 1024, 512) == Approx(25.22));
  CHECK(access_pj(512, 512) == Approx(0.57 * 0.57 / 0.68));
  CHECK(access_pj(2 << 20, 64) == Approx(36.32 * 36.32 / 23.37));
  CHECK(access_pj(std::sqrt(2.0) * 1024, 128) == Approx(std::sqrt(0.93 * 1.37)));
  CHECK(access_pj(1, 64) >= least_register_pj);
  CHECK(access_pj((16 << 20) + 1, 256) == dram_pj_per_word);
  for (const int bits : {64, 128, 256, 512}) {
    for (double bytes = 16; bytes < 64e6; bytes *= 1.3) CHECK(access_pj(bytes, bits) <= access_pj(1.3 * bytes, bits));
  }
  CHECK_THROWS_WITH(access_pj(1024, 96), Catch::Contains("96"));
  CHECK(chip_area_mm2(36 * 1024) * 45 == Approx(chip_area_mm2(8 << 20)).epsilon(0.02));
  CHECK(chip_area_mm2(36 * 1024) * 6 == Approx(chip_area_mm2(1 << 20)).epsilon(0.06));
}

TEST_CASE("packing gives the innermost memory to the buffer with most accesses, and closes what is full") {
  BufferChains chains;
  chains[0] = {.buffers = {{{100, 1e6}, {400, 1e3}}}, .count = 2, .dram = 500};
  chains[1] = {.buffers = {{{300, 1e5}}}, .count = 1, .dram = 300};
  chains[2] = {.buffers = {{{50, 1e4}}}, .count = 1, .dram = 50};
  Hierarchy two{.name = "two",
                .levels = {{.name = "L1", .bytes = 700}, {.name = "L2", .bytes = 4000}, {.name = "DRAM"}}};
  Placement placed{};
  pack(chains, {0, 0, 0}, two, placed);
  CHECK(placed[0][0] == 0);  // 200 bytes
  CHECK(placed[1][0] == 1);  // 600 bytes do not fit beside them and close L1
  CHECK(placed[2][0] == 1);  // so that this one does not get into it
  CHECK(placed[0][1] == 1);
  two.levels[0].bytes = 900;
  pack(chains, {0, 0, 0}, two, placed);
  CHECK((placed[0][0] == 0 && placed[1][0] == 0 && placed[2][0] == 0));
  CHECK(placed[0][1] == 1);  // 800 bytes in the place of 200 are too many
  two.levels[0].bytes = 1500;
  pack(chains, {0, 0, 0}, two, placed);
  CHECK(placed[0][1] == 0);  // the larger buffer replaces the smaller one
}

TEST_CASE("separate memories do not take room from each other") {
  const EnergyLayer layer = table4_layer("conv4");
  const EnergyReport report = nest_energy(parse_nest("k y x c | y8 x8 ky kx"), layer, named_hierarchy("diannao"));
  REQUIRE(report.memories.size() == 4);
  CHECK(report.memories[0].held[1] == 0);
  CHECK(report.memories[1].held[0] == 0);
  CHECK(report.sram_bytes == 36 * 1024);
  for (const MemoryUse& memory : report.memories) {
    const double words = memory.held[0] + memory.held[1] + memory.held[2];
    CHECK((memory.bytes == 0 || energy_word_bytes * words <= memory.bytes));
  }
}

TEST_CASE("a limit moves buffers to the DRAM, and never saves energy") {
  const EnergyLayer layer = table4_layer("conv5");
  const LoopNest nest = parse_nest("y x k c y14 x14 k64 c64 | ky kx y7 x7");
  double before = nest_energy(nest, layer, named_hierarchy("free")).memory_pj();
  for (double limit = 1 << 22; limit >= 64; limit /= 2) {
    const EnergyReport report = nest_energy(nest, layer, named_hierarchy("free"), {.limit_bytes = limit});
    CHECK(report.sram_bytes <= limit);
    CHECK(report.memory_pj() >= before);
    before = report.memory_pj();
  }
}

TEST_CASE("the sum of a report is the energy that searches compare") {
  for (const char* name : {"free", "diannao", "x86"}) {
    for (const auto counts : {Counts::exact, Counts::table2}) {
      for (const bool latches : {true, false}) {
        const EnergyModel model(table4_layer("conv3"), named_hierarchy(name),
                                {.counts = counts, .free_latches = latches});
        for (std::uint64_t seed = 0; seed < 30; ++seed) {
          const BlockLoops loops = random_loops(model.counts(), seed);
          CHECK(model.report(loops).memory_pj() == Approx(model.memory_pj(loops)).epsilon(1e-12));
        }
      }
    }
  }
}

TEST_CASE("invalid hierarchies are refused with the level and the field") {
  const auto refused = [](std::vector<MemoryLevel> levels, const char* field) {
    CHECK_THROWS_WITH(validate({.name = "mine", .levels = std::move(levels)}), Catch::Contains(field));
  };
  refused({}, "levels");
  refused({{.name = "L1", .bytes = 1024}}, "bytes");  // the last one has a size
  refused({{.name = "L1"}, {.name = "DRAM"}}, "bytes");
  refused({{.name = "L1", .bytes = -5}, {.name = "DRAM"}}, "bytes");
  refused({{.name = "L1", .bytes = std::nan("")}, {.name = "DRAM"}}, "bytes");
  refused({{.name = "L1", .bytes = 2048}, {.name = "L2", .bytes = 1024}, {.name = "DRAM"}}, "bytes");
  refused({{.name = "L1", .bytes = 64, .pj_per_word = 0}, {.name = "DRAM"}}, "pj_per_word");
  refused({{.name = "L1", .bytes = 64}, {.name = "L1", .bytes = 128}, {.name = "DRAM"}}, "name");
  refused({{.name = "L1", .bytes = 64, .operands = "q"}, {.name = "DRAM"}}, "operands");
  refused({{.name = "L1", .bytes = 64}, {.name = "DRAM", .operands = "xw"}}, "operands");
  const Hierarchy dear{.name = "dear", .levels = {{.name = "L1", .bytes = 64, .pj_per_word = 400}, {.name = "DRAM"}}};
  CHECK_THROWS_WITH(EnergyModel(table4_layer("conv3"), dear, {}), Catch::Contains("DRAM") && Catch::Contains("rise"));
  CHECK_THROWS_WITH(named_hierarchy("gpu"), Catch::Contains("gpu") && Catch::Contains("diannao"));
}

TEST_CASE("extents that do not divide each other and invalid layers are refused") {
  const EnergyLayer layer = table4_layer("conv4");
  const auto energy = [&](const char* nest) { return nest_energy(parse_nest(nest), layer, named_hierarchy("free")); };
  CHECK_THROWS_WITH(energy("k c y x x5 | ky kx"), Catch::Contains("5") && Catch::Contains("multiple"));
  CHECK_THROWS_WITH(energy("k c y x x8 x7 | ky kx"), Catch::Contains("multiple"));
  CHECK_THROWS_WITH(energy("k c y x | ky"), Catch::Contains("'kx'"));
  CHECK_THROWS_AS(energy_layer(parse_problem("g8ic8id5oc8kd3"), {}), Unsupported);
  CHECK_THROWS_WITH(energy_layer(parse_problem("ic8id5oc8kd3"), {.c = 0, .k = 16}), Catch::Contains("0 x 16"));
  CHECK_THROWS_WITH(nest_energy(parse_nest("k c y x | ky kx"), layer, named_hierarchy("x86"), {.limit_bytes = 10}),
                    Catch::Contains("free"));
}

TEST_CASE("more cores make a large shared memory of weights cheaper, and small memories of x dear") {
  const EnergyLayer layer = table4_layer("conv4");
  const EnergyReport report = nest_energy(parse_nest("y x k c y14 x14 | ky kx x2 y2"), layer, named_hierarchy("free"));
  const CoreEnergy one = core_energy(report, layer, named_hierarchy("free"), {}, 1, CoreSplit::xy);
  CHECK(one.total_pj() == Approx(report.memory_pj()));
  CHECK(core_energy(report, layer, named_hierarchy("free"), {}, 1, CoreSplit::k).total_pj() ==
        Approx(report.memory_pj()));
  double before = one.total_pj();
  for (const int cores : {2, 4, 8}) {
    const CoreEnergy shared = core_energy(report, layer, named_hierarchy("free"), {}, cores, CoreSplit::xy);
    CHECK(shared.total_pj() < before);
    CHECK(shared.shuffle_pj == 0);
    CHECK(shared.dram_pj == one.dram_pj);
    before = shared.total_pj();
    CHECK(core_energy(report, layer, named_hierarchy("free"), {}, cores, CoreSplit::k).shuffle_pj > 0);
  }
  CHECK_THROWS_WITH(core_energy(report, layer, named_hierarchy("free"), {}, 3, CoreSplit::k),
                    Catch::Contains("3 cores"));
}

TEST_CASE("a broadcast costs a read of a memory as large as all memories of the chip") {
  const EnergyLayer layer = table4_layer("conv4");
  const Hierarchy free = named_hierarchy("free");
  const EnergyReport report = nest_energy(parse_nest("y x k c y14 x14 | ky kx x2 y2"), layer, free);
  // The outermost memory of each tensor exists once, or in parts; all others once per core.
  std::array<const MemoryUse*, 3> last{};
  double bytes = 0;
  for (const MemoryUse& memory : report.memories) {
    for (std::size_t o = 0; o < 3; ++o) {
      if (memory.bytes > 0 && memory.held[o] > 0) last[o] = &memory;
    }
    bytes += 4 * memory.bytes;
  }
  for (const MemoryUse* memory : last) bytes -= memory == nullptr ? 0 : 3 * memory->bytes;
  REQUIRE((last[0] != nullptr && last[1] != nullptr && last[2] != nullptr));
  const CoreEnergy xy = core_energy(report, layer, free, {}, 4, CoreSplit::xy);
  CHECK(xy.broadcast_pj == Approx(last[1]->accesses[1] / 4 * access_pj(bytes, 512)));
  CHECK(xy.last_pj[0] == Approx(last[0]->accesses[0] * access_pj(last[0]->bytes / 4, 256)));
  const CoreEnergy k = core_energy(report, layer, free, {}, 4, CoreSplit::k);
  CHECK(k.broadcast_pj == Approx(last[0]->accesses[0] / 4 * access_pj(bytes, 256)));
  CHECK(k.shuffle_pj == Approx(56.0 * 56 * 256 * access_pj(bytes, 256)));
}

TEST_CASE("cores share the levels of a hierarchy that are marked so") {
  const EnergyLayer layer = table4_layer("conv4");
  const Hierarchy x86 = named_hierarchy("x86");
  const EnergyReport report = nest_energy(parse_nest("y x k c y14 x14 | ky kx x2 y2"), layer, x86);
  for (const CoreSplit split : {CoreSplit::k, CoreSplit::xy}) {
    CHECK(core_energy(report, layer, x86, {}, 1, split).total_pj() == Approx(report.memory_pj()));
    const CoreEnergy four = core_energy(report, layer, x86, {}, 4, split);
    const std::size_t shared = split == CoreSplit::k ? 0 : 1;
    CHECK(four.last_pj[shared] == 0);
    CHECK((four.broadcast_pj > 0) == (report.memories[2].accesses[shared] > 0));
    CHECK(four.private_pj == Approx(core_energy(report, layer, x86, {}, 1, split).private_pj));
  }
  CHECK(core_energy(report, layer, x86, {}, 4, CoreSplit::xy).broadcast_pj > 0);
  const Hierarchy diannao = named_hierarchy("diannao");
  const EnergyReport separate = nest_energy(parse_nest("y x k c y14 x14 | ky kx x2 y2"), layer, diannao);
  CHECK(core_energy(separate, layer, diannao, {}, 4, CoreSplit::xy).broadcast_pj == 0);
}

TEST_CASE("memories for several layers stay within the limit and serve every layer") {
  const std::vector<EnergyLayer> layers{table4_layer("conv4"), table4_layer("conv5")};
  const EnergyOptions options{.limit_bytes = 256 * 1024};
  const SystemResult system = design_system(layers, options, {.levels = 2, .top = 2, .seeds = 8});
  REQUIRE(!system.best.empty());
  CHECK(system.alone.size() == 2);
  for (const SystemDesign& design : system.best) {
    CHECK(design.sram_bytes <= options.limit_bytes);
    REQUIRE(design.layers.size() == 2);
    CHECK(design.total_pj == Approx(design.layers[0].total_pj() + design.layers[1].total_pj()));
    CHECK(design.total_pj >= system.best.front().total_pj);
  }
  CHECK_THROWS_WITH(design_system({}, options, {}), Catch::Contains("layer"));
  CHECK_THROWS_WITH(design_system(layers, {}, {}), Catch::Contains("limit"));
}
