#include "tools/plan.hpp"

#include <array>
#include <charconv>

#include "tools/nest_arguments.hpp"
#include "tools/nest_counts.hpp"
#include "tools/text_file.hpp"
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/conv.hpp"
#include "convolume/error.hpp"
#include "convolume/nest.hpp"

namespace convolume::tools {
namespace {

using Json = nlohmann::ordered_json;
using plan::Operand;

/// Makes the microkernel a datapath that multiplies C channels of x and K channels of y at once.
plan::LoopNest with_datapath(plan::LoopNest nest, const std::string& text) {
  std::array<index_t, 2> size{};
  const char *at = text.data(), *end = text.data() + text.size();
  for (std::size_t i = 0; i < size.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, size[i]);
    const bool ends = i == 0 ? next != end && *next == ',' : next == end;
    if (error != std::errc() || size[i] < 1 || !ends) {
      throw InvalidArgument(fmt::format(
          "--datapath '{}' is not C,K; write the channels of x and of y that are multiplied at once, for example 16,16",
          text));
    }
    at = next + 1;
  }
  nest.microkernel = nest.loops.size();
  nest.loops.push_back({.dim = plan::Dim::c, .extent = size[0]});
  nest.loops.push_back({.dim = plan::Dim::k, .extent = size[1]});
  return nest;
}

NestCounts count(const CountOptions& o) {
  const ConvProblem problem = read_problem(o.problem, o.type);
  const auto spaces = plan::spaces(problem, direction_of(o.direction));
  plan::LoopNest nest = read_nest(o.nest);
  if (!o.datapath.empty()) nest = with_datapath(std::move(nest), o.datapath);
  plan::validate(nest, spaces);
  check_phase(o.phase, spaces.size(), o.direction);
  NestCounts counts{.problem = to_string(problem),
                    .direction = o.direction,
                    .layout = o.layout,
                    .space = spaces[static_cast<std::size_t>(o.phase)],
                    .nest = nest,
                    .phases = spaces.size(),
                    .phase = static_cast<std::size_t>(o.phase),
                    .element_bytes = size_of(problem.type),
                    .levels = {},
                    .buffers = plan::buffers(nest, spaces[static_cast<std::size_t>(o.phase)])};
  const auto loops = plan::bind(nest, counts.space);
  const Layout layout = o.layout == "blocked" ? Layout::blocked : Layout::plain;
  plan::Extents tile = counts.space.extent;
  for (std::size_t i = 0; i < loops.size(); ++i) {
    NestLevel level{.loop = to_string(nest.loops[i]),
                    .bound = loops[i],
                    .parallel = nest.loops[i].parallel,
                    .in_microkernel = i >= nest.microkernel,
                    .tile = tile,
                    .fetches = {}};
    for (const Operand operand : plan::operands) {
      level.fetches.push_back(plan::fetch(nest, counts.space, i, operand, layout));
    }
    counts.levels.push_back(std::move(level));
    tile[static_cast<std::size_t>(loops[i].dim)] = loops[i].step;
  }
  return counts;
}

Json fetch_json(const plan::Fetch& fetch, std::size_t element_bytes) {
  return {{"words", fetch.held},
          {"loads", fetch.loads},
          {"fetched", fetch.words},
          {"runs", fetch.runs},
          {"run_bytes", run_bytes(fetch, element_bytes)}};
}

Json to_json(const NestCounts& counts) {
  Json json{{"problem", counts.problem},
            {"direction", counts.direction},
            {"layout", counts.layout},
            {"phase", counts.phase},
            {"phases", counts.phases},
            {"groups", counts.space.groups},
            {"element_bytes", counts.element_bytes},
            {"macs", counts.space.macs()},
            {"nest", to_string(counts.nest)},
            {"blocking_string", blocking_string(counts.nest)},
            {"levels", Json::array()},
            {"buffers", Json::array()}};
  for (const NestLevel& level : counts.levels) {
    Json tile;
    for (const plan::Dim dim : plan::all_dims) tile[name_of(dim)] = level.tile[static_cast<std::size_t>(dim)];
    Json one{{"loop", level.loop}, {"trips", level.bound.trips()}, {"tile", std::move(tile)}};
    for (const Operand operand : plan::operands) {
      one[name_of(operand)] = fetch_json(level.fetches[static_cast<std::size_t>(operand)], counts.element_bytes);
    }
    json["levels"].push_back(std::move(one));
  }
  for (const plan::Buffer& buffer : counts.buffers) {
    json["buffers"].push_back(
        {{"operand", name_of(buffer.operand)},
         {"loop", counts.levels[buffer.depth].loop},
         {"depth", buffer.depth},
         {"words", buffer.words},
         {"loads", buffer.loads},
         {"passes", buffer.passes},
         {"reads", {{"exact", buffer.reads_exact}, {"table2", buffer.reads_table2}, {"plain", buffer.reads_plain}}}});
  }
  return json;
}

std::string table(const NestCounts& c) {
  std::string text = fmt::format("problem        {}\ndirection      {}", c.problem, c.direction);
  if (c.phases > 1) text += fmt::format(", phase {} of {} (--phase)", c.phase, c.phases);
  if (c.space.groups > 1) text += fmt::format(", one of {} groups", c.space.groups);
  text += fmt::format("\nnest           {}\nblocking       {}\nmultiply-adds  {:.6g}\n\n", to_string(c.nest),
                      blocking_string(c.nest), c.space.macs());
  text += fmt::format("{:<10}{:>7}", "loop", "trips");
  for (const Operand operand : plan::operands) {
    text +=
        fmt::format("  | {0:<1} {1:>9} {2:>10} {3:>10} {4:>8}", name_of(operand), "holds", "loads", "fetches", "run");
  }
  text += "\n";
  for (const NestLevel& level : c.levels) {
    text += fmt::format("{:<10}{:>7}", (level.in_microkernel ? "| " : "") + level.loop, level.bound.trips());
    for (const plan::Fetch& fetch : level.fetches) {
      const auto bytes = static_cast<double>(c.element_bytes);
      text += fmt::format("  |   {:>9} {:>10.5g} {:>10} {:>8}", bytes_text(bytes * static_cast<double>(fetch.held)),
                          fetch.loads, bytes_text(bytes * fetch.words), bytes_text(run_bytes(fetch, c.element_bytes)));
    }
    text += "\n";
  }
  text += fmt::format("\n{:<8}{:<10}{:>10}{:>12}{:>10}{:>14}{:>14}{:>14}\n", "buffer", "at loop", "words", "loads",
                      "passes", "reads exact", "table 2", "plain");
  for (const plan::Buffer& b : c.buffers) {
    text +=
        fmt::format("{:<8}{:<10}{:>10}{:>12.6g}{:>10.5g}{:>14.6g}{:>14.6g}{:>14.6g}\n", name_of(b.operand),
                    c.levels[b.depth].loop, b.words, b.loads, b.passes, b.reads_exact, b.reads_table2, b.reads_plain);
  }
  return text;
}

Json to_json(const Explanation& e) {
  Json engines = Json::array(), bounds = Json::array(), caches = Json::array();
  for (const Explanation::Candidate& one : e.candidates) {
    Json engine{{"engine", name_of(one.engine)}, {"name", one.name}};
    if (one.seconds) {
      engine.update({{"seconds", *one.seconds}, {"bytes", one.bytes}});
    } else {
      engine["reason"] = one.reason;
    }
    engines.push_back(std::move(engine));
  }
  for (const Explanation::Bound& one : e.bounds) {
    bounds.push_back({{"result", one.result},
                      {"seconds", one.seconds},
                      {"part", one.part},
                      {"part_seconds", one.part_seconds},
                      {"floor_seconds", one.floor_seconds}});
  }
  for (const CacheCost& one : e.caches) {
    caches.push_back(
        {{"name", one.name}, {"bytes", one.bytes}, {"seconds_saved", one.seconds_saved}, {"kept", one.kept}});
  }
  return {{"problem", to_string(e.problem)},
          {"x_layout", name_of(e.problem.x_layout)},
          {"y_layout", name_of(e.problem.y_layout)},
          {"engines", std::move(engines)},
          {"engine", name_of(e.engine)},
          {"choice", e.choice},
          {"seconds", e.seconds},
          {"bounds", std::move(bounds)},
          {"caches", std::move(caches)}};
}

}  // namespace

