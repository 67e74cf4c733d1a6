// Required against measured bandwidth on a chip with scratch memories: equations, tables and test sets of paper 003.
#include "convolume/bandwidth.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include <catch2/catch.hpp>

#include "convolume/error.hpp"

using namespace convolume;
using namespace convolume::plan;
using Catch::Matchers::Contains;

namespace {

Chip sw26010() { return named_chip("sw26010"); }

BandwidthReport report(const char* problem, const BandwidthOptions& options = {}) {
  return plan_bandwidth(parse_problem(problem), sw26010(), options);
}

/// Returns the report of a problem of the test sets.
BandwidthReport report_of(index_t batch, index_t in, index_t out, index_t output, index_t kernel,
                          const BandwidthOptions& options = {}) {
  ConvProblem problem;
  problem.batch = batch;
  problem.in_channels = in;
  problem.out_channels = out;
  problem.input = {1, output + kernel - 1, output + kernel - 1};
  problem.kernel = {1, kernel, kernel};
  return plan_bandwidth(problem, sw26010(), options);
}

const BandwidthLevel& level(const BandwidthReport& r, const char* name) {
  const auto found = std::find_if(r.levels.begin(), r.levels.end(), [&](const auto& l) { return l.name == name; });
  REQUIRE(found != r.levels.end());
  return *found;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::vector<double> gflops_of(const BandwidthTestSet& set) {
  std::vector<double> all;
  for (const ConvProblem& problem : set.problems) all.push_back(plan_bandwidth(problem, sw26010()).gflops);
  return all;
}

/// Returns the mean of the problems of set 1 whose channels `member` are `channels`.
double mean_of_channels(index_t ConvProblem::*member, index_t channels) {
  std::vector<double> all;
  const BandwidthTestSet set = bandwidth_test_sets().front();
  for (const ConvProblem& problem : set.problems) {
    if (problem.*member == channels) all.push_back(plan_bandwidth(problem, sw26010()).gflops);
  }
  return mean(all);
}

constexpr BandwidthOptions gload{.pattern = AccessPattern::gload};
constexpr BandwidthOptions float2double{.type = DataType::f32, .issue = IssueOrder::float2double};
constexpr BandwidthOptions single{.type = DataType::f32, .issue = IssueOrder::single};

/// An instruction of a CPE. P0 computes; P1 loads, compares and jumps. Additions of integers take either pipe.
struct Instruction {
  enum class Pipe { p0, p1, either };
  Pipe pipe;
  std::vector<std::string> reads, writes;
  int latency;
};

Instruction load(const std::string& to, const std::string& pointer) {
  return {Instruction::Pipe::p1, {pointer}, {to}, 4};
}
Instruction add(const std::string& to) { return {Instruction::Pipe::either, {to}, {to}, 1}; }
Instruction compare(const std::string& flag) { return {Instruction::Pipe::p1, {"cNi"}, {flag}, 1}; }
Instruction jump() { return {Instruction::Pipe::p1, {"end"}, {}, 1}; }
/// C[i + 4 j] += A[i] B[j] (equation 6).
Instruction multiply_add(int i, int j) {
  const std::string sum = "C" + std::to_string(i + 4 * j);
  return {Instruction::Pipe::p0, {"A" + std::to_string(i), "B" + std::to_string(j), sum}, {sum}, 7};
}
std::string numbered(const char* name, int i) { return name + std::to_string(i); }

/// Figure 5 (a).
std::vector<Instruction> simple_loop() {
  std::vector<Instruction> loop;
  for (int i = 0; i < 4; ++i) loop.push_back(load(numbered("A", i), "ptrA"));
  loop.push_back(add("ptrA"));
  for (int j = 0; j < 4; ++j) loop.push_back(load(numbered("B", j), "ptrB"));
  loop.push_back(add("ptrB"));
  for (int k = 0; k < 15; ++k) loop.push_back(multiply_add(k % 4, k / 4));
  loop.push_back(compare("last"));
  loop.push_back(multiply_add(3, 3));
  loop.push_back(add("cNi"));
  loop.push_back(compare("end"));
  loop.push_back(jump());
  return loop;
}

/// Figure 5 (b). A and B[0] of the next task are loaded beside the last multiply-adds. The prologue is left out.
std::vector<Instruction> reordered_loop() {
  const std::map<int, Instruction> beside{{0, load("B1", "ptrB")},  {1, load("B2", "ptrB")},  {2, load("B3", "ptrB")},
                                          {3, add("ptrB")},         {5, compare("last")},     {6, add("cNi")},
                                          {7, compare("end")},      {11, load("B0", "ptrB")}, {12, load("A0", "ptrA")},
                                          {13, load("A1", "ptrA")}, {14, load("A2", "ptrA")}, {15, load("A3", "ptrA")}};
  std::vector<Instruction> loop;
  for (int k = 0; k < 16; ++k) {
    loop.push_back(multiply_add(k % 4, k / 4));
    if (const auto found = beside.find(k); found != beside.end()) loop.push_back(found->second);
  }
  loop.push_back(add("ptrA"));
  loop.push_back(jump());
  return loop;
}

/// Issues instructions in order, at most one per pipe and cycle, each when the registers that it reads are ready.
class Scoreboard {
 public:
  /// Returns the cycle after the last instruction.
  long run(const std::vector<Instruction>& loop) {
    for (const Instruction& instruction : loop) issue(instruction);
    return cycle_ + 1;
  }

 private:
  void issue(const Instruction& instruction) {
    long ready = cycle_;
    for (const std::string& name : instruction.reads) ready = std::max(ready, ready_[name]);
    advance(ready);
    while (!take(instruction.pipe)) advance(cycle_ + 1);
    for (const std::string& name : instruction.writes) ready_[name] = cycle_ + instruction.latency;
  }
  void advance(long cycle) {
    if (cycle > cycle_) busy_ = {};
    cycle_ = cycle;
  }
  bool take(Instruction::Pipe pipe) {
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      const bool fits = pipe == Instruction::Pipe::either || static_cast<std::size_t>(pipe) == i;
      if (!fits || busy_[i]) continue;
      return busy_[i] = true;
    }
    return false;
  }

  long cycle_ = 0;
  std::array<bool, 2> busy_{};
  std::map<std::string, long> ready_;
};

/// Returns the cycles of a task once the loop runs.
long cycles_of_task(const std::vector<Instruction>& loop) {
  Scoreboard scoreboard;
  scoreboard.run(loop);
  const long before = scoreboard.run(loop);
  return scoreboard.run(loop) - before;
}

}  // namespace

