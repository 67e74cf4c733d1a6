#include "tools/plan_variants.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <optional>
#include <string_view>

#include "tools/nest_arguments.hpp"
#include "tools/problem_file.hpp"
#include "tools/progress.hpp"
#include "tools/stop_on_signal.hpp"
#include "tools/variant_pairs.hpp"
#include "tools/variant_record.hpp"
#include "tools/variant_timer.hpp"
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/blocking.hpp"
#include "convolume/cpu.hpp"
#include "convolume/error.hpp"
#include "convolume/machine.hpp"
#include "convolume/reuse.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/variants.hpp"
#include "convolume/version.hpp"

namespace convolume::tools {
namespace {

using Json = nlohmann::ordered_json;
using plan::Finalist;
using plan::NamedProblem;
using plan::Variant;
using plan::VariantContest;
using plan::VariantList;

constexpr int record_version = 2;
constexpr double ms = 1e3;

plan::VariantOptions variant_options(const VariantsOptions& o) {
  const auto space = o.space == "tiles" ? plan::VariantSpace::tiles
                     : o.space == "all" ? plan::VariantSpace::all
                                        : plan::VariantSpace::orders;
  return {.space = space, .limit = o.limit};
}

constexpr std::string_view dnn = "dnn:";

std::optional<StoredRanker> ranker_of(const std::string& rank) {
  if (!rank.starts_with(dnn)) return std::nullopt;
  return read_ranker(rank.substr(dnn.size()));
}

double flops_of(const ConvProblem& problem, plan::Direction direction) {
  double macs = 0;
  for (const plan::NestSpace& space : plan::spaces(problem, direction)) macs += space.macs();
  return 2 * macs;
}

/// The places of each variant in all ranks, from 1.
class Ranks {
 public:
  Ranks(const std::vector<Variant>& variants, const plan::PairRanker* ranker) {
    add("reuse", plan::ranked(variants, plan::VariantRank::reuse));
    add("seconds", plan::ranked(variants, plan::VariantRank::seconds));
    if (ranker != nullptr) add("dnn", ranker->ranked(variants));
  }
  /// Returns the indices of the variants, the best by a rank first.
  const std::vector<std::size_t>& by(const std::string& rank) const {
    return std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& one) { return one.name == rank; })->order;
  }
  void add_places(std::size_t variant, Json& json) const {
    for (const Rank& rank : ranks_) json["rank_" + rank.name] = rank.places[variant];
  }

 private:
  struct Rank {
    std::string name;
    std::vector<std::size_t> order, places;
  };
  void add(const char* name, const std::vector<std::size_t>& order) { ranks_.push_back({name, order, places(order)}); }
  static std::vector<std::size_t> places(const std::vector<std::size_t>& order) {
    std::vector<std::size_t> places(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) places[order[i]] = i + 1;
    return places;
  }

  std::vector<Rank> ranks_;
};

Json variant_json(const Variant& variant, std::size_t index, const Ranks& ranks, double flops) {
  Json json{{"nest", to_string(variant.nest)},
            {"reuse_cost", variant.reuse_cost},
            {"model_seconds", variant.model_seconds},
            {"level_bytes", variant.level_bytes}};
  ranks.add_places(index, json);
  if (variant.measured) {
    json["seconds"] = *variant.measured;
    json["gflops"] = flops / *variant.measured / 1e9;
  }
  return json;
}