double run_bytes(const plan::Fetch& fetch, std::size_t element_bytes) {
  return fetch.runs > 0 ? fetch.words * static_cast<double>(element_bytes) / fetch.runs : 0;
}

std::string bytes_text(double bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, units[unit]);
}

std::string count_nest(const CountOptions& options) {
  const NestCounts counts = count(options);
  if (!options.svg.empty()) write_text(options.svg, nest_picture(counts));
  return options.json ? to_json(counts).dump(2) + "\n" : table(counts);
}

std::string explain_plan(const ExplainOptions& o) {
  ConvProblem problem = read_problem(o.problem, o.type);
  if (o.layout == "blocked") {
    problem.x_layout = usual_layout(problem.in_channels);
    problem.y_layout = usual_layout(problem.out_channels);
  }
  const ConvPlan plan =
      ConvPlan::make(problem, {.engine = engine_of(o.engine), .choice = o.choice, .low_error = o.low_error});
  return o.json ? to_json(plan.explanation()).dump(2) + "\n" : plan.explain();
}

void PlanCommand::add_to(CLI::App& app) {
  app.require_subcommand(1);
  const auto add_problem = [](CLI::App& command, std::string& problem, std::string& layout, std::string& type) {
    command.add_option("--problem", problem, "Problem in benchdnn's grammar, e.g. ic32id48oc32kd3pd1")->required();
    command.add_option("--layout", layout, "Layout of x and y")
        ->check(CLI::IsMember({"plain", "blocked"}))
        ->capture_default_str();
    command.add_option("--type", type, "Element type")->check(CLI::IsMember({"f32", "f64"}))->capture_default_str();
  };
  CLI::App* explain = app.add_subcommand(
      "explain",
      "Print why a problem goes to an engine: each engine's estimate or reason, the choice and its rounding");
  add_problem(*explain, explain_.problem, explain_.layout, explain_.type);
  explain->get_option("--layout")
      ->description("Layout of x and y. With blocked, a tensor with fewer than 8 channels stays plain");
  explain->add_option("--engine", explain_.engine, "Engine, or automatic")->capture_default_str();
  explain->add_flag("--low-error", explain_.low_error, "Leave out engines with a larger error (toom_cook)");
  explain->add_option("--choice", explain_.choice, "Choice text instead of the cost model's, as a plan prints it");
  explain->add_flag("--json", explain_.json, "Print one JSON object: what a program reads instead of the text");

  CLI::App* count = app.add_subcommand("count", "Count the elements that the loops of a nest touch and fetch");
  count_command_ = count;
  count->fallthrough();
  count->footer(
      "A nest lists loops, the outermost first: dimensions (n k c z y x kz ky kx), each with an extent if it is not\n"
      "all of it, '*' for parallel loops, and '|' before the microkernel. docs/planning.md explains it.");
  add_problem(*count, count_.problem, count_.layout, count_.type);
  count
      ->add_option("--nest", count_.nest,
                   "Loops, e.g. \"n* k* y* c x | kz ky kx c16 x14 k32\", or a blocking string, e.g. \"FwFhX0(8)Y0(8)C0"
                   "(16)K0(16)C1K1X1Y1\"")
      ->required();
  count->add_option("--dir", count_.direction, "Direction")
      ->check(CLI::IsMember({"fwd", "bwd_d", "bwd_w"}))
      ->capture_default_str();
  count->add_option("--phase", count_.phase, "Phase of a stride in backward data")->capture_default_str();
  count->add_option("--datapath", count_.datapath,
                    "C,K: channels of x and y that hardware multiplies at once; they become the microkernel");
  count->add_option("--svg", count_.svg, "Picture of the loops to write");
  count->add_flag("--json", count_.json, "Print one JSON object");

  energy_command_ = app.add_subcommand("energy", "Count or minimise the energy of a nest in a memory hierarchy");
  energy_command_->fallthrough();
  add_energy_options(*energy_command_, energy_);
  system_command_ = app.add_subcommand("system", "Design the memories of a chip for several layers");
  system_command_->fallthrough();
  add_system_options(*system_command_, system_);

  transfer_command_ = app.add_subcommand(
      "transfer", "Choose tiles of a convolution so that transfers from a large, slow memory cost least");
  transfer_command_->fallthrough();
  add_transfer_options(*transfer_command_, transfer_);

  bandwidth_command_ = app.add_subcommand(
      "bandwidth", "Compare the bandwidth that a convolution needs with what there is, on a chip or on this machine");
  bandwidth_command_->fallthrough();
  add_bandwidth_options(*bandwidth_command_, bandwidth_);

  reuse_command_ = app.add_subcommand("reuse", "Show where a nest uses data again, and in which cache that fits");
  reuse_command_->fallthrough();
  add_reuse_options(*reuse_command_, reuse_);

  variants_command_ = app.add_subcommand("variants", "Rank and measure orders and tiles of a layer's loops");
  variants_command_->fallthrough();
  add_variants_options(*variants_command_, variants_);
}

int PlanCommand::run() const {
  if (variants_command_->parsed()) return plan_variants(variants_);
  fmt::print("{}", count_command_->parsed()       ? count_nest(count_)
                   : energy_command_->parsed()    ? tools::plan_energy(energy_)
                   : system_command_->parsed()    ? tools::plan_system(system_)
                   : transfer_command_->parsed()  ? plan_transfers(transfer_)
                   : bandwidth_command_->parsed() ? plan_bandwidths(bandwidth_)
                   : reuse_command_->parsed()     ? plan_reuse(reuse_)
                                                  : explain_plan(explain_));
  return 0;
}

}  // namespace convolume::tools