TEST_CASE("two pipes that issue in order take 26 and 17 cycles for a kernel task") {
  CHECK(cycles_of_task(simple_loop()) == 26);
  CHECK(cycles_of_task(reordered_loop()) == 17);
  const KernelTask task = sw26010().task;
  CHECK(static_cast<double>(cycles_of_task(simple_loop())) == task.simple);
  CHECK(static_cast<double>(cycles_of_task(reordered_loop())) == task.reordered);
  // Section 3.7: eight instructions more, which nothing overlaps.
  CHECK(task.single == task.reordered + 8);
}

TEST_CASE("the peak and the execution efficiencies are those of the paper") {
  CHECK(sw26010().group_gflops() == Approx(742.4));
  CHECK(sw26010().gflops() == Approx(2969.6));
  CHECK(report_of(128, 128, 128, 32, 3).ee == Approx(16.0 / 17));
  CHECK(report_of(128, 128, 128, 32, 3, {.issue = IssueOrder::simple}).ee == Approx(16.0 / 26));
  CHECK(report_of(128, 128, 128, 32, 3, single).ee == Approx(16.0 / 25));
  const double cast = report_of(128, 128, 128, 32, 3, float2double).ee;
  CHECK(cast > 16.0 / 25);
  CHECK(cast < 16.0 / 17);
}

TEST_CASE("casts take less time the more columns share them") {
  // 4 columns: 32768 multiply-adds; 256 + 1024 elements to cast at each of 9 taps, and 2 * 1024 in all.
  const BandwidthReport four = report_of(128, 128, 128, 32, 3, float2double);
  REQUIRE(four.columns == 4);
  CHECK(four.ee == Approx(32768 / (32768 * 17.0 / 16 + 2 * (256 + 1024 + 2 * 1024 / 9.0) / 4)));
  const BandwidthReport one = report_of(128, 128, 128, 31, 3, float2double);
  REQUIRE(one.columns == 1);
  CHECK(one.ee < four.ee);
}