/// Returns the processor time that a model takes: the median of a variant, and that of all variants, in seconds.
template <class Model>
Json model_time(const std::vector<Variant>& variants, const Model& model) {
  std::vector<double> times;
  double all = 0;
  for (const Variant& variant : variants) {
    const std::clock_t begin = std::clock();
    static_cast<void>(model(variant.nest));
    times.push_back(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    all += times.back();
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return {{"median", times[times.size() / 2]}, {"all", all}};
}

Json model_times(const DirectVariants& direct, const std::vector<Variant>& variants) {
  const auto spaces = plan::spaces(direct.problem(), direct.direction());
  const plan::ReuseLevels levels = plan::reuse_levels(machine_model());
  const std::size_t element_bytes = size_of(direct.problem().type);
  return {{"reuse", model_time(variants,
                               [&](const plan::LoopNest& nest) {
                                 return plan::reuse_cost(nest, spaces, element_bytes, levels);
                               })},
          {"seconds", model_time(variants, [&](const plan::LoopNest& nest) {
             return plan::nest_cost(nest, direct.problem(), direct.direction(), machine_model()).seconds();
           })}};
}

Json contest_json(const VariantContest& contest, const std::vector<Variant>& variants, double flops,
                  const std::string& automatic_engine) {
  Json finals = Json::object();
  for (const Finalist& one : contest.finalists) {
    finals[one.name] = {{"seconds", one.seconds()}, {"gflops", flops / one.seconds() / 1e9}, {"rounds", one.rounds}};
    if (one.index) {
      finals[one.name]["nest"] = to_string(variants[*one.index].nest);
    } else {
      finals[one.name]["engine"] = automatic_engine;
    }
  }
  const double pick = contest.finalist("pick").seconds();
  return {{"steady", contest.steady},
          {"passes", contest.passes},
          {"control_seconds", contest.control},
          {"finalists", std::move(finals)},
          {"pick_over_best", contest.finalist("best").seconds() / pick},
          {"pick_over_default", contest.finalist("default").seconds() / pick},
          {"pick_over_automatic", contest.finalist("automatic").seconds() / pick}};
}

/// One run of the command.
class Run {
 public:
  explicit Run(const VariantsOptions& o)
      : o_(o),
        problems_(o.problem.empty() ? read_problem_file(o.problems)
                                    : std::vector{NamedProblem{o.problem, parse_problem(o.problem)}}),
        display_(o.json),
        ranker_(ranker_of(o.rank)),
        record_(o.out, identity()) {}

  int run() {
    if (!o_.dataset.empty()) check_dataset();
    const StopOnSignal stop;
    stop_ = stop.token();
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      if (stop_.stop_requested() || !add_layer(i)) return report_interruption(i);
    }
    display_.finish();
    if (served_ == 0) {
      throw Unsupported(o_.problem.empty()
                            ? fmt::format("--problems {}: direct serves no variant of any problem; the first one: {}",
                                          o_.problems, first_reason_)
                            : first_reason_);
    }
    std::exception_ptr failure;
    try {
      if (!o_.dataset.empty()) write_pairs();
    } catch (const Error&) {  // what was measured is printed all the same
      failure = std::current_exception();
    }
    fmt::print("{}", o_.json ? all_json().dump(2) + "\n" : all_tables());
    if (failure) std::rethrow_exception(failure);
    return refused_.empty() ? 0 : 1;
  }

 private:
  Json identity() const {
    std::string list;
    for (const NamedProblem& one : problems_) list += one.name + ": " + to_string(one.problem) + "\n";
    return {{"version", record_version},
            {"convolume", version()},
            {"machine", cpu_name()},
            {"machine_digest", machine_digest()},
            {"simd", simd_target()},
            {"threads", threads()},
            {"direction", o_.direction},
            {"space", o_.space},
            {"limit", o_.limit},
            {"rank", ranker_ ? "dnn " + ranker_->digest : o_.rank},
            {"top", o_.top},
            {"measured", o_.measure},
            {"time_models", o_.time_models},
            {"list", list}};
  }

  /// Returns the rank without the file of its net.
  std::string rank() const { return ranker_ ? "dnn" : o_.rank; }
  const plan::PairRanker* ranker() const { return ranker_ ? &ranker_->ranker : nullptr; }

  int threads() const { return o_.threads == 0 ? default_threads() : o_.threads; }

  /// Returns false if the user stopped the run.
  bool add_layer(std::size_t number) {
    const NamedProblem& named = problems_[number];
    if (const auto known = record_.layer(number)) {
      layers_.push_back(*known);
      ++served_;
      return true;
    }
    try {
      const auto layer = make_layer(named, number);
      if (!layer) return false;
      record_.add(number, *layer);
      layers_.push_back(*layer);
      ++served_;
    } catch (const Unsupported& error) {
      if (first_reason_.empty()) first_reason_ = error.what();
      refused_.push_back({{"name", named.name}, {"problem", to_string(named.problem)}, {"reason", error.what()}});
    }
    return true;
  }

  std::optional<Json> make_layer(const NamedProblem& named, std::size_t number) {
    const plan::Direction direction = direction_of(o_.direction);
    // The generator says what is not in the space before the engine is asked.
    static_cast<void>(plan::variant_nests(named.problem, direction, {.limit = 1}));
    const DirectVariants direct(named.problem, direction);
    VariantList list = plan::variants(direct.problem(), direction, variant_options(o_), machine_model(),
                                      [&](const plan::LoopNest& nest) { return direct.refusal(nest); });
    if (list.variants.empty()) {
      throw Unsupported(fmt::format("{}: direct refuses all {} candidates; one reason is: {}", to_string(named.problem),
                                    list.taken, list.refused.begin()->first));
    }
    if (o_.top > list.variants.size()) {
      throw InvalidArgument(fmt::format("--top {}: there are {} variants of {}; use at most so many", o_.top,
                                        list.variants.size(), to_string(named.problem)));
    }
    const Ranks ranks(list.variants, ranker());
    std::vector<std::size_t> first = ranks.by(rank());
    first.resize(o_.top);
    const double flops = flops_of(named.problem, direction);
    Json layer{{"name", named.name},
               {"problem", to_string(named.problem)},
               {"direction", o_.direction},
               {"space", o_.space},
               {"candidates", list.candidates},
               {"taken", list.taken},
               {"variants", list.variants.size()},
               {"refused", list.refused},
               {"picks", first},
               {"flops", flops}};
    if (o_.time_models) layer["model_times"] = model_times(direct, list.variants);
    if (o_.measure) {
      const auto contest = measure(direct, list, first, number);
      if (!contest) return std::nullopt;
      layer.update(*contest);
    }
    layer["list"] = Json::array();
    for (std::size_t i = 0; i < list.variants.size(); ++i) {
      layer["list"].push_back(variant_json(list.variants[i], i, ranks, flops));
    }
    return layer;
  }

  std::optional<Json> measure(const DirectVariants& direct, VariantList& list, const std::vector<std::size_t>& first,
                              std::size_t number) {
    VariantClock clock(direct, threads());
    const auto begin = std::chrono::steady_clock::now();
    const plan::VariantTimer timer{
        .measure = [&](const plan::LoopNest& nest) { return clock.seconds(direct.choice(nest)); },
        .measure_automatic = [&] { return clock.seconds(""); },
        .on_progress =
            [&](std::size_t done, std::size_t all) {
              const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
              show(number, static_cast<double>(done) / static_cast<double>(all), spent);
              return !stop_.stop_requested();
            }};
    const auto contest = plan::measure_variants(list.variants, first, timer);
    if (!contest) return std::nullopt;
    return contest_json(*contest, list.variants, flops_of(direct.problem(), direct.direction()),
                        clock.automatic_engine());
  }

  /// Shows the share of the whole list, and estimates the remaining time from this layer's.
  void show(std::size_t number, double share_of_layer, double spent) {
    const double layers = static_cast<double>(problems_.size());
    const double left = spent / share_of_layer * (layers - static_cast<double>(number) - share_of_layer);
    display_.show_share(fmt::format("layer {} of {}, about {} left:", number + 1, problems_.size(), clock_text(left)),
                        (static_cast<double>(number) + share_of_layer) / layers);
  }

  int report_interruption(std::size_t number) {
    display_.finish();
    fmt::print(stderr, "interrupted in layer {} of {}; {}\n", number + 1, problems_.size(),
               o_.out.empty()
                   ? "with --out FILE, finished layers are kept"
                   : fmt::format("{} has {} layers. Run the same command to continue", o_.out, record_.size()));
    return interrupted;
  }

  /// Throws before anything is measured.
  void check_dataset() const {
    std::vector<std::string> problems;
    for (const NamedProblem& one : problems_) problems.push_back(to_string(one.problem));
    check_pairs_file(o_.dataset);
    check_parts(problems);
  }

  void write_pairs() {
    try {
      const PairSets sets(layers_);
      sets.write(o_.dataset);
      pairs_ = sets.report(ranker());
    } catch (const Json::exception& error) {
      throw damaged(error);
    }
  }

  /// Returns the error of a layer that the file had.
  FormatError damaged(const Json::exception& error) const {
    return FormatError(
        fmt::format("--out {}: a layer is damaged ({}); remove the file to begin again", o_.out, error.what()));
  }

  Json all_json() const {
    Json json = identity();
    json.erase("list");
    json["layers"] = layers_;
    if (!pairs_.empty()) json["pairs"] = pairs_;
    json["not_served"] = refused_;
    return json;
  }

  std::string all_tables() const {
    std::string text;
    try {
      for (const Json& layer : layers_) text += table(layer) + "\n";
    } catch (const Json::exception& error) {
      throw damaged(error);
    }
    if (!pairs_.empty()) text += pairs_text();
    for (const Json& one : refused_) {
      text += fmt::format("not served: {}: {}\n", one["name"].get<std::string>(), one["reason"].get<std::string>());
    }
    return text;
  }

  std::string pairs_text() const {
    std::string text = fmt::format(
        "{:<10} {} of {} layers to learn from, {} of {} layers held out, {} nearly equal ones left out; {} layers "
        "unsteady\n",
        "pairs", pairs_["training_pairs"].get<std::size_t>(), pairs_["training_layers"].get<std::size_t>(),
        pairs_["held_out_pairs"].get<std::size_t>(), pairs_["held_out_layers"].get<std::size_t>(),
        pairs_["nearly_equal_pairs"].get<std::size_t>(), pairs_["unsteady_layers"].get<std::size_t>());
    for (const auto& [name, share] : pairs_["in_order"].items()) {
      text +=
          fmt::format("{:<10} orders {:.1f} % of the held-out pairs as measured\n", name, 100 * share.get<double>());
    }
    return text + "\n";
  }

  std::string table(const Json& layer) const {
    std::string text = fmt::format("{}\nvariants   {} of {} candidates", layer.at("name").get<std::string>(),
                                   layer.at("variants").get<std::size_t>(), layer.at("candidates").get<std::size_t>());
    text += fmt::format(" ({}, {})\n", o_.space, o_.direction);
    for (const auto& [reason, count] : layer.at("refused").items()) {
      text += fmt::format("refused    {}: {}\n", count.get<std::size_t>(), reason);
    }
    text += fmt::format("{:<10}{:>6}{:>8}{:>13}{:>10}{:>11}{:>9}  {}\n", "", "reuse", "seconds", "reuse cost",
                        "model ms", "measured", "GFLOP/s", "nest");
    for (const Json& pick : layer.at("picks")) text += row(rank(), layer.at("list").at(pick.get<std::size_t>()));
    text += row("default", layer.at("list").at(0));
    if (layer.contains("model_times")) {
      for (const auto& [name, one] : layer.at("model_times").items()) {
        text += fmt::format("{:<10}{:>10.4f} ms of processor time per variant (median), {:.2f} ms for all\n", name,
                            ms * one.at("median").get<double>(), ms * one.at("all").get<double>());
      }
    }
    if (layer.contains("finalists")) text += final_table(layer);
    return text;
  }

  static std::string row(const std::string& name, const Json& one) {
    const bool measured = one.contains("seconds");
    return fmt::format("{:<10}{:>6}{:>8}{:>13.5g}{:>10.4f}{:>11}{:>9}  {}\n", name,
                       one.at("rank_reuse").get<std::size_t>(), one.at("rank_seconds").get<std::size_t>(),
                       one.at("reuse_cost").get<double>(), ms * one.at("model_seconds").get<double>(),
                       measured ? fmt::format("{:.4f}", ms * one.at("seconds").get<double>()) : "-",
                       measured ? fmt::format("{:.1f}", one.at("gflops").get<double>()) : "-",
                       one.at("nest").get<std::string>());
  }

  static std::string final_table(const Json& layer) {
    std::string text = fmt::format("{:<10}{:>10}{:>10}\n", "in turn", "ms", "GFLOP/s");
    for (const auto& [name, one] : layer.at("finalists").items()) {
      text += fmt::format(
          "{:<10}{:>10.4f}{:>10.1f}  {}\n", name, ms * one.at("seconds").get<double>(), one.at("gflops").get<double>(),
          one.contains("nest") ? one.at("nest").get<std::string>() : one.at("engine").get<std::string>());
    }
    return text +
           fmt::format("speed of the pick over best {:.3f}, default {:.3f}, automatic {:.3f}{}\n",
                       layer.at("pick_over_best").get<double>(), layer.at("pick_over_default").get<double>(),
                       layer.at("pick_over_automatic").get<double>(),
                       layer.at("steady").get<bool>() ? "" : "; UNSTEADY: the control differed by more than 10 %");
  }

  const VariantsOptions& o_;
  std::vector<NamedProblem> problems_;
  ProgressDisplay display_;
  std::optional<StoredRanker> ranker_;
  VariantRecord record_;
  std::stop_token stop_;
  Json layers_ = Json::array(), refused_ = Json::array(), pairs_;
  std::size_t served_ = 0;
  std::string first_reason_;
};

}  // namespace

