#include "tools/plan_transfer.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "tools/arguments.hpp"
#include "tools/nest_counts.hpp"
#include "tools/problem_file.hpp"
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "convolume/error.hpp"
#include "convolume/machine.hpp"
#include "convolume/transfer.hpp"

namespace convolume::tools {
namespace {

using Json = nlohmann::ordered_json;
using plan::Operand;
using plan::TileCost;

constexpr const char* network = "flownet_s";

/// Prices, and where they come from.
struct Price {
  TransferPrice price;
  std::string unit, source;
};

TransferPrice parse_price(const std::string& text) {
  std::array<double, 3> values{};
  const char *at = text.data(), *end = text.data() + text.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, values[i]);
    const bool ends = i + 1 < values.size() ? next != end && *next == ',' : next == end;
    if (error != std::errc() || !ends) {
      throw InvalidArgument(
          fmt::format("--cost '{}' is no price; write the start, the jump and the element, for example 5000,20,1, or "
                      "memory, or file:FOLDER",
                      text));
    }
    at = next + 1;
  }
  return {.start = values[0], .jump = values[1], .element = values[2]};
}

/// Measured prices are for elements of 4 bytes.
TransferPrice for_elements(TransferPrice price, long long element_bytes) {
  price.element *= static_cast<double>(element_bytes) / 4;
  return price;
}

Price price_of(const TransferOptions& o) {
  constexpr std::string_view file = "file:";
  if (o.cost == "memory") {
    const MachineModel& machine = machine_model();
    return {.price = for_elements(machine.transfers.back(), o.element_bytes),
            .unit = "s",
            .source = fmt::format("machine row {}, from memory", machine.row)};
  }
  if (o.cost.starts_with(file)) {
    const std::string folder = o.cost.substr(file.size());
    const plan::FilePrice measured = plan::measure_file_price(folder);
    return {.price = for_elements(measured.price, o.element_bytes),
            .unit = "s",
            .source = fmt::format("measured, file in {}, {}", folder, measured.direct ? "O_DIRECT" : "page cache")};
  }
  const TransferPrice price = parse_price(o.cost);
  return {.price = price,
          .unit = "as given",
          .source = price == plan::paper_001_price ? "a fit to Table 1 of paper 001" : "--cost"};
}

std::vector<plan::NamedProblem> problems_of(const TransferOptions& o) {
  if (!o.problems.empty()) return read_problem_file(o.problems);
  if (!o.problem.empty()) return {{.name = o.problem, .problem = parse_problem(o.problem)}};
  std::vector<plan::NamedProblem> layers = plan::flownet_s_layers();
  if (o.layer == network) return layers;
  std::vector<std::string> names{network};
  for (const plan::NamedProblem& layer : layers) {
    names.push_back(fmt::format("{}.{}", network, layer.name));
    if (names.back() == o.layer) return {layer};
  }
  throw InvalidArgument(fmt::format("--layer '{}' is unknown; use one of {}", o.layer, fmt::join(names, ", ")));
}

/// A tile that the search picked.
struct Pick {
  const char* name;
  double planned;  ///< total by the counts of the search
  TileCost by_equations;
  std::optional<TileCost> exact;  ///< depthwise convolutions have none
  std::optional<plan::TransferRun> run;
};

struct Layer {
  plan::NamedProblem problem;
  plan::TransferPlan plan;
  std::vector<Pick> picks;
};

struct Plans {
  plan::TransferProblem common;  ///< without a convolution
  Price price;
  std::vector<Layer> layers;
};

std::optional<TileCost> counted_cost(const plan::TransferProblem& problem, const plan::TransferTile& tile) {
  try {
    return plan::exact_cost(problem, tile);
  } catch (const Unsupported&) {
    return std::nullopt;
  }
}

Layer plan_layer(const plan::TransferProblem& problem, const plan::NamedProblem& named, const TransferOptions& o) {
  Layer layer{.problem = named, .plan = plan::plan_transfers(problem), .picks = {}};
  const auto add = [&](const char* name, const TileCost& cost) {
    Pick pick{.name = name,
              .planned = cost.total,
              .by_equations = plan::tile_cost(problem, cost.tile),
              .exact = counted_cost(problem, cost.tile),
              .run = std::nullopt};
    if (o.run) pick.run = plan::run_transfers(problem, cost.tile);
    layer.picks.push_back(pick);
  };
  const bool all = o.pick == "all";
  if (all || o.pick == "best") add("best", layer.plan.best);
  if (o.pick == "naive" && !layer.plan.naive) {
    throw InvalidArgument(
        fmt::format("--pick naive: no tile of {} uses 80 % of a half, because the convolution is too small; use a "
                    "smaller --capacity",
                    named.name));
  }
  if (layer.plan.naive && (all || o.pick == "naive")) add("naive", *layer.plan.naive);
  if (all) add("fullest", layer.plan.fullest);
  return layer;
}

