#include "tools/plan_bandwidth.hpp"

#include <algorithm>
#include <optional>

#include "tools/nest_counts.hpp"
#include "tools/nest_levels.hpp"
#include "tools/plan_bandwidth_chip.hpp"
#include "tools/plan_bandwidth_here.hpp"
#include "tools/problem_file.hpp"
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/bandwidth.hpp"
#include "convolume/error.hpp"
#include "convolume/machine.hpp"

namespace convolume::tools {
namespace {

using Json = nlohmann::ordered_json;
using plan::BandwidthReport;

constexpr const char* this_machine = "here";

/// A convolution of the list, and the number of its test set, or 0.
struct BandwidthCase {
  plan::NamedProblem named;
  int set = 0;
};

/// Returns the text of a planar problem without the extents that repeat others.
std::string planar_name(const ConvProblem& p) {
  return fmt::format("mb{}ic{}ih{}oc{}oh{}kh{}", p.batch, p.in_channels, p.input.y, p.out_channels, p.output().y,
                     p.kernel.y);
}

std::vector<BandwidthCase> cases_of(const BandwidthOptions& o, DataType type) {
  std::vector<BandwidthCase> cases;
  if (o.test_sets) {
    for (const plan::BandwidthTestSet& set : plan::bandwidth_test_sets()) {
      for (const ConvProblem& problem : set.problems) cases.push_back({{planar_name(problem), problem}, set.number});
    }
  } else if (!o.problems.empty()) {
    for (plan::NamedProblem& named : read_problem_file(o.problems)) cases.push_back({std::move(named)});
  } else {
    cases.push_back({{o.problem, parse_problem(o.problem)}});
  }
  for (BandwidthCase& one : cases) one.named.problem.type = type;
  return cases;
}

/// The results of a list of cases.
template <class Report>
struct BandwidthReports {
  std::vector<std::optional<Report>> reports{};
  std::vector<std::string> reasons{};  ///< of each case: why it has no report
};

/// Returns compute(problem) for all cases. A case of a file may be unsupported, if another one is not.
template <class Compute>
auto reports_of(const std::vector<BandwidthCase>& cases, Compute compute) {
  BandwidthReports<decltype(compute(cases.front().named.problem))> all;
  bool some = false;
  for (const BandwidthCase& one : cases) {
    const bool last_chance = !some && &one == &cases.back();
    try {
      all.reports.emplace_back(compute(one.named.problem));
      all.reasons.emplace_back();
      some = true;
    } catch (const Unsupported& error) {
      if (last_chance || one.set != 0) throw;
      all.reports.emplace_back();
      all.reasons.emplace_back(error.what());
    }
  }
  return all;
}

/// Mean and extremes of GFLOP/s.
struct Speeds {
  std::vector<double> gflops;