void add_variants_options(CLI::App& command, VariantsOptions& o) {
  command.footer(
      "Paper 004 (Tavarageri et al., PolyScientist): the loops around a microkernel of `direct` in all orders, with\n"
      "tiles, ranked by the seconds of the model of `direct` or by the reuse cost (`plan reuse`). With --measure, all\n"
      "variants run on blocked tensors with prepared weights; then the pick (the fastest of the --top first ones), "
      "the\n"
      "best, the default order and the library's own choice run in turn. Times are lower quartiles.");
  auto* source = command.add_option_group("convolution");
  source->add_option("--problem", o.problem, "Problem in benchdnn's grammar, e.g. mb2ic64ih28oc64oh28kh3ph1");
  source->add_option("--problems", o.problems, "File with one problem per line");
  source->require_option(1);
  command.add_option("--dir", o.direction, "Direction")
      ->check(CLI::IsMember({"fwd", "bwd_d", "bwd_w"}))
      ->capture_default_str();
  command
      .add_option(
          "--space", o.space,
          "orders of the loops; tiles of channels and rows in the default order; all: both, and each order with "
          "each tile")
      ->check(CLI::IsMember({"orders", "tiles", "all"}))
      ->capture_default_str();
  command.add_option("--limit", o.limit, "Candidates at most; a fixed hash takes them")->capture_default_str();
  command
      .add_option(
          "--rank", o.rank,
          "What picks: seconds, reuse, or dnn:FILE, a checkpoint of nets/zoo/pair_ranker.toml that compares all "
          "pairs")
      ->capture_default_str();
  command.add_option("--top", o.top, "Variants that the rank picks")->capture_default_str();
  command.add_flag("--measure", o.measure, "Measure all variants");
  command.add_flag("--time-models", o.time_models, "Time what the models take for each variant");
  command.add_option("--threads", o.threads, "Threads of a measurement (default: all processors)");
  command.add_option("--out", o.out, "File that keeps finished layers; the same command continues from it");
  command.add_option("--dataset", o.dataset,
                     "HDF5 file that gets pairs of measured variants, some layers held out "
                     "(nets/zoo/data/pair_ranker.toml)");
  command.add_flag("--json", o.json, "Print one JSON object, with all variants");
}

int plan_variants(const VariantsOptions& o) {
  if (o.limit == 0) throw InvalidArgument("--limit 0: no variant would be left; use at least 1");
  if (o.top == 0) throw InvalidArgument("--top 0: no variant would be picked; use at least 1");
  if (o.threads < 0) throw InvalidArgument(fmt::format("--threads {}: use a positive number", o.threads));
  if (o.rank != "reuse" && o.rank != "seconds" && !o.rank.starts_with(dnn)) {
    throw InvalidArgument(fmt::format("--rank {}: use seconds, reuse, or dnn:FILE with a checkpoint", o.rank));
  }
  if (!o.dataset.empty() && !o.measure) throw InvalidArgument("--dataset: pairs need times; add --measure");
  return Run(o).run();
}

}  // namespace convolume::tools