TEST_CASE("compute-to-data ratios follow equations 2 and 4") {
  // Section 3.2: the ratio is at least 3 if all three numbers are 51 or more. The model pads them to 56.
  const auto equation2 = [](double n) { return n / 17; };
  CHECK(equation2(51) == Approx(3));
  CHECK(report_of(56, 56, 56, 7, 3).cdr_one_column == Approx(equation2(56)));
  CHECK(report_of(48, 48, 48, 7, 3).cdr_one_column == Approx(equation2(48)));
  CHECK(report_of(51, 51, 51, 7, 3).cdr_one_column == Approx(equation2(56)));
  const BandwidthReport wide = report_of(128, 128, 128, 32, 3), narrow = report_of(128, 128, 128, 31, 3);
  CHECK(wide.cdr_needed == 3);
  CHECK(wide.cdr == Approx(4 * 128.0 * 16 * 16 / (128 * 16 + 4 * 128 * 16 + 4 * 16 * 16)));
  CHECK(narrow.cdr == Approx(narrow.cdr_one_column));
  CHECK(wide.cdr > narrow.cdr);
}

TEST_CASE("scratch memory follows equation 3, and b_C is the largest divisor that fits") {
  const BandwidthReport r = report_of(256, 256, 256, 32, 3);
  CHECK(r.core_bytes == 24 * 1024);  // section 3.3.3: 1536 KB over 64 cores
  CHECK(r.tile_limit_bytes == 32 * 1024);
  for (const index_t output : {32, 30, 25, 29, 1}) {
    const BandwidthReport one = report_of(128, 128, 64, output, 3);
    CAPTURE(output, one.columns);
    const auto bytes = [](index_t columns) {
      return static_cast<double>(128 * 64 + columns * (128 + 64) * 128) * 8 / 64;
    };
    CHECK(one.tile_bytes == bytes(one.columns));
    for (index_t columns = 1; columns <= output; ++columns) {
      if (output % columns == 0) CHECK((bytes(columns) <= 32 * 1024) == (columns <= one.columns));
    }
  }
  const BandwidthReport both_halves = report_of(128, 128, 64, 32, 3, {.double_buffer = false});
  CHECK(both_halves.tile_limit_bytes == 64 * 1024);
  CHECK(both_halves.columns == 2 * report_of(128, 128, 64, 32, 3).columns);
}

TEST_CASE("DMA is read from Table 2, linear between and proportional below") {
  const Chip chip = sw26010();
  const auto get = [&](double run) { return dma_gb_per_s(chip, run, DmaDirection::get); };
  const auto put = [&](double run) { return dma_gb_per_s(chip, run, DmaDirection::put); };
  CHECK(get(32) == 4.31);
  CHECK(put(32) == 2.56);
  CHECK(get(2048) == 31.32);
  CHECK(put(2048) == 35.19);
  CHECK(get(1 << 20) == 31.32);
  CHECK(get(8) == Approx(4.31 / 4));
  CHECK(put(96) == Approx((9.20 + 18.83) / 2));
  CHECK(get(544) == Approx((27.42 + 25.96) / 2));
}

TEST_CASE("required and measured bandwidth of memory are sums over what DMA moves") {
  const BandwidthReport r = report_of(128, 192, 64, 32, 3);
  REQUIRE(r.columns == 4);
  REQUIRE(r.streams.size() == 4);
  const double x = 9 * 4 * 192 * 128 * 8.0, w = 9 * 192 * 64 * 8.0, y = 4 * 64 * 128 * 8.0;
  CHECK(r.streams[0].bytes == x);
  CHECK(r.streams[0].run_bytes == 128);
  CHECK(r.streams[1].bytes == w);
  CHECK(r.streams[1].run_bytes == 192);
  CHECK(r.streams[2].bytes == y);
  CHECK(r.streams[3].direction == DmaDirection::put);
  const double moves = x / 17.25 + w / 17.94 + y / 17.25 + y / 18.83;
  const double compute = 2 * 4 * 192.0 * 64 * 128 * 9 / (742.4 * 16 / 17);
  CHECK(level(r, "memory").available_gb_per_s == Approx((x + w + 2 * y) / moves));
  CHECK(level(r, "memory").needed_gb_per_s == Approx((x + w + 2 * y) / compute));
  CHECK(r.gflops == Approx(4 * 742.4 * 16 / 17 * compute / moves));
  CHECK(r.efficiency == Approx(r.gflops / 2969.6));
  CHECK(r.bound == "memory");
}