Plans make_plans(const TransferOptions& o) {
  if (o.run && o.cost.starts_with("file:")) {
    throw InvalidArgument("--run moves tiles between tensors in memory; use it with --cost memory or --cost C,p,t");
  }
  const auto problems = problems_of(o);
  Plans plans{
      .common = {.problem = {},
                 .capacity_bytes = static_cast<index_t>(bytes_of(o.capacity, "--capacity")),
                 .element_bytes = o.element_bytes,
                 .order = o.order,
                 .footprint = o.footprint == "paper" ? plan::TransferFootprint::paper : plan::TransferFootprint::halo,
                 .counts = o.counts == "exact" ? plan::TransferCounts::exact : plan::TransferCounts::equations},
      .price = price_of(o),
      .layers = {}};
  plans.common.price = plans.price.price;
  for (const plan::NamedProblem& named : problems) {
    plan::TransferProblem problem = plans.common;
    problem.problem = named.problem;
    plans.layers.push_back(plan_layer(problem, named, o));
  }
  return plans;
}

Json tile_json(const plan::TransferTile& tile) {
  return {{"z", tile.z}, {"y", tile.y}, {"x", tile.x}, {"c", tile.c}, {"k", tile.k}};
}

/// Returns one number per operand.
Json each(const TileCost& cost, double plan::TransferCost::*value) {
  Json json;
  for (const Operand operand : plan::operands) json[name_of(operand)] = cost.of(operand).*value;
  return json;
}

Json cost_json(const TileCost& cost) {
  Json json{{"calls", each(cost, &plan::TransferCost::calls)},
            {"jumps", each(cost, &plan::TransferCost::jumps)},
            {"words", each(cost, &plan::TransferCost::words)},
            {"cost", each(cost, &plan::TransferCost::cost)}};
  json["cost"]["total"] = cost.total;
  return json;
}

Json pick_json(const Pick& pick) {
  Json json{{"pick", pick.name}, {"tile", tile_json(pick.by_equations.tile)}};
  json.update(cost_json(pick.by_equations));
  json["usage"] = pick.by_equations.usage;
  json["feasible"] = pick.by_equations.feasible;
  json["exact"] = pick.exact ? cost_json(*pick.exact) : Json();
  if (pick.run) {
    json["measured"] = {{"seconds", pick.run->seconds},
                        {"transfer_s", pick.run->transfer_seconds},
                        {"words", pick.run->words},
                        {"passes", pick.run->passes}};
  }
  return json;
}

Json summary_json(const TileCost& cost) {
  return {{"tile", tile_json(cost.tile)}, {"total", cost.total}, {"usage", cost.usage}};
}

/// Totals of all layers.
struct Sum {
  double best = 0, naive = 0;
  explicit Sum(const Plans& plans) {
    for (const Layer& layer : plans.layers) {
      best += layer.plan.best.total;
      naive += layer.plan.naive ? layer.plan.naive->total : layer.plan.best.total;
    }
  }
  double ratio() const { return naive / best; }
};

Json to_json(const Plans& plans) {
  const plan::TransferProblem& common = plans.common;
  Json json{{"order", common.order},
            {"footprint", name_of(common.footprint)},
            {"counts", name_of(common.counts)},
            {"capacity_bytes", common.capacity_bytes},
            {"element_bytes", common.element_bytes},
            {"price",
             {{"start", common.price.start},
              {"jump", common.price.jump},
              {"element", common.price.element},
              {"unit", plans.price.unit},
              {"source", plans.price.source}}},
            {"layers", Json::array()}};
  for (const Layer& layer : plans.layers) {
    Json one{{"name", layer.problem.name},
             {"problem", to_string(layer.problem.problem)},
             {"tiles", layer.plan.feasible_tiles},
             {"naive_tiles", layer.plan.naive_tiles},
             {"picks", Json::array()},
             {"best", summary_json(layer.plan.best)},
             {"naive", layer.plan.naive ? summary_json(*layer.plan.naive) : Json()},
             {"fullest", summary_json(layer.plan.fullest)},
             {"ratio", layer.plan.naive ? Json(layer.plan.ratio()) : Json()}};
    for (const Pick& pick : layer.picks) one["picks"].push_back(pick_json(pick));
    json["layers"].push_back(std::move(one));
  }
  const Sum sum(plans);
  json["total"] = {{"best", sum.best}, {"naive", sum.naive}, {"ratio", sum.ratio()}};
  return json;
}

