#include "tools/plan_energy.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>

#include "tools/arguments.hpp"
#include "tools/nest_counts.hpp"
#include "tools/plan_energy_hierarchy.hpp"
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "convolume/energy.hpp"
#include "convolume/error.hpp"

namespace convolume::tools {
namespace {

using Json = nlohmann::ordered_json;
using plan::EnergyLayer;
using plan::EnergyReport;
using plan::Operand;

constexpr std::size_t index(Operand operand) { return static_cast<std::size_t>(operand); }

plan::Datapath datapath_of(const std::string& text) {
  plan::Datapath datapath;
  const char *at = text.data(), *end = text.data() + text.size();
  const auto [comma, first] = std::from_chars(at, end, datapath.c);
  const bool has_comma = first == std::errc() && comma != end && *comma == ',';
  const auto [last, second] = std::from_chars(has_comma ? comma + 1 : at, end, datapath.k);
  if (!has_comma || second != std::errc() || last != end || datapath.c < 1 || datapath.k < 1) {
    throw InvalidArgument(fmt::format(
        "--datapath '{}' is not C,K; write the channels of x and of y that are multiplied at once, for example 16,16",
        text));
  }
  return datapath;
}

plan::EnergyOptions model_options(const EnergyModelOptions& o) {
  plan::EnergyOptions options{.counts = o.counts == "table2" ? plan::Counts::table2 : plan::Counts::exact,
                              .mac_pj = o.mac_pj};
  if (o.register_pj != 0) options.register_pj = o.register_pj;
  if (o.word_bits != "auto") options.word_bits = std::stoi(o.word_bits);
  options.free_latches = o.latches == "free";
  if (!o.limit.empty()) {
    options.limit_bytes = static_cast<double>(bytes_of(o.limit, "--limit"));
    if (options.limit_bytes == 0) throw InvalidArgument("--limit is 0 bytes; write a positive size, for example 1M");
  }
  return options;
}

plan::SearchOptions search_options(const EnergyModelOptions& o) {
  return {.levels = o.levels, .top = o.top, .seeds = o.seeds, .seed = o.seed};
}

void check_batch(std::int64_t batch) {
  constexpr std::int64_t most = 1 << 20;
  if (batch < 0 || batch > most) {
    throw InvalidArgument(fmt::format("--batch {}: a batch has 1 to {} samples", batch, most));
  }
}

EnergyLayer layer_of_problem(const std::string& text, const EnergyModelOptions& o) {
  ConvProblem problem = parse_problem(text);
  if (o.batch != 0) problem.batch = o.batch;
  return plan::energy_layer(problem, datapath_of(o.datapath), text);
}

EnergyLayer layer_named(const std::string& name, const EnergyModelOptions& o) {
  return plan::table4_layer(name, o.batch == 0 ? std::nullopt : std::optional<index_t>(o.batch),
                            datapath_of(o.datapath));
}

/// X, Y, C, K, Fw, Fh as in Table 4, and N.
EnergyLayer layer_of_dims(const EnergyOptions& o) {
  constexpr std::array names{"X", "Y", "C", "K", "Fw", "Fh", "N"};
  constexpr std::int64_t most = 1 << 20;
  if (o.dims.size() < 6 || o.dims.size() > names.size()) {
    throw InvalidArgument(fmt::format("--dims has {} numbers; write X,Y,C,K,Fw,Fh or X,Y,C,K,Fw,Fh,N", o.dims.size()));
  }
  for (std::size_t i = 0; i < o.dims.size(); ++i) {
    if (o.dims[i] < 1 || o.dims[i] > most) {
      throw InvalidArgument(fmt::format("--dims: {} is {}; valid are 1 to {}", names[i], o.dims[i], most));
    }
  }
  ConvProblem problem;
  problem.batch = o.batch != 0 ? o.batch : o.dims.size() == names.size() ? o.dims[6] : 1;
  problem.in_channels = o.dims[2];
  problem.out_channels = o.dims[3];
  problem.kernel = {1, o.dims[5], o.dims[4]};
  problem.input = {1, o.dims[1] + o.dims[5] - 1, o.dims[0] + o.dims[4] - 1};
  return plan::energy_layer(problem, datapath_of(o.datapath));
}

EnergyLayer layer_of(const EnergyOptions& o) {
  if (static_cast<int>(!o.layer.empty()) + static_cast<int>(!o.problem.empty()) + static_cast<int>(!o.dims.empty()) !=
      1) {
    throw InvalidArgument(fmt::format("name one layer: --layer ({}), --dims X,Y,C,K,Fw,Fh[,N], or --problem",
                                      fmt::join(plan::table4_layers(), ", ")));
  }
  check_batch(o.batch);
  if (!o.problem.empty()) return layer_of_problem(o.problem, o);
  return o.dims.empty() ? layer_named(o.layer, o) : layer_of_dims(o);
}

plan::Hierarchy hierarchy_of(const std::string& name) {
  return name.ends_with(".toml") ? read_hierarchy(name) : plan::named_hierarchy(name);
}

plan::LoopNest nest_of(const std::string& text) {
  const bool blocking = std::any_of(text.begin(), text.end(), [](unsigned char c) { return std::isupper(c) != 0; });
  return blocking ? plan::parse_blocking_string(text) : plan::parse_nest(text);
}

/// What the verb `energy` shows.
struct Result {
  EnergyLayer layer;
  plan::Hierarchy hierarchy;
  plan::EnergyOptions options;
  plan::SearchResult found;
  std::string search{};
  std::vector<plan::CoreEnergy> cores{};
  double seconds = 0;
};

Result compute(const EnergyOptions& o) {
  Result result{.layer = layer_of(o), .hierarchy = hierarchy_of(o.hierarchy), .options = model_options(o), .found = {}};
  if (!o.nest.empty() && !o.search.empty()) {
    throw InvalidArgument("--nest and --search exclude each other: give a nest, or search for one");
  }
  const auto begin = std::chrono::steady_clock::now();
  if (!o.nest.empty()) {
    result.found.best = {plan::nest_energy(nest_of(o.nest), result.layer, result.hierarchy, result.options)};
  } else {
    result.search = o.search.empty() ? "iterative" : o.search;
    const auto search = result.search == "exhaustive" ? plan::search_exhaustive : plan::search_iterative;
    result.found = search(result.layer, result.hierarchy, result.options, search_options(o));
  }
  for (const int cores : o.cores) {
    const auto split = o.split == "k" ? plan::CoreSplit::k : plan::CoreSplit::xy;
    result.cores.push_back(
        plan::core_energy(result.found.best.front(), result.layer, result.hierarchy, result.options, cores, split));
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

Json by_operand(const std::array<double, 3>& values) { return {{"x", values[0]}, {"w", values[1]}, {"y", values[2]}}; }

double sum(const std::array<double, 3>& values) { return values[0] + values[1] + values[2]; }

Json levels_json(const EnergyReport& report) {
  Json levels = Json::array();
  for (const plan::MemoryUse& memory : report.memories) {
    Json level{{"name", memory.name},
               {"bytes", memory.bytes == 0 ? Json() : Json(memory.bytes)},
               {"pj_per_word", by_operand(memory.pj_per_word)}};
    level.update(by_operand(memory.accesses));
    level["words"] = by_operand(memory.held);
    levels.push_back(std::move(level));
  }
  return levels;
}

Json report_json(const EnergyReport& report) {
  return {{"string", report.string},
          {"loops", to_string(report.nest)},
          {"energy_pj",
           {{"x", report.sram_pj[0]},
            {"w", report.sram_pj[1]},
            {"y", report.sram_pj[2]},
            {"dram", sum(report.dram_pj)},
            {"mac", report.mac_pj},
            {"broadcast", report.broadcast_pj},
            {"shuffle", report.shuffle_pj},
            {"total", report.total_pj()}}},
          {"dram_pj", by_operand(report.dram_pj)},
          {"pj_per_mac", report.pj_per_mac()},
          {"memory_pj_per_mac", report.memory_pj() / report.macs},
          {"levels", levels_json(report)},
          {"sram_bytes", report.sram_bytes},
          {"area_mm2", report.area_mm2}};
}

Json core_json(const plan::CoreEnergy& core) {
  return {{"cores", core.cores},
          {"energy_pj",
           {{"private", core.private_pj},
            {"last_x", core.last_pj[0]},
            {"last_w", core.last_pj[1]},
            {"last_y", core.last_pj[2]},
            {"broadcast", core.broadcast_pj},
            {"dram", core.dram_pj},
            {"shuffle", core.shuffle_pj},
            {"total", core.total_pj()}}}};
}

Json to_json(const Result& r, const EnergyOptions& o) {
  Json json{{"layer", r.layer.name}, {"macs", r.layer.macs}, {"hierarchy", r.hierarchy.name}};
  json.update(report_json(r.found.best.front()));
  if (!r.search.empty()) {
    json["search"] = r.search;
    json["search_levels"] = o.levels;
    json["strings_tried"] = r.found.tried;
    json["proven"] = r.found.proven;
    if (r.search == "exhaustive") json["bound_pj"] = r.found.bound_pj + r.layer.macs * o.mac_pj;
    json["top"] = Json::array();
    for (const EnergyReport& report : r.found.best) json["top"].push_back(report_json(report));
  }
  if (!r.cores.empty()) {
    json["split"] = o.split;
    json["cores"] = Json::array();
    for (const plan::CoreEnergy& core : r.cores) json["cores"].push_back(core_json(core));
  }
  json["seconds"] = r.seconds;
  json["assumptions"] = plan::energy_assumptions(r.layer, r.hierarchy, r.options);
  return json;
}

std::string energy_text(double pj, double macs) {
  constexpr double pj_per_uj = 1e6;
  return fmt::format("{:>12.5g} uJ {:>9.4f} pJ/MAC", pj / pj_per_uj, pj / macs);
}

std::string report_table(const EnergyReport& r) {
  std::string text = fmt::format("blocking       {}\nnest           {}\n\n", r.string, to_string(r.nest));
  text += fmt::format("{:<8}{:>12}{:>11}{:>14}{:>14}{:>14}\n", "memory", "size", "pJ/word", "x accesses", "w accesses",
                      "y accesses");
  for (const plan::MemoryUse& memory : r.memories) {
    const double pj = *std::max_element(memory.pj_per_word.begin(), memory.pj_per_word.end());
    text += fmt::format("{:<8}{:>12}{:>11.4g}{:>14.6g}{:>14.6g}{:>14.6g}\n", memory.name,
                        memory.bytes == 0 ? "" : bytes_text(memory.bytes), pj, memory.accesses[0], memory.accesses[1],
                        memory.accesses[2]);
  }
  text += "\n";
  for (const Operand operand : plan::operands) {
    text += fmt::format("{:<14}{}\n", fmt::format("{} on chip", name_of(operand)),
                        energy_text(r.sram_pj[index(operand)], r.macs));
  }
  text += fmt::format("{:<14}{}\n", "DRAM", energy_text(sum(r.dram_pj), r.macs));
  text += fmt::format("{:<14}{}\n", "multiply-adds", energy_text(r.mac_pj, r.macs));
  text += fmt::format("{:<14}{}\n", "total", energy_text(r.total_pj(), r.macs));
  return text + fmt::format("memories       {}, chip about {:.3g} mm2\n", bytes_text(r.sram_bytes), r.area_mm2);
}

std::string table(const Result& r, const EnergyOptions& o) {
  std::string text = fmt::format("layer          {}\nmultiply-adds  {:.6g}\nhierarchy      {}\n", r.layer.name,
                                 r.layer.macs, r.hierarchy.name);
  text += report_table(r.found.best.front());
  if (!r.search.empty()) {
    text += fmt::format("search         {}, {} levels, {:.0f} {} tried, {:.2f} s{}\n", r.search, o.levels,
                        r.found.tried, r.search == "exhaustive" ? "partial nests" : "nests", r.seconds,
                        r.found.proven ? "; no nest with these levels needs less" : "");
    for (std::size_t i = 1; i < r.found.best.size(); ++i) {
      const EnergyReport& report = r.found.best[i];
      text += fmt::format("{:<14} {:>9.4f} pJ/MAC {:>10}  {}\n", fmt::format("no. {}", i + 1), report.pj_per_mac(),
                          bytes_text(report.sram_bytes), report.string);
    }
  }
  for (const plan::CoreEnergy& core : r.cores) {
    text += fmt::format("{:<14} {:>9.4f} pJ/MAC of all memories (split {}: shared {}, shuffle {:.4f})\n",
                        fmt::format("{} cores", core.cores), core.total_pj() / r.layer.macs, o.split,
                        o.split == "k" ? "x" : "w", core.shuffle_pj / r.layer.macs);
  }
  return text + fmt::format("\n{}\n", fmt::join(plan::energy_assumptions(r.layer, r.hierarchy, r.options), "\n"));
}

void add_model_options(CLI::App& app, EnergyModelOptions& o) {
  app.add_option("--batch", o.batch, "Samples (of Table 4's layers: 64 for fc, else 1)");
  app.add_option("--levels", o.levels, "Loops over each dimension at most, 1 to 5")->capture_default_str();
  app.add_option("--seeds", o.seeds, "Nests that the iterative search keeps, and perturbs")->capture_default_str();
  app.add_option("--seed", o.seed, "Seed of perturbations")->capture_default_str();
  app.add_option("--limit", o.limit, "Bytes of all memories together, e.g. 1M");
  app.add_option("--datapath", o.datapath, "C,K: channels of x and y that the hardware multiplies at once")
      ->capture_default_str();
  app.add_option("--word-bits", o.word_bits, "Width of memories; auto: 256 for x and y, 512 for w")
      ->check(CLI::IsMember({"auto", "64", "128", "256", "512"}))
      ->capture_default_str();
  app.add_option("--counts", o.counts, "Reads of a buffer: once per pass, or Table 2 of the paper to the letter")
      ->check(CLI::IsMember({"exact", "table2"}))
      ->capture_default_str();
  app.add_option("--mac-pj", o.mac_pj, "Energy of a multiply-add in pJ (an assumption)")->capture_default_str();
  app.add_option("--register-pj", o.register_pj,
                 "Energy per word of memories up to 256 bytes and of latches; else by Table 3");
  app.add_option("--latches", o.latches,
                 "What the datapath holds for one step costs nothing, or is a buffer as others are")
      ->check(CLI::IsMember({"free", "counted"}))
      ->capture_default_str();
  app.add_option("--top", o.top, "Designs to print")->capture_default_str();
  app.add_flag("--json", o.json, "Print one JSON object");
}

Json to_json(const plan::SystemResult& result, const std::vector<EnergyLayer>& layers,
             const plan::EnergyOptions& options, double seconds) {
  Json json{{"limit_bytes", options.limit_bytes}, {"alone", Json::array()}, {"systems", Json::array()}};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Json one{{"layer", layers[i].name}};
    one.update(report_json(result.alone[i]));
    json["alone"].push_back(std::move(one));
  }
  for (const plan::SystemDesign& design : result.best) {
    Json system{{"memories", Json::array()},
                {"sram_bytes", design.sram_bytes},
                {"area_mm2", design.area_mm2},
                {"total_pj", design.total_pj},
                {"layers", Json::array()}};
    for (const plan::MemoryLevel& level : design.hierarchy.levels) {
      if (level.bytes > 0) {
        system["memories"].push_back({{"name", level.name}, {"bytes", level.bytes}, {"operands", level.operands}});
      }
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Json one{{"layer", layers[i].name}};
      one.update(report_json(design.layers[i]));
      system["layers"].push_back(std::move(one));
    }
    json["systems"].push_back(std::move(system));
  }
  json["strings_tried"] = result.tried;
  json["seconds"] = seconds;
  json["assumptions"] = plan::energy_assumptions(layers.front(), plan::named_hierarchy("free"), options);
  return json;
}

std::string table(const plan::SystemResult& result, const std::vector<EnergyLayer>& layers) {
  std::string text;
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const plan::SystemDesign& design = result.best[i];
    text += fmt::format("system {}: {}, about {:.3g} mm2, {:.5g} uJ\n ", i + 1, bytes_text(design.sram_bytes),
                        design.area_mm2, design.total_pj / 1e6);
    for (const plan::MemoryLevel& level : design.hierarchy.levels) {
      if (level.bytes > 0) text += fmt::format(" {} {}", level.name, bytes_text(level.bytes));
    }
    text += "\n";
    for (std::size_t l = 0; l < layers.size(); ++l) {
      text += fmt::format("  {:<24}{:>9.4f} pJ/MAC (alone {:.4f})  {}\n", layers[l].name, design.layers[l].pj_per_mac(),
                          result.alone[l].pj_per_mac(), design.layers[l].string);
    }
  }
  return text;
}

}  // namespace

void add_energy_options(CLI::App& app, EnergyOptions& o) {
  app.add_option("--layer", o.layer, fmt::format("Layer of Table 4: {}", fmt::join(plan::table4_layers(), ", ")));
  app.add_option("--dims", o.dims, "X,Y,C,K,Fw,Fh[,N] of a planar layer")->delimiter(',');
  app.add_option("--problem", o.problem, "Problem in benchdnn's grammar, e.g. ic32id48oc32kd3pd1");
  app.add_option("--nest", o.nest, "Loops outside of the datapath, as a nest or as a blocking string");
  app.add_option("--search", o.search, "Search for the best nest (default: iterative)")
      ->check(CLI::IsMember({"exhaustive", "iterative"}));
  app.add_option("--hierarchy", o.hierarchy,
                 "free (each buffer is a memory), diannao, x86, or FILE.toml with [[level]] tables")
      ->capture_default_str();
  app.add_option("--cores", o.cores, "Numbers of cores, e.g. 1,2,4,8")->delimiter(',');
  app.add_option("--split", o.split, "What the cores share out: output channels, or voxels")
      ->check(CLI::IsMember({"k", "xy"}))
      ->capture_default_str();
  add_model_options(app, o);
  app.footer(
      "Energies follow Yang et al., \"A Systematic Approach to Blocking Convolutional Neural Networks\".\n"
      "docs/planning.md explains nests, docs/papers.md compares with the paper.");
}

std::string plan_energy(const EnergyOptions& options) {
  const Result result = compute(options);
  return options.json ? to_json(result, options).dump(2) + "\n" : table(result, options);
}

void add_system_options(CLI::App& app, SystemOptions& o) {
  app.add_option("--layers", o.layers, fmt::format("Layers of Table 4: {}", fmt::join(plan::table4_layers(), ",")))
      ->delimiter(',');
  app.add_option("--problem", o.problems, "Problem in benchdnn's grammar; may be repeated");
  app.add_option("--area", o.area_mm2, "Area of the chip in mm2, instead of --limit (by our fit)");
  add_model_options(app, o);
}

std::string plan_system(const SystemOptions& o) {
  check_batch(o.batch);
  std::vector<EnergyLayer> layers;
  for (const std::string& name : o.layers) layers.push_back(layer_named(name, o));
  for (const std::string& problem : o.problems) layers.push_back(layer_of_problem(problem, o));
  plan::EnergyOptions options = model_options(o);
  if (o.area_mm2 != 0) {
    if (!o.limit.empty()) throw InvalidArgument("--limit and --area exclude each other; give one of them");
    const double least = plan::chip_area_mm2(0), per_byte = plan::chip_area_mm2(1) - least;
    options.limit_bytes = (o.area_mm2 - least) / per_byte;
    if (!(options.limit_bytes > 0)) {
      throw InvalidArgument(
          fmt::format("--area {} mm2: the datapath alone takes {} mm2; write more", o.area_mm2, least));
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  const plan::SystemResult result = plan::design_system(layers, options, search_options(o));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return o.json ? to_json(result, layers, options, seconds).dump(2) + "\n" : table(result, layers);
}

}  // namespace convolume::tools