  double mean() const {
    double sum = 0;
    for (const double one : gflops) sum += one;
    return sum / static_cast<double>(gflops.size());
  }
  double least() const { return *std::min_element(gflops.begin(), gflops.end()); }
  double most() const { return *std::max_element(gflops.begin(), gflops.end()); }
};

Json speeds_json(const Speeds& speeds) {
  return {{"problems", speeds.gflops.size()}, {"mean", speeds.mean()}, {"min", speeds.least()}, {"max", speeds.most()}};
}

std::string speeds_row(const std::string& name, const Speeds& speeds, double peak) {
  return fmt::format("{:<14}{:>9}{:>9.4g}{:>9.4g}{:>9.4g}{:>8.1f} %\n", name, speeds.gflops.size(), speeds.mean(),
                     speeds.least(), speeds.most(), 100 * speeds.mean() / peak);
}

std::string speeds_head(const char* peak) {
  return fmt::format("\n{:<14}{:>9}{:>9}{:>9}{:>9}  of {}\n", "GFLOP/s", "problems", "mean", "min", "max", peak);
}

/// Returns the speeds of each test set, and those of all sets last. `gflops(i)` is the speed of case i.
template <class Gflops>
std::vector<std::pair<std::string, Speeds>> speeds_of_sets(const std::vector<BandwidthCase>& cases, Gflops gflops) {
  std::vector<std::pair<std::string, Speeds>> sets;
  Speeds all;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string name = fmt::format("set {}", cases[i].set);
    if (sets.empty() || sets.back().first != name) sets.push_back({name, {}});
    sets.back().second.gflops.push_back(gflops(i));
    all.gflops.push_back(gflops(i));
  }
  sets.emplace_back("all sets", std::move(all));
  return sets;
}

template <class Gflops>
Json sets_json(const std::vector<BandwidthCase>& cases, Gflops gflops) {
  const auto speeds = speeds_of_sets(cases, gflops);
  Json json = speeds_json(speeds.back().second);
  json["sets"] = Json::array();
  for (std::size_t i = 0; i + 1 < speeds.size(); ++i) json["sets"].push_back(speeds_json(speeds[i].second));
  return json;
}

std::string case_name(const BandwidthCase& one) {
  return one.set == 0 ? one.named.name : fmt::format("{}: {}", one.set, one.named.name);
}

std::size_t name_width(const std::vector<BandwidthCase>& cases) {
  std::size_t width = 7;
  for (const BandwidthCase& one : cases) width = std::max(width, case_name(one).size());
  return width;
}

/// Returns "33.0/16.8": what a level needs, and what it has.
std::string needs_of(double needs, double has) { return fmt::format("{:.4g}/{:.4g}", needs, has); }

Json case_json(const BandwidthCase& one) {
  Json json{{"name", one.named.name}, {"problem", to_string(one.named.problem)}};
  if (one.set != 0) json["set"] = one.set;
  json["way"] = plan::table4_way(one.named.problem);
  return json;
}

// ---------------------------------------------------------------------------------------------- chips

plan::Chip chip_of(const std::string& machine) {
  return machine.ends_with(".toml") ? read_chip(machine) : plan::named_chip(machine);
}

plan::BandwidthOptions chip_options(const BandwidthOptions& o, DataType type) {
  using plan::IssueOrder;
  plan::BandwidthOptions options{
      .type = type,
      .pattern = o.pattern == "gload" ? plan::AccessPattern::gload : plan::AccessPattern::ldm,
      .issue = IssueOrder::reordered,
      .double_buffer = !o.single_buffer};
  if (o.issue.empty()) {
    const bool casts = options.pattern == plan::AccessPattern::ldm;
    if (type == DataType::f32) options.issue = casts ? IssueOrder::float2double : IssueOrder::single;
    return options;
  }
  for (const IssueOrder order :
       {IssueOrder::simple, IssueOrder::reordered, IssueOrder::single, IssueOrder::float2double}) {
    if (o.issue == name_of(order)) options.issue = order;
  }
  return options;
}

/// What `--machine` with a chip shows.
struct ChipResult {
  plan::Chip chip;
  plan::BandwidthOptions options;
  std::vector<BandwidthCase> cases;
  BandwidthReports<BandwidthReport> all{};