std::string table(const Plans& plans) {
  const plan::TransferProblem& common = plans.common;
  std::string text = fmt::format(
      "memory     {} in two halves, elements of {} bytes, footprint {}\nloops      {}, the outermost first\nprice      "
      "start {:.4g}, jump {:.4g}, element {:.4g}; {}\n\n",
      bytes_text(static_cast<double>(common.capacity_bytes)), common.element_bytes, name_of(common.footprint),
      common.order, common.price.start, common.price.jump, common.price.element, plans.price.source);
  std::size_t width = 5;
  for (const Layer& layer : plans.layers) width = std::max(width, layer.problem.name.size());
  text +=
      fmt::format("{:<{}}  {:<8}{:<26}{:>6}{:>11}{:>11}{:>11}{:>11}{:>11}{:>9}{:>12}{:>12}\n", "layer", width, "tile",
                  "", "usage", "calls", "jumps", "words", "cost", "exact", "to best", "transfer s", "with waits");
  for (const Layer& layer : plans.layers) {
    for (const Pick& pick : layer.picks) {
      const TileCost& cost = pick.by_equations;
      plan::TransferCost all;
      for (const plan::TransferCost& one : cost.transfers) {
        all.calls += one.calls;
        all.jumps += one.jumps;
        all.words += one.words;
      }
      text += fmt::format(
          "{:<{}}  {:<8}{:<26}{:>4.0f} %{:>11.4g}{:>11.4g}{:>11.4g}{:>11.4g}{:>11}{:>9.2f}{:>12}{:>12}\n",
          layer.problem.name, width, pick.name, to_string(cost.tile), 100 * cost.usage, all.calls, all.jumps, all.words,
          cost.total, pick.exact ? fmt::format("{:.4g}", pick.exact->total) : "-", pick.planned / layer.plan.best.total,
          pick.run ? fmt::format("{:.4g}", pick.run->transfer_seconds) : "-",
          pick.run ? fmt::format("{:.4g}", pick.run->seconds) : "-");
    }
  }
  const Sum sum(plans);
  return text + fmt::format("\nIn all, the best tiles cost {:.4g}; naive tiles cost {:.4g}, {:.2f} times as much.\n",
                            sum.best, sum.naive, sum.ratio());
}

}  // namespace

void add_transfer_options(CLI::App& command, TransferOptions& o) {
  command.footer(
      "Paper 001 (Cecconi et al., Optimal Tiling Strategy for Memory Bandwidth Reduction for CNNs): a small memory\n"
      "holds tiles of x, w and y in one half, while the next tiles are moved into the other half. A transfer costs\n"
      "C + jumps * p + words * t. All tiles whose extents divide those of the convolution are tried. In the paper,\n"
      "sigma_s and sigma_t are y and x of the tile times the stride, sigma_k is c, and sigma_z is k.\n"
      "A naive tile is the median of all that use at least 80 % of a half.");
  auto* source = command.add_option_group("convolution");
  source->add_option("--problem", o.problem, "Problem in benchdnn's grammar, e.g. ic32id48oc32kd3pd1");
  source->add_option("--problems", o.problems, "File with one problem per line");
  source->add_option("--layer", o.layer, "flownet_s.conv_1 to flownet_s.conv_6.1, or flownet_s for all");
  source->require_option(1);
  command.add_option("--capacity", o.capacity, "Bytes of the small memory, both halves")->capture_default_str();
  command.add_option("--element", o.element_bytes, "Bytes of an element")->capture_default_str();
  command
      .add_option(
          "--cost", o.cost,
          "Prices C,p,t of a transfer's start, of a jump and of an element; memory: those of the machine row, in "
          "seconds; file:FOLDER: measured with a file there. The default is a fit to Table 1 of the paper")
      ->capture_default_str();
  command
      .add_option(
          "--order", o.order,
          "Loops over tiles, the outermost first; the paper's is zyxck. z may be left out if there is one plane")
      ->capture_default_str();
  command
      .add_option("--footprint", o.footprint,
                  "What a tile of x takes: with its halo, or as the paper's constraint says")
      ->check(CLI::IsMember({"halo", "paper"}))
      ->capture_default_str();
  command
      .add_option("--counts", o.counts,
                  "What the search minimises: the cost by the paper's equations, or by exact counts (column exact)")
      ->check(CLI::IsMember({"equations", "exact"}))
      ->capture_default_str();
  command.add_option("--pick", o.pick, "Tiles to show; all: the fullest too")
      ->check(CLI::IsMember({"best", "naive", "all"}))
      ->capture_default_str();
  command.add_flag("--run", o.run,
                   "Measure the transfers of these tiles, without computation: a helper thread copies them between "
                   "tensors in memory and two halves");
  command.add_flag("--json", o.json, "Print one JSON object");
}

std::string plan_transfers(const TransferOptions& options) {
  const Plans plans = make_plans(options);
  return options.json ? to_json(plans).dump(2) + "\n" : table(plans);
}

}  // namespace convolume::tools