TEST_CASE("without a second buffer, moves are added to the computation") {
  const BandwidthReport r = report_of(128, 128, 128, 31, 3, {.double_buffer = false});
  const BandwidthLevel& memory = level(r, "memory");
  const double share = memory.needed_gb_per_s / memory.available_gb_per_s;
  CHECK(r.gflops == Approx(4 * 742.4 * 16 / 17 / (1 + share) * (31.0 / 32)));
  CHECK(r.gflops < report_of(128, 128, 128, 31, 3).gflops);
}

TEST_CASE("scratch memory limits small products, and gload limits all") {
  // One column of so few channels and samples has a ratio below 3, and registers wait.
  const BandwidthReport small = report_of(8, 8, 512, 1, 3);
  const BandwidthLevel& scratch = level(small, "scratch");
  CHECK(scratch.available_gb_per_s == Approx(46.4));
  CHECK(scratch.needed_gb_per_s / scratch.available_gb_per_s == Approx(16.0 / 17 * 3 / small.cdr));
  CHECK(scratch.needed_gb_per_s > scratch.available_gb_per_s);

  // With fast DMA only registers wait, and then nothing does.
  Chip chip = sw26010();
  for (DmaRate& rate : chip.dma) rate.get_gb_per_s = rate.put_gb_per_s = 1e6;
  const BandwidthReport waits = plan_bandwidth(parse_problem("mb8ic8ih6oc512oh4kh3"), chip);
  CHECK(waits.bound == "scratch");
  CHECK(waits.efficiency == Approx(waits.cdr / 3));
  const BandwidthReport never = plan_bandwidth(parse_problem("mb128ic128ih34oc128oh32kh3"), chip);
  CHECK(never.bound == "computation");
  CHECK(never.efficiency == Approx(16.0 / 17));

  const BandwidthReport r = report_of(128, 128, 128, 32, 3, gload);
  CHECK(r.columns == 1);
  CHECK(r.cdr_needed == 12);
  CHECK(r.cdr == Approx(128.0 / 17 / 4));
  CHECK(r.core_bytes == 0);
  CHECK(level(r, "memory").available_gb_per_s == Approx(8));
  // Each multiply-add needs 8 / CDR bytes, on 64 cores.
  CHECK(level(r, "memory").needed_gb_per_s == Approx(64 * 1.45 * 16 / 17 * 8 / r.cdr));
  CHECK(level(r, "loads").available_gb_per_s == Approx(8 * 1.45));
  CHECK(level(r, "loads").needed_gb_per_s == Approx(8 * 1.45 * 16 / 17 * 12 / r.cdr));
  CHECK(r.bound == "memory");
  CHECK(10 * r.gflops < report_of(128, 128, 128, 32, 3).gflops);
}

TEST_CASE("the 51 problems are those of Algorithm 5") {
  const std::vector<BandwidthTestSet> sets = bandwidth_test_sets();
  REQUIRE(sets.size() == 4);
  std::size_t problems = 0, shared = 0;
  const ConvProblem common = parse_problem("mb128ic128ih66oc128oh64kh3");
  for (const BandwidthTestSet& set : sets) {
    problems += set.problems.size();
    for (ConvProblem problem : set.problems) {
      CHECK(problem.type == DataType::f64);
      problem.type = common.type;
      shared += problem == common ? 1 : 0;
    }
  }
  CHECK(problems == 51);
  CHECK(shared == 3);
  CHECK(sets[0].problems.size() == 36);
  CHECK(to_string(sets[0].problems.back()) == to_string(parse_problem("mb128ic384ih34oc384oh32kh3")));
  CHECK(to_string(sets[1].problems.front()) == to_string(parse_problem("mb128ic128ih10oc128oh8kh3")));
  CHECK(to_string(sets[2].problems.back()) == to_string(parse_problem("mb128ic128ih74oc128oh64kh11")));
  CHECK(to_string(sets[3].problems.back()) == to_string(parse_problem("mb512ic128ih66oc128oh64kh3")));
}

