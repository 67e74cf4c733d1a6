// Chips of the bandwidth model, and the tables and test sets of paper 003.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "convolume/bandwidth.hpp"
#include "convolume/error.hpp"

namespace convolume::plan {
namespace {

constexpr index_t most_scratch_bytes = index_t{1} << 53;  // doubles count bytes exactly up to here
constexpr double most_value = 1e12;
constexpr index_t most_cores = 1 << 20;

[[noreturn]] void refuse(const Chip& chip, const std::string& field, const std::string& why) {
  throw InvalidArgument(fmt::format("chip '{}': {}: {}", chip.name, field, why));
}

void check_value(const Chip& chip, const std::string& field, double value) {
  if (!(value > 0 && value <= most_value)) {
    refuse(chip, field, fmt::format("is {}; write a value above 0 and at most {}", value, most_value));
  }
}

void check_if_given(const Chip& chip, const char* field, const std::optional<double>& value) {
  if (value) check_value(chip, field, *value);
}

void check_count(const Chip& chip, const char* field, index_t value, index_t most = most_cores) {
  if (value < 1 || value > most) {
    refuse(chip, field, fmt::format("is {}; write a number from 1 to {}", value, most));
  }
}

void check_task(const Chip& chip) {
  const KernelTask& task = chip.task;
  check_value(chip, "issue.multiply_adds", task.multiply_adds);
  check_value(chip, "issue.reordered", task.reordered);
  check_if_given(chip, "issue.simple", task.simple);
  check_if_given(chip, "issue.float", task.single);
  check_if_given(chip, "issue.cast_slots", task.cast_slots);
  const auto check_slots = [&](const char* field, double slots) {
    if (slots < task.multiply_adds) {
      refuse(chip, field,
             fmt::format("is {}, less than the {} multiply-adds of a task; a slot issues one multiply-add at most",
                         slots, task.multiply_adds));
    }
  };
  check_slots("issue.reordered", task.reordered);
  if (task.simple) check_slots("issue.simple", *task.simple);
  if (task.single) check_slots("issue.float", *task.single);
}

void check_dma(const Chip& chip) {
  if (chip.dma.empty()) {
    refuse(chip, "bandwidth.run_bytes", "is empty; write at least one length of run with its bandwidths");
  }
  double before = 0;
  for (std::size_t i = 0; i < chip.dma.size(); ++i) {
    const DmaRate& rate = chip.dma[i];
    check_value(chip, fmt::format("bandwidth.run_bytes[{}]", i), rate.run_bytes);
    check_value(chip, fmt::format("bandwidth.get_gb_per_s[{}]", i), rate.get_gb_per_s);
    check_value(chip, fmt::format("bandwidth.put_gb_per_s[{}]", i), rate.put_gb_per_s);
    if (rate.run_bytes <= before) {
      refuse(
          chip, fmt::format("bandwidth.run_bytes[{}]", i),
          fmt::format("is {}, not more than {} before it; sort the table by rising lengths", rate.run_bytes, before));
    }
    before = rate.run_bytes;
  }
}

/// Paper 003, Table 2: the bandwidth of one core group.
constexpr std::array<DmaRate, 10> table2{{{32, 4.31, 2.56},
                                          {64, 9.00, 9.20},
                                          {128, 17.25, 18.83},
                                          {192, 17.94, 19.82},
                                          {256, 22.44, 25.80},
                                          {512, 27.42, 30.34},
                                          {576, 25.96, 28.91},
                                          {640, 29.05, 32.00},
                                          {1024, 29.79, 33.44},
                                          {2048, 31.32, 35.19}}};

Chip sw26010() {
  return {.name = "sw26010",
          .ghz = 1.45,
          .groups = 4,
          .cores = 64,
          .vector = 4,
          .scratch_bytes = 65536,
          // Figure 5, and section 3.7 for float. A cast is a load and a store; the paper prints no number for it.
          .task = {.multiply_adds = 16, .reordered = 17, .simple = 26, .single = 17 + 8, .cast_slots = 2},
          .gload_gb_per_s = 8,
          .published_gflops = published_processors().front().double_gflops,
          .dma = {table2.begin(), table2.end()}};
}

ConvProblem test_case(index_t batch, index_t in, index_t out, index_t output, index_t kernel) {
  const index_t input = output + kernel - 1;
  return {.type = DataType::f64,
          .batch = batch,
          .in_channels = in,
          .out_channels = out,
          .input = {1, input, input},
          .kernel = {1, kernel, kernel}};
}

}  // namespace

void validate(const Chip& chip) {
  check_value(chip, "ghz", chip.ghz);
  check_count(chip, "groups", chip.groups);
  check_count(chip, "cores", chip.cores);
  const auto side = static_cast<index_t>(std::lround(std::sqrt(static_cast<double>(chip.cores))));
  if (side * side != chip.cores) {
    refuse(chip, "cores",
           fmt::format("is {}; write a square number, for example {}, because a core group is a square mesh",
                       chip.cores, side * side));
  }
  check_count(chip, "vector", chip.vector);
  check_count(chip, "scratch_bytes", chip.scratch_bytes, most_scratch_bytes);
  check_task(chip);
  check_if_given(chip, "gload_gb_per_s", chip.gload_gb_per_s);
  check_if_given(chip, "published_gflops", chip.published_gflops);
  check_dma(chip);
}

Chip named_chip(std::string_view name) {
  if (name == "sw26010") return sw26010();
  throw InvalidArgument(fmt::format("there is no chip '{}'; valid are sw26010, or a file FILE.toml", name));
}

const char* name_of(DmaDirection direction) noexcept { return direction == DmaDirection::get ? "get" : "put"; }

double dma_gb_per_s(const Chip& chip, double run_bytes, DmaDirection direction) {
  const auto rate = [&](const DmaRate& row) {
    return direction == DmaDirection::get ? row.get_gb_per_s : row.put_gb_per_s;
  };
  const auto above = std::lower_bound(chip.dma.begin(), chip.dma.end(), run_bytes,
                                      [](const DmaRate& row, double bytes) { return row.run_bytes < bytes; });
  if (above == chip.dma.end()) return rate(chip.dma.back());
  if (above == chip.dma.begin()) return rate(*above) * run_bytes / above->run_bytes;
  const auto below = above - 1;
  const double share = (run_bytes - below->run_bytes) / (above->run_bytes - below->run_bytes);
  return rate(*below) + share * (rate(*above) - rate(*below));
}

std::vector<BandwidthTestSet> bandwidth_test_sets() {
  std::vector<BandwidthTestSet> sets(4);
  for (std::size_t i = 0; i < sets.size(); ++i) sets[i].number = static_cast<int>(i) + 1;
  for (index_t out = 64; out <= 384; out += 64) {
    for (index_t in = 64; in <= 384; in += 64) sets[0].problems.push_back(test_case(128, in, out, 32, 3));
  }
  for (index_t output = 8; output <= 128; output *= 2) sets[1].problems.push_back(test_case(128, 128, 128, output, 3));
  for (index_t kernel = 3; kernel <= 11; kernel += 2) sets[2].problems.push_back(test_case(128, 128, 128, 64, kernel));
  for (index_t batch = 32; batch <= 512; batch *= 2) sets[3].problems.push_back(test_case(batch, 128, 128, 64, 3));
  return sets;
}

const std::vector<PublishedProcessor>& published_processors() {
  static const std::vector<PublishedProcessor> table3{
      {.name = "SW26010", .memory_gb_per_s = 144, .single_gflops = 3020, .double_gflops = 3020},
      {.name = "NVIDIA K40m", .memory_gb_per_s = 288, .single_gflops = 4290, .double_gflops = 1430},
      {.name = "NVIDIA K80m", .memory_gb_per_s = 480, .single_gflops = 8740, .double_gflops = 2910}};
  return table3;
}

}  // namespace convolume::plan