  double gflops(std::size_t i) const { return all.reports[i]->gflops; }
};

ChipResult chip_result(const BandwidthOptions& o) {
  const DataType type = o.type == "f32" ? DataType::f32 : DataType::f64;
  ChipResult result{.chip = chip_of(o.machine), .options = chip_options(o, type), .cases = cases_of(o, type)};
  result.all = reports_of(result.cases, [&](const ConvProblem& problem) {
    return plan::plan_bandwidth(problem, result.chip, result.options);
  });
  return result;
}

Json levels_json(const BandwidthReport& r, double plan::BandwidthLevel::*value) {
  Json json;
  for (const plan::BandwidthLevel& level : r.levels) json[level.name] = level.*value;
  return json;
}

Json bandwidth_json(const BandwidthReport& r, const plan::Chip& chip) {
  Json json{{"cdr", r.cdr},
            {"cdr_one_column", r.cdr_one_column},
            {"cdr_needed", r.cdr_needed},
            {"ee", r.ee},
            {"ldm_bytes_per_cpe", r.core_bytes},
            {"tile_bytes_per_cpe", r.tile_bytes},
            {"tile_limit_bytes_per_cpe", r.tile_limit_bytes},
            {"b_c", r.columns},
            {"rbw_gb_per_s", levels_json(r, &plan::BandwidthLevel::needed_gb_per_s)},
            {"mbw_gb_per_s", levels_json(r, &plan::BandwidthLevel::available_gb_per_s)},
            {"dma", Json::array()},
            {"seconds", r.seconds},
            {"gflops", r.gflops},
            {"efficiency", r.efficiency}};
  if (chip.published_gflops) json["published_share"] = r.gflops / *chip.published_gflops;
  json["bound_by"] = r.bound;
  for (const plan::DmaStream& stream : r.streams) {
    json["dma"].push_back({{"operand", name_of(stream.operand)},
                           {"direction", name_of(stream.direction)},
                           {"run_bytes", stream.run_bytes},
                           {"bytes", stream.bytes},
                           {"gb_per_s", stream.gb_per_s}});
  }
  return json;
}

Json processors_json() {
  Json json = Json::array();
  for (const plan::PublishedProcessor& one : plan::published_processors()) {
    json.push_back({{"name", one.name},
                    {"memory_gb_per_s", one.memory_gb_per_s},
                    {"float_gflops", one.single_gflops},
                    {"double_gflops", one.double_gflops}});
  }
  return json;
}

Json to_json(const ChipResult& result, bool test_sets) {
  Json json{{"machine", result.chip.name},
            {"type", name_of(result.options.type)},
            {"pattern", name_of(result.options.pattern)},
            {"issue", name_of(result.options.issue)},
            {"double_buffer", result.options.double_buffer},
            {"peak_gflops", result.chip.gflops()},
            {"cases", Json::array()}};
  for (std::size_t i = 0; i < result.cases.size(); ++i) {
    Json one = case_json(result.cases[i]);
    if (result.all.reports[i]) {
      one.update(bandwidth_json(*result.all.reports[i], result.chip));
    } else {
      one["unsupported"] = result.all.reasons[i];
    }
    json["cases"].push_back(std::move(one));
  }
  if (test_sets) {
    json["test_sets"] = sets_json(result.cases, [&](std::size_t i) { return result.gflops(i); });
    json["published_processors"] = processors_json();
  }
  return json;
}

std::string chip_head(const ChipResult& result) {
  const plan::Chip& chip = result.chip;
  const bool scratch = result.options.pattern == plan::AccessPattern::ldm;
  const char* buffers = !scratch ? "no buffers" : result.options.double_buffer ? "two buffers" : "one buffer";
  return fmt::format(
      "machine    {}: {} core groups of {} cores, {:.5g} GFLOP/s in all; {} of scratch memory per core\n"
      "model      forward, {}, {} with {}, issue order {}\n",
      chip.name, chip.groups, chip.cores, chip.gflops(), bytes_text(static_cast<double>(chip.scratch_bytes)),
      name_of(result.options.type), name_of(result.options.pattern), buffers, name_of(result.options.issue));
}

std::string share_text(const BandwidthReport& r, const plan::Chip& chip) {
  std::string text = fmt::format("{:.1f} % of the peak", 100 * r.efficiency);
  if (chip.published_gflops) {
    text += fmt::format(", {:.1f} % of the published {:.5g}", 100 * r.gflops / *chip.published_gflops,
                        *chip.published_gflops);
  }
  return text;
}

/// Returns all numbers of one problem.
std::string details(const BandwidthCase& one, const BandwidthReport& r, const plan::Chip& chip) {
  std::string text = fmt::format("problem    {}\ntable 4    {}\n", one.named.name, plan::table4_way(one.named.problem));
  text += fmt::format(
      "ratio      {:.4g} multiply-adds per load for one column (equation 2), {:.4g} for {} (equation 4); needs {:.4g}\n"
      "issue      {:.1f} % of the slots are multiply-adds\n",
      r.cdr_one_column, r.cdr, r.columns, r.cdr_needed, 100 * r.ee);
  if (r.core_bytes > 0) {
    text += fmt::format("scratch    {} per core for one column (equation 3), {} for b_C = {}; a tile may take {}\n",
                        bytes_text(r.core_bytes), bytes_text(r.tile_bytes), r.columns, bytes_text(r.tile_limit_bytes));
  }
  text += fmt::format("speed      {:.5g} GFLOP/s, {}; {:.4g} s\nbound      {}\n\n", r.gflops, share_text(r, chip),
                      r.seconds, r.bound);
  text += fmt::format("{:<10}{:>12}{:>12}\n", "level", "needs GB/s", "has GB/s");
  for (const plan::BandwidthLevel& level : r.levels) {
    text += fmt::format("{:<10}{:>12.4g}{:>12.4g}\n", level.name, level.needed_gb_per_s, level.available_gb_per_s);
  }
  if (r.streams.empty()) return text;
  text += fmt::format("\n{:<10}{:>12}{:>12}{:>12}\n", "tile", "run", "moves", "GB/s");
  for (const plan::DmaStream& stream : r.streams) {
    text += fmt::format("{:<10}{:>12}{:>12}{:>12.4g}\n",
                        fmt::format("{} {}", name_of(stream.direction), name_of(stream.operand)),
                        bytes_text(stream.run_bytes), bytes_text(stream.bytes), stream.gb_per_s);
  }
  return text;
}

std::string list_row(const BandwidthReport& r) {
  const auto needs = [&](std::size_t level) {
    return needs_of(r.levels[level].needed_gb_per_s, r.levels[level].available_gb_per_s);
  };
  return fmt::format("{:>7.4g}{:>7.4g}{:>6.1f} %{:>6}{:>11}{:>14}{:>14}{:>9.0f}{:>7.1f} %  {}\n", r.cdr_one_column,
                     r.cdr, 100 * r.ee, r.columns, bytes_text(r.tile_bytes), needs(0), needs(1), r.gflops,
                     100 * r.efficiency, r.bound);
}

std::string list(const ChipResult& result) {
  const std::size_t width = name_width(result.cases);
  const bool scratch = result.options.pattern == plan::AccessPattern::ldm;
  std::string text = fmt::format("\n{:<{}}  {:<9}{:>7}{:>7}{:>8}{:>6}{:>11}{:>14}{:>14}{:>9}{:>9}  {}\n", "problem",
                                 width, "table 4", "eq. 2", "eq. 4", "EE", "b_C", "scratch", "memory",
                                 scratch ? "scratch" : "loads", "GFLOP/s", "of peak", "bound");
  for (std::size_t i = 0; i < result.cases.size(); ++i) {
    const BandwidthCase& one = result.cases[i];
    text += fmt::format("{:<{}}  {:<9}", case_name(one), width, plan::table4_way(one.named.problem));
    text += result.all.reports[i] ? list_row(*result.all.reports[i]) : result.all.reasons[i] + "\n";
  }
  return text +
         "\nThe first scratch is bytes of a tile per core. Levels show GB/s: what is needed, and what there is.\n";
}

std::string processors_text() {
  std::string text = fmt::format("\n{:<14}{:>15}{:>15}{:>15}\n", "published", "memory GB/s", "float GFLOP/s", "double");
  for (const plan::PublishedProcessor& one : plan::published_processors()) {
    text += fmt::format("{:<14}{:>15.0f}{:>15.0f}{:>15.0f}\n", one.name, one.memory_gb_per_s, one.single_gflops,
                        one.double_gflops);
  }
  return text;
}

std::string table(const ChipResult& result, bool test_sets) {
  std::string text = chip_head(result);
  if (result.cases.size() == 1) return text + details(result.cases[0], *result.all.reports[0], result.chip);
  text += list(result);
  if (!test_sets) return text;
  const double peak = result.chip.published_gflops.value_or(result.chip.gflops());
  text += speeds_head(result.chip.published_gflops ? "the published peak" : "the peak");
  for (const auto& [name, speeds] : speeds_of_sets(result.cases, [&](std::size_t i) { return result.gflops(i); })) {
    text += speeds_row(name, speeds, peak);
  }
  return text + processors_text();
}

// --------------------------------------------------------------------------------------- this machine

/// What `--machine here` shows.
struct HostResult {
  DataType type = DataType::f32;
  std::vector<BandwidthCase> cases;
  BandwidthReports<std::vector<HostDirection>> all{};  ///< directions of each case