TEST_CASE("the mean of the 51 problems is the paper's within 5 %") {
  std::vector<double> all, means;
  for (const BandwidthTestSet& set : bandwidth_test_sets()) {
    const std::vector<double> of_set = gflops_of(set);
    all.insert(all.end(), of_set.begin(), of_set.end());
    means.push_back(mean(of_set));
  }
  CHECK(std::abs(mean(all) / 1680 - 1) < 0.05);
  CHECK(std::abs(means[0] / 1770 - 1) < 0.05);
  // Section 3.8: about 56 % of the peak of Table 3.
  CHECK(mean(all) / *sw26010().published_gflops == Approx(0.56).margin(0.02));
}

TEST_CASE("the model has some trends of Figures 6 and 7 and lacks others") {
  // Figure 7 (c): speed rises with the batch.
  double before = 0;
  for (const index_t batch : {32, 64, 128, 256, 512}) {
    const double gflops = report_of(batch, 128, 128, 64, 3).gflops;
    CHECK(gflops > 1.1 * before);
    before = gflops;
  }
  // Figure 7 (b): kernels matter little.
  CHECK(report_of(128, 128, 128, 64, 11).gflops / report_of(128, 128, 128, 64, 3).gflops < 1.2);
  CHECK(report_of(128, 128, 128, 64, 11).gflops / report_of(128, 128, 128, 64, 5).gflops < 1.05);
  // Figure 6 (a): speed rises with the input channels up to 256. Then tiles have fewer columns.
  before = 0;
  for (const index_t channels : {64, 128, 192, 256}) {
    const double gflops = mean_of_channels(&ConvProblem::in_channels, channels);
    CHECK(gflops > before);
    before = gflops;
  }
  CHECK(mean_of_channels(&ConvProblem::in_channels, 320) < before);
  // Not in the model: small maps are slower (Figure 7 (a)), and output channels matter little (Figure 6 (b)).
  CHECK(report_of(128, 128, 128, 8, 3).gflops == Approx(report_of(128, 128, 128, 128, 3).gflops));
  CHECK(mean_of_channels(&ConvProblem::out_channels, 384) > 2 * mean_of_channels(&ConvProblem::out_channels, 64));
}

TEST_CASE("groups share out rows, and channels and samples are padded to the mesh") {
  // Seven rows on four groups take as long as eight.
  CHECK(report_of(128, 128, 128, 7, 3).seconds == Approx(report("mb128ic128ih10iw9oc128oh8ow7kh3kw3").seconds));
  CHECK(report("mb128ic256ih1oc256oh1kh1").efficiency <= 0.25);
  CHECK(report_of(128, 121, 128, 32, 3).seconds == Approx(report_of(128, 128, 128, 32, 3).seconds));
  CHECK(report_of(128, 121, 128, 32, 3).gflops == Approx(report_of(128, 128, 128, 32, 3).gflops * 121 / 128));
}

TEST_CASE("Table 4 decides by channels") {
  const auto way = [](const char* problem) { return std::string(table4_way(parse_problem(problem))); };
  CHECK(way("mb8ic64ih14oc64oh14kh3ph1") == "direct");
  CHECK(way("mb8ic63ih14oc64oh14kh3ph1") == "im2col");
  CHECK(way("mb8ic64ih14oc63oh14kh3ph1") == "im2col");
  CHECK(way("mb8ic512ih7oc4096oh1kh7") == "gemm");
  CHECK(way("mb8ic4096ih1oc10oh1kh1") == "gemm");
  CHECK(way("mb8ic64ih3oc64oh3kh3ph1") == "direct");
}

TEST_CASE("Table 3 has the peaks that shares refer to") {
  REQUIRE(published_processors().size() == 3);
  const PublishedProcessor& sunway = published_processors()[0];
  CHECK(sunway.double_gflops == 3020);
  CHECK(sunway.single_gflops == sunway.double_gflops);
  CHECK(*sw26010().published_gflops == sunway.double_gflops);
  // Section 3.8: cuDNN reaches 0.47 of the K40m's 1.43 TFlops, about 32 %.
  CHECK(470 / published_processors()[1].double_gflops == Approx(0.32).margin(0.01));
}

