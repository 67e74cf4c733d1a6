#include "tools/plan_reuse.hpp"

#include <algorithm>
#include <array>

#include "tools/arguments.hpp"
#include "tools/nest_arguments.hpp"
#include "tools/nest_counts.hpp"
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "convolume/error.hpp"
#include "convolume/machine.hpp"
#include "convolume/reuse.hpp"

namespace convolume::tools {
namespace {

using Json = nlohmann::ordered_json;
using plan::Dependence;
using plan::Dim;
using plan::LoopNest;
using plan::NestSpace;

struct ReuseResult {
  std::string problem, source;  ///< of the levels
  std::vector<NestSpace> spaces;
  LoopNest nest;
  std::size_t element_bytes;
  std::vector<Dependence> dependences;
  plan::ReuseLevels levels;
  plan::PackedSets packed;
  double cost, direction_cost;
};

/// Adds the product of matrices of figure 6 as the microkernel, in the order in which `direct` runs it.
LoopNest with_block(const std::string& text, const NestSpace& space, int block) {
  const index_t lanes = space.channel_block;
  if (block != 0 && block != lanes && block != 2 * lanes && block != 4 * lanes) {
    throw InvalidArgument(fmt::format("--block {}: no microkernel has so many channels; use {}, {} or {}", block, lanes,
                                      2 * lanes, 4 * lanes));
  }
  // A nest needs something behind the bar.
  LoopNest nest = plan::parse_nest(text + " | n1");
  nest.loops.pop_back();
  const auto add = [&](Dim dim, index_t most) {
    index_t extent = std::min(most, space.of(dim));
    for (const plan::Loop& loop : nest.loops) {
      if (loop.dim == dim && loop.extent != plan::Loop::all) extent = std::min(extent, loop.extent);
    }
    nest.loops.push_back({.dim = dim, .extent = extent});
  };
  const bool weights = space.written == plan::Operand::w;
  const Dim result = space.written == plan::Operand::x ? Dim::c : Dim::k;
  const Dim reduced = result == Dim::k ? Dim::c : Dim::k;
  if (weights) add(Dim::x, space.of(Dim::x));
  add(reduced, lanes);
  if (!weights) add(Dim::x, space.of(Dim::x));
  add(result, block == 0 ? lanes : block);
  return nest;
}

LoopNest nest_of(const ReuseOptions& o, const NestSpace& space) {
  const bool blocking = std::any_of(o.nest.begin(), o.nest.end(), [](unsigned char c) { return c >= 'A' && c <= 'Z'; });
  if (o.nest.find('|') == std::string::npos && !blocking) return with_block(o.nest, space, o.block);
  if (o.block != 0) {
    throw InvalidArgument(
        fmt::format("--block {}: the nest '{}' has a microkernel; leave out --block, or '|' and what stands behind it",
                    o.block, o.nest));
  }
  return read_nest(o.nest);
}

/// Returns one number per cache and that of memory, from an option or from the machine row.
std::vector<double> prices(const std::vector<double>& given, const char* option, std::size_t caches,
                           const std::array<double, 4>& row) {
  if (given.empty()) {
    if (caches >= row.size()) {
      throw InvalidArgument(
          fmt::format("--caches has {} sizes, but the machine row has {} caches; give --latency and --bandwidth too",
                      caches, row.size() - 1));
    }
    std::vector<double> values(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(caches));
    values.push_back(row.back());
    return values;
  }
  if (given.size() != caches + 1) {
    throw InvalidArgument(fmt::format("{} {}: there are {} caches; write {} numbers, the last one for memory", option,
                                      fmt::join(given, ","), caches, caches + 1));
  }
  return given;
}

plan::ReuseLevels levels_of(const ReuseOptions& o) {
  const MachineModel& machine = machine_model();
  plan::ReuseLevels levels = plan::reuse_levels(machine);
  if (!o.caches.empty()) {
    levels.caches.clear();
    for (const std::string& text : o.caches) {
      levels.caches.push_back({.bytes = static_cast<double>(bytes_of(text, "--caches"))});
    }
  }
  const std::array bandwidths{machine.l1_gb_per_s, machine.l2_gb_per_s, machine.l3_gb_per_s, machine.dram_gb_per_s};
  const auto latency = prices(o.latency, "--latency", levels.caches.size(), machine.latency_ns);
  const auto bandwidth = prices(o.bandwidth, "--bandwidth", levels.caches.size(), bandwidths);
  for (std::size_t i = 0; i <= levels.caches.size(); ++i) {
    plan::ReuseLevel& level = i < levels.caches.size() ? levels.caches[i] : levels.memory;
    level.latency = latency[i];
    level.bandwidth = bandwidth[i];
  }
  levels.validate();
  return levels;
}

ReuseResult analyse(const ReuseOptions& o) {
  const ConvProblem problem = read_problem(o.problem, o.type);
  auto spaces = plan::spaces(problem, direction_of(o.direction));
  check_phase(o.phase, spaces.size(), o.direction);
  const NestSpace& space = spaces[static_cast<std::size_t>(o.phase)];
  const LoopNest nest = nest_of(o, space);
  plan::validate(nest, spaces);
  ReuseResult result{
      .problem = to_string(problem),
      .source = o.caches.empty() && o.latency.empty() && o.bandwidth.empty() ? machine_model().row : "given",
      .spaces = spaces,
      .nest = nest,
      .element_bytes = size_of(problem.type),
      .dependences = plan::dependences(nest, space),
      .levels = levels_of(o),
      .packed = {},
      .cost = 0,
      .direction_cost = 0};
  std::vector<double> sizes;
  for (const plan::ReuseLevel& cache : result.levels.caches) sizes.push_back(cache.bytes);
  result.packed = plan::pack(plan::working_set_bytes(result.dependences, result.element_bytes), sizes);
  result.cost = plan::reuse_cost(result.packed, result.levels);
  result.direction_cost = plan::reuse_cost(nest, spaces, result.element_bytes, result.levels);
  return result;
}

std::string level_name(std::size_t level, const plan::ReuseLevels& levels) {
  return level < levels.caches.size() ? fmt::format("l{}", level + 1) : "mem";
}

/// The levels in which the two working sets of a dependence lie.
struct Placed {
  std::string first, last;
};

std::vector<Placed> places(const ReuseResult& r) {
  std::vector<Placed> all;
  std::size_t set = 0;
  for (const Dependence& one : r.dependences) {
    const std::string first = level_name(r.packed.places[set++], r.levels);
    all.push_back({first, one.single() ? first : level_name(r.packed.places[set++], r.levels)});
  }
  return all;
}

Json words_json(const plan::Words& words) { return {{"x", words.x}, {"w", words.w}, {"y", words.y}}; }

Json to_json(const ReuseResult& r, const ReuseOptions& o) {
  Json json{{"problem", r.problem},
            {"direction", o.direction},
            {"phase", o.phase},
            {"phases", r.spaces.size()},
            {"groups", r.spaces.front().groups},
            {"nest", to_string(r.nest)},
            {"element_bytes", r.element_bytes},
            {"dependences", Json::array()},
            {"levels", Json::array()},
            {"levels_from", r.source}};
  const std::vector<Placed> placed = places(r);
  for (std::size_t i = 0; i < r.dependences.size(); ++i) {
    const Dependence& one = r.dependences[i];
    json["dependences"].push_back({{"operand", name_of(one.operand)},
                                   {"carried_by", to_string(r.nest.loops[one.loop])},
                                   {"depth", one.loop},
                                   {"source", one.source},
                                   {"first_target", one.first_target},
                                   {"last_target", one.last_target},
                                   {"targets", one.single() ? "one" : "several"},
                                   {"ws_min", one.first.all()},
                                   {"ws_max", one.last.all()},
                                   {"ws_min_of", words_json(one.first)},
                                   {"ws_max_of", words_json(one.last)},
                                   {"ws_min_in", placed[i].first},
                                   {"ws_max_in", placed[i].last}});
  }
  Json sets;
  for (std::size_t i = 0; i <= r.levels.caches.size(); ++i) {
    const bool cache = i < r.levels.caches.size();
    const plan::ReuseLevel& level = cache ? r.levels.caches[i] : r.levels.memory;
    const std::string name = level_name(i, r.levels);
    json["levels"].push_back({{"name", name},
                              {"bytes", cache ? Json(level.bytes) : Json()},
                              {"latency_ns", level.latency},
                              {"gb_per_s", level.bandwidth}});
    sets[name] = cache ? r.packed.cache_bytes[i] : r.packed.memory_bytes;
  }
  json["ws"] = std::move(sets);
  json["cost"] = r.cost;
  json["direction_cost"] = r.direction_cost;
  return json;
}

std::string table(const ReuseResult& r, const ReuseOptions& o) {
  std::string text = fmt::format("problem        {}\ndirection      {}", r.problem, o.direction);
  if (r.spaces.size() > 1) text += fmt::format(", phase {} of {} (--phase)", o.phase, r.spaces.size());
  if (r.spaces.front().groups > 1) text += fmt::format(", one of {} groups", r.spaces.front().groups);
  text += fmt::format("\nnest           {}\n\n{:<9}{:<12}{:>14}{:>11}{:>6}{:>16}{:>11}{:>6}\n", to_string(r.nest),
                      "operand", "carried by", "to first, words", "bytes", "in", "to last, words", "bytes", "in");
  const std::vector<Placed> placed = places(r);
  const auto bytes = [&](const plan::Words& words) {
    return bytes_text(static_cast<double>(words.all()) * static_cast<double>(r.element_bytes));
  };
  for (std::size_t i = 0; i < r.dependences.size(); ++i) {
    const Dependence& one = r.dependences[i];
    text += fmt::format("{:<9}{:<12}{:>15}{:>11}{:>6}", name_of(one.operand), to_string(r.nest.loops[one.loop]),
                        one.first.all(), bytes(one.first), placed[i].first);
    text += one.single() ? fmt::format("{:>16}{:>11}{:>6}\n", "-", "-", "-")
                         : fmt::format("{:>16}{:>11}{:>6}\n", one.last.all(), bytes(one.last), placed[i].last);
  }
  text += fmt::format("\n{:<9}{:>12}{:>12}{:>10}{:>18}{:>14}\n", "level", "size", "latency", "GB/s", "working sets",
                      "cost");
  for (std::size_t i = 0; i <= r.levels.caches.size(); ++i) {
    const bool cache = i < r.levels.caches.size();
    const plan::ReuseLevel& level = cache ? r.levels.caches[i] : r.levels.memory;
    const double packed = cache ? r.packed.cache_bytes[i] : r.packed.memory_bytes;
    text += fmt::format("{:<9}{:>12}{:>9.3g} ns{:>10.4g}{:>18}{:>14.5g}\n", level_name(i, r.levels),
                        cache ? bytes_text(level.bytes) : "", level.latency, level.bandwidth, bytes_text(packed),
                        packed * level.price());
  }
  text += fmt::format("\ncost           {:.6g} (levels: {})\n", r.cost, r.source);
  if (r.spaces.size() > 1) text += fmt::format("all phases     {:.6g}\n", r.direction_cost);
  return text;
}

}  // namespace

void add_reuse_options(CLI::App& command, ReuseOptions& o) {
  command.footer(
      "Paper 004 (Tavarageri et al., PolyScientist): a dependence is the reuse of an operand's elements that one loop\n"
      "carries. Its working sets are the elements that the nest touches from the first use of an element to its next\n"
      "and to its last use. They are packed into caches, the smallest first, and each byte costs the latency of its\n"
      "level over the bandwidth (equation 1). Nests of the same problem are ranked by the sum; less is better.");
  command.add_option("--problem", o.problem, "Problem in benchdnn's grammar, e.g. ic32id48oc32kd3pd1")->required();
  command
      .add_option("--nest", o.nest,
                  "Loops, e.g. \"n* k c y ky kx x | c16 x14 k32\", or a blocking string. Without '|', the microkernel "
                  "is a product of matrices (--block)")
      ->required();
  command.add_option("--dir", o.direction, "Direction")
      ->check(CLI::IsMember({"fwd", "bwd_d", "bwd_w"}))
      ->capture_default_str();
  command.add_option("--type", o.type, "Element type")->check(CLI::IsMember({"f32", "f64"}))->capture_default_str();
  command.add_option("--phase", o.phase, "Phase of a stride in backward data")->capture_default_str();
  command.add_option(
      "--block", o.block,
      "Channels of the result in the microkernel of a nest without '|': 16 (default), 32 or 64; with f64 "
      "8 (default), 16 or 32");
  command.add_option("--caches", o.caches, "Sizes of the caches, e.g. 32K,1M,32M (default: of the machine row)")
      ->delimiter(',');
  command.add_option("--latency", o.latency, "Latencies in ns, one per cache and that of memory (default: of the row)")
      ->delimiter(',');
  command
      .add_option("--bandwidth", o.bandwidth,
                  "Bandwidths in GB/s, one per cache and that of memory (default: of the row)")
      ->delimiter(',');
  command.add_flag("--json", o.json, "Print one JSON object");
}

std::string plan_reuse(const ReuseOptions& options) {
  const ReuseResult result = analyse(options);
  return options.json ? to_json(result, options).dump(2) + "\n" : table(result, options);
}

}  // namespace convolume::tools