  double gflops(std::size_t i, std::size_t direction) const { return (*all.reports[i])[direction].gflops; }
};

void check_host_options(const BandwidthOptions& o) {
  const char* option = !o.pattern.empty() ? "--pattern" : !o.issue.empty() ? "--issue" : "--single-buffer";
  if (o.pattern.empty() && o.issue.empty() && !o.single_buffer) return;
  throw InvalidArgument(
      fmt::format("{} is for chips with scratch memories; leave it out with --machine {}, or use --machine sw26010",
                  option, this_machine));
}

HostResult host_result(const BandwidthOptions& o) {
  check_host_options(o);
  const DataType type = o.type == "f64" ? DataType::f64 : DataType::f32;
  HostResult result{.type = type, .cases = cases_of(o, type)};
  result.all = reports_of(result.cases, host_directions);
  return result;
}

Json direction_json(const HostDirection& one) {
  Json needed, available, bytes;
  for (std::size_t i = 0; i < nest_level_names.size(); ++i) {
    needed[nest_level_names[i]] = 1e-9 * one.cost.needed_bandwidth(i);
    available[nest_level_names[i]] = nest_level_gb_per_s()[i];
    bytes[nest_level_names[i]] = one.cost.bytes[i];
  }
  return {{"dir", name_of(one.direction)},
          {"nest", to_string(one.nest)},
          {"ee", one.ee},
          {"bytes", std::move(bytes)},
          {"rbw_gb_per_s", std::move(needed)},
          {"mbw_gb_per_s", std::move(available)},
          {"seconds", one.cost.seconds()},
          {"gflops", one.gflops},
          {"efficiency", one.efficiency},
          {"bound_by", bound_of(one.cost)}};
}

Json to_json(const HostResult& result, bool test_sets) {
  Json json{{"machine", machine_model().row},
            {"type", name_of(result.type)},
            {"peak_gflops", host_gflops(result.type)},
            {"cases", Json::array()}};
  for (std::size_t i = 0; i < result.cases.size(); ++i) {
    Json one = case_json(result.cases[i]);
    if (result.all.reports[i]) {
      one["directions"] = Json::array();
      for (const HostDirection& each : *result.all.reports[i]) one["directions"].push_back(direction_json(each));
    } else {
      one["unsupported"] = result.all.reasons[i];
    }
    json["cases"].push_back(std::move(one));
  }
  for (std::size_t d = 0; test_sets && d < plan::directions.size(); ++d) {
    json["test_sets"][name_of(plan::directions[d])] =
        sets_json(result.cases, [&](std::size_t i) { return result.gflops(i, d); });
  }
  return json;
}

std::string host_row(const HostDirection& one) {
  std::string text = fmt::format("{:<6}{:>6.1f} %", name_of(one.direction), 100 * one.ee);
  for (std::size_t i = 0; i < nest_level_names.size(); ++i) {
    text += fmt::format("{:>14}", needs_of(1e-9 * one.cost.needed_bandwidth(i), nest_level_gb_per_s()[i]));
  }
  return text + fmt::format("{:>12.4g}{:>9.1f}{:>7.1f} %  {}\n", 1e3 * one.cost.seconds(), one.gflops,
                            100 * one.efficiency, bound_of(one.cost));
}

std::string table(const HostResult& result, bool test_sets) {
  const std::size_t width = name_width(result.cases);
  std::string text =
      fmt::format("machine    {}, one core: {:.5g} GFLOP/s\nmodel      engine direct, {}, plain tensors\n\n",
                  machine_model().row, host_gflops(result.type), name_of(result.type));
  text += fmt::format("{:<{}}  {:<9}{:<6}{:>8}{:>14}{:>14}{:>14}{:>12}{:>9}{:>9}  {}\n", "problem", width, "table 4",
                      "dir", "EE", nest_level_names[0], nest_level_names[1], nest_level_names[2], "ms", "GFLOP/s",
                      "of peak", "bound");
  for (std::size_t i = 0; i < result.cases.size(); ++i) {
    const std::string first = fmt::format("{:<{}}  {:<9}", case_name(result.cases[i]), width,
                                          plan::table4_way(result.cases[i].named.problem));
    if (!result.all.reports[i]) {
      text += first + result.all.reasons[i] + "\n";
      continue;
    }
    for (const HostDirection& one : *result.all.reports[i]) text += first + host_row(one);
  }
  text += "\nLevels show GB/s: what the multiply-adds need so that they never wait, and what a core gets.\n";
  for (std::size_t d = 0; test_sets && d < plan::directions.size(); ++d) {
    text += speeds_head("the peak of a core");
    for (const auto& [name, speeds] :
         speeds_of_sets(result.cases, [&](std::size_t i) { return result.gflops(i, d); })) {
      text += speeds_row(fmt::format("{} {}", name_of(plan::directions[d]), name), speeds, host_gflops(result.type));
    }
  }
  return text;
}

template <class Result>
std::string show(const Result& result, const BandwidthOptions& o) {
  return o.json ? to_json(result, o.test_sets).dump(2) + "\n" : table(result, o.test_sets);
}

}  // namespace