TEST_CASE("a problem that does not fit is refused with the least size") {
  CHECK_THROWS_WITH(report_of(512, 512, 512, 32, 3), Contains("scratch_bytes = 196608"));
  Chip chip = sw26010();
  chip.scratch_bytes = 196608;
  const ConvProblem problem = parse_problem("mb512ic512ih34oc512oh32kh3");
  CHECK(plan_bandwidth(problem, chip).columns == 1);
  chip.scratch_bytes = 196607;
  CHECK_THROWS_AS(plan_bandwidth(problem, chip), Unsupported);
  CHECK_NOTHROW(plan_bandwidth(problem, chip, {.double_buffer = false}));
}

TEST_CASE("problems and options that the model does not have are refused") {
  CHECK_THROWS_WITH(report("g2mb8ic64ih14oc64oh14kh3ph1"), Contains("groups"));
  CHECK_THROWS_WITH(report("mb8ic64id14oc64kd3pd1"), Contains("volumes"));
  ConvProblem transposed = parse_problem("mb8ic64ih14oc64oh14kh3ph1");
  transposed.transposed = true;
  CHECK_THROWS_AS(plan_bandwidth(transposed, sw26010()), Unsupported);
  CHECK_THROWS_WITH(report_of(8, 64, 64, 8, 3, {.issue = IssueOrder::single}), Contains("float") && Contains("f64"));
  CHECK_THROWS_WITH(report_of(8, 64, 64, 8, 3, {.type = DataType::f32}), Contains("float2double"));
  CHECK_THROWS_WITH(report_of(8, 64, 64, 8, 3, {.pattern = AccessPattern::gload, .double_buffer = false}),
                    Contains("ldm"));
  Chip chip = sw26010();
  chip.gload_gb_per_s.reset();
  chip.task.simple.reset();
  const ConvProblem problem = parse_problem("mb8ic64ih14oc64oh14kh3ph1");
  CHECK_THROWS_WITH(plan_bandwidth(problem, chip, gload), Contains("gload_gb_per_s is missing"));
  CHECK_THROWS_WITH(plan_bandwidth(problem, chip, {.issue = IssueOrder::simple}), Contains("issue.simple"));
  CHECK_THROWS_WITH(named_chip("gpu"), Contains("gpu") && Contains("sw26010"));
}

TEST_CASE("chips with impossible values are refused with the field") {
  const auto refuses = [](const char* field, const auto& change) {
    Chip chip = sw26010();
    change(chip);
    CHECK_THROWS_WITH(validate(chip), Contains(field));
  };
  CHECK_NOTHROW(validate(sw26010()));
  refuses("ghz", [](Chip& chip) { chip.ghz = 0; });
  refuses("ghz", [](Chip& chip) { chip.ghz = std::numeric_limits<double>::quiet_NaN(); });
  refuses("groups", [](Chip& chip) { chip.groups = 0; });
  refuses("cores", [](Chip& chip) { chip.cores = 60; });
  refuses("cores", [](Chip& chip) { chip.cores = -4; });
  refuses("vector", [](Chip& chip) { chip.vector = 0; });
  refuses("scratch_bytes", [](Chip& chip) { chip.scratch_bytes = -1; });
  refuses("scratch_bytes", [](Chip& chip) { chip.scratch_bytes = 9007199254740993; });
  refuses("issue.reordered", [](Chip& chip) { chip.task.reordered = 15; });
  refuses("issue.multiply_adds", [](Chip& chip) { chip.task.multiply_adds = 0; });
  refuses("gload_gb_per_s", [](Chip& chip) { chip.gload_gb_per_s = -8; });
  refuses("run_bytes", [](Chip& chip) { chip.dma.clear(); });
  refuses("run_bytes[1]", [](Chip& chip) { std::swap(chip.dma[0], chip.dma[1]); });
  refuses("put_gb_per_s[2]", [](Chip& chip) { chip.dma[2].put_gb_per_s = 0; });
}