void add_bandwidth_options(CLI::App& command, BandwidthOptions& o) {
  command.footer(
      "Paper 003 (Zhao et al., Optimizing Convolutional Neural Networks on the Sunway TaihuLight Supercomputer): a\n"
      "convolution is as fast as its inner loop issues multiply-adds, unless a level needs more bandwidth than there\n"
      "is. On a chip the model has planar convolutions without groups, in the forward direction.\n"
      "docs/planning.md explains it.");
  auto* source = command.add_option_group("convolution");
  source->add_option("--problem", o.problem, "Problem in benchdnn's grammar, e.g. mb128ic128ih66oc128oh64kh3");
  source->add_option("--problems", o.problems, "File with one problem per line");
  source->add_flag("--test-sets", o.test_sets, "The 51 problems of the paper's four test sets, and their means");
  source->require_option(1);
  command
      .add_option(
          "--machine", o.machine,
          "here: this machine, all directions, by the nests of the engine direct; sw26010; or FILE.toml, a chip "
          "as docs/sw26010.toml describes one")
      ->capture_default_str();
  command
      .add_option("--pattern", o.pattern,
                  "How data of a chip reach the registers: from memory, or by the scratch memory (default: ldm)")
      ->check(CLI::IsMember({"gload", "ldm"}));
  command
      .add_option(
          "--issue", o.issue,
          "Instructions of a chip's inner loop. f64: simple, or reordered (default). f32: float, or float2double "
          "(default with ldm), which casts in the scratch memory")
      ->check(CLI::IsMember({"simple", "reordered", "float", "float2double"}));
  command.add_option("--type", o.type, "Element type (default: f64 on a chip, f32 here)")
      ->check(CLI::IsMember({"f32", "f64"}));
  command.add_flag("--single-buffer", o.single_buffer,
                   "One buffer in all of a chip's scratch memory: moves wait for the computation");
  command.add_flag("--json", o.json, "Print one JSON object");
}

std::string plan_bandwidths(const BandwidthOptions& o) {
  return o.machine == this_machine ? show(host_result(o), o) : show(chip_result(o), o);
}

}  // namespace convolume::tools
