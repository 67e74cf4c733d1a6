#include "bench/conv/conv_choices.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/common/progress_bar.hpp"
#include "bench/common/report.hpp"
#include "bench/conv/conv_competitor.hpp"
#include "bench/conv/conv_field.hpp"
#include "conv/spectra/tiled_choice.hpp"
#include "plan/autotune.hpp"

namespace convolume::bench {
namespace {

using conv::Choice;
using Json = nlohmann::ordered_json;

constexpr double close_enough = 1.15;
constexpr std::size_t most_bytes = std::size_t{6} << 30;  ///< of candidates that are measured in turn

/// Returns the part of a choice that matters in one direction. In training, all of it matters.
std::string text_of(const Choice& choice, Direction direction) {
  const auto* parts = choice.as<conv::TiledParts>();
  if (parts == nullptr || direction == Direction::training) return to_string(choice);
  const auto& [tile, group] = parts->tiles()[static_cast<std::size_t>(direction)];
  return fmt::format("{} {}x{}x{}*{}{}", convolume::name_of(choice.engine), tile.z, tile.y, tile.x, group,
                     parts->shared() ? " shared" : "");
}

/// The result of one problem in one direction and layout.
struct ChoiceRow {
  std::string name;
  ConvProblem problem;
  Direction direction;
  std::string pick, best;  ///< selected by the model, and fastest when measured
  double picked = 0, fastest = 0;
  std::vector<std::pair<std::string, double>> candidates;  ///< all candidates with their seconds
  std::map<std::string, double> estimates;                 ///< the model's seconds of one training iteration
  std::vector<RowPick> picks;                              ///< `choice` is an index into candidates

  bool held_out = false;  ///< belongs to the quarter of the problems that is held out from fitting

  double ratio() const { return picked / fastest; }
  double ratio_of(const RowPick& pick) const { return candidates[pick.choice].second / fastest; }
  bool close() const { return ratio() <= close_enough; }
};
using ChoiceRows = std::vector<ChoiceRow>;

struct Candidate {
  Choice choice;
  std::unique_ptr<PlannedConvolution> convolution;  ///< only while it is measured
};

class ChoiceContest {
 public:
  ChoiceContest(const ConvBenchOptions& options, const NamedProblem& named, Layout layout)
      : o_(options), name_(named.name), problem_(with_layout(named.problem, layout)), data_(named.problem) {
    if (layout_of(problem_) != layout) return;
    data_.fill_normal();
    const ChoiceField field = choice_field(problem_, o_.conv(Engine::automatic));
    for (const Choice& choice : field.choices) add(choice);
    picks_ = field.picks;
  }

  bool empty() const { return candidates_.empty(); }

  ChoiceRow measure(Direction direction, const std::function<bool()>& go_on) {
    if (direction == Direction::training && best_of_directions_) add(*best_of_directions_);
    const std::vector<std::size_t> racing = different(direction);
    std::map<std::string, double> estimates;
    std::vector<double> seconds;
    while (seconds.size() < racing.size()) {
      // Only so many candidates are measured in turn as fit into the memory together.
      std::vector<std::size_t> together;
      std::size_t held = 0;
      for (std::size_t i = seconds.size(); i < racing.size() && held <= most_bytes; ++i) {
        Candidate& candidate = candidates_[racing[i]];
        candidate.convolution = plan_of(candidate.choice);
        estimates[text_of(candidate.choice, direction)] = candidate.convolution->plan(direction).seconds();
        candidate.convolution->execute(direction);
        held += candidate.convolution->peak_bytes();
        together.push_back(racing[i]);
      }
      std::vector<PassTimer> timers(together.size());
      const plan::AutotuneRules rules{
          .rounds = o_.rounds, .min_seconds = o_.min_seconds, .max_seconds = o_.max_seconds};
      // Other programs and other guests of the machine only ever add time, and a median of few rounds follows them. So
      // the least of a candidate's times counts.
      std::vector<double> least(together.size(), std::numeric_limits<double>::infinity());
      plan::autotune(
          together.size(), rules,
          [&](std::size_t i) {
            const double now = timers[i].seconds(*candidates_[together[i]].convolution, direction);
            least[i] = std::min(least[i], now);
            return now;
          },
          go_on);
      seconds.insert(seconds.end(), least.begin(), least.end());
      for (const std::size_t i : together) candidates_[i].convolution.reset();
    }
    note_best_tiles(direction, racing, seconds);
    std::vector<std::pair<std::string, double>> candidates;
    for (std::size_t i = 0; i < racing.size(); ++i) {
      candidates.emplace_back(text_of(candidates_[racing[i]].choice, direction), seconds[i]);
    }
    const auto best = static_cast<std::size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin());
    return {.name = name_,
            .problem = problem_,
            .direction = direction,
            .pick = text_of(candidates_[0].choice, direction),
            .best = text_of(candidates_[racing[best]].choice, direction),
            .picked = seconds[0],
            .fastest = seconds[best],
            .candidates = std::move(candidates),
            .estimates = std::move(estimates),
            .picks = picks(direction, racing),
            .held_out = is_held_out(problem_)};
  }

 private:
  void add(const Choice& choice) {
    const auto same = [&](const Candidate& other) { return other.choice == choice; };
    if (std::any_of(candidates_.begin(), candidates_.end(), same)) return;
    candidates_.push_back({choice, nullptr});
  }

  std::unique_ptr<PlannedConvolution> plan_of(const Choice& choice) const {
    PlannedConvolution::Options options{.conv = o_.conv(Engine::automatic),
                                        .threads = o_.threads,
                                        .prepare_forward = !o_.cached_weights,
                                        .prepare_backward = false};
    options.conv.choice = to_string(choice);
    return std::make_unique<PlannedConvolution>(problem_, data_, options);
  }

  /// Returns one candidate, the first, of each set that is equal in this direction.
  std::vector<std::size_t> different(Direction direction) const {
    std::vector<std::size_t> racing;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const auto same = [&](std::size_t j) {
        return text_of(candidates_[j].choice, direction) == text_of(candidates_[i].choice, direction);
      };
      if (std::none_of(racing.begin(), racing.end(), same)) racing.push_back(i);
    }
    return racing;
  }

  /// Returns the picks of the built-in rows as indices into `racing`.
  std::vector<RowPick> picks(Direction direction, const std::vector<std::size_t>& racing) const {
    std::vector<RowPick> all;
    for (const RowPick& pick : picks_) {
      const std::string text = text_of(candidates_[pick.choice].choice, direction);
      const auto same = [&](std::size_t i) { return text_of(candidates_[i].choice, direction) == text; };
      const auto at = std::find_if(racing.begin(), racing.end(), same);
      all.push_back({pick.row, static_cast<std::size_t>(at - racing.begin())});
    }
    return all;
  }

  /// Notes the best tiles of each direction measured so far. In training, they become another candidate, without shared
  /// tiles.
  void note_best_tiles(Direction direction, const std::vector<std::size_t>& racing,
                       const std::vector<double>& seconds) {
    if (direction == Direction::training) return;
    std::vector<std::size_t> tiled;
    std::vector<double> times;
    for (std::size_t i = 0; i < racing.size(); ++i) {
      const Choice& choice = candidates_[racing[i]].choice;
      if (choice.as<conv::TiledParts>() == nullptr || !choice.has_separate_parts()) continue;
      tiled.push_back(racing[i]);
      times.push_back(seconds[i]);
    }
    if (tiled.empty()) return;
    const Choice& best = candidates_[tiled[plan::winner(times)]].choice;
    if (!best_of_directions_) best_of_directions_ = candidates_[tiled.front()].choice;
    best_of_directions_->parts =
        best_of_directions_->parts->with(plan::directions[static_cast<std::size_t>(direction)], *best.parts);
  }

  const ConvBenchOptions& o_;
  std::string name_;
  ConvProblem problem_;
  ConvData data_;
  std::vector<Candidate> candidates_;
  std::vector<RowPick> picks_;  // `choice` is an index into candidates_
  std::optional<Choice> best_of_directions_;
};

std::string share_text(std::ptrdiff_t some, std::size_t all) {
  return fmt::format("{} of {} ({:.0f} %)", some, all,
                     all == 0 ? 100.0 : 100.0 * static_cast<double>(some) / static_cast<double>(all));
}

std::string summary(const ChoiceRows& rows) {
  const auto close = std::count_if(rows.begin(), rows.end(), [](const ChoiceRow& row) { return row.close(); });
  return fmt::format("{} of {} within 15 % of the best fixed choice ({:.0f} %)", close, rows.size(),
                     rows.empty() ? 100.0 : 100.0 * static_cast<double>(close) / static_cast<double>(rows.size()));
}

/// How good the picks of one built-in row are on this machine.
struct RowSummary {
  std::string row;
  std::ptrdiff_t close = 0, held_out_close = 0;
  double worst = 1;  ///< least ratio of the best choice's seconds to those of the pick
};

std::vector<RowSummary> summaries(const ChoiceRows& rows) {
  std::vector<RowSummary> all;
  for (const ChoiceRow& row : rows) {
    for (std::size_t i = 0; i < row.picks.size(); ++i) {
      if (i == all.size()) all.push_back({.row = row.picks[i].row});
      const double ratio = row.ratio_of(row.picks[i]);
      all[i].close += ratio <= close_enough;
      all[i].held_out_close += row.held_out && ratio <= close_enough;
      all[i].worst = std::min(all[i].worst, 1 / ratio);
    }
  }
  return all;
}

/// Returns the least ratio of the best choice's seconds to those of the pick.
std::string worst(const ChoiceRows& rows) {
  const auto row = std::max_element(rows.begin(), rows.end(),
                                    [](const ChoiceRow& a, const ChoiceRow& b) { return a.ratio() < b.ratio(); });
  return row == rows.end() ? "no rows"
                           : fmt::format("{:.2f}, {} {}", 1 / row->ratio(), row->name, name_of(row->direction));
}

ChoiceRows held_out(const ChoiceRows& rows) {
  ChoiceRows some;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(some), [](const ChoiceRow& row) { return row.held_out; });
  return some;
}

ChoiceRows rows_of(const ChoiceRows& rows, Direction direction) {
  ChoiceRows some;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(some),
               [&](const ChoiceRow& row) { return row.direction == direction; });
  return some;
}

Json to_json(const ConvBenchOptions& options, const ChoiceRows& rows) {
  Json report{{"machine", describe_machine(options.types.front())}, {"choices", Json::array()}};
  for (const ChoiceRow& row : rows) {
    std::map<std::string, std::string> picks;
    for (const RowPick& pick : row.picks) picks[pick.row] = row.candidates[pick.choice].first;
    report["choices"].push_back({{"problem", to_string(row.problem)},
                                 {"name", row.name},
                                 {"dir", name_of(row.direction)},
                                 {"layout", name_of(layout_of(row.problem))},
                                 {"threads", options.threads},
                                 {"candidates", row.candidates.size()},
                                 {"seconds", Json(std::map(row.candidates.begin(), row.candidates.end()))},
                                 {"estimated", Json(row.estimates)},
                                 {"picks", Json(picks)},
                                 {"pick", row.pick},
                                 {"pick_s", row.picked},
                                 {"best", row.best},
                                 {"best_s", row.fastest},
                                 {"held_out", row.held_out},
                                 {"ratio", row.ratio()}});
  }
  report["within"] = Json::object();
  for (const Direction direction : options.directions) {
    report["within"][name_of(direction)] = summary(rows_of(rows, direction));
  }
  report["within"]["all"] = summary(rows);
  report["within"]["held_out"] = summary(held_out(rows));
  report["worst"] = worst(rows);
  report["rows"] = Json::object();
  for (const RowSummary& row : summaries(rows)) {
    report["rows"][row.row] = {{"within", share_text(row.close, rows.size())},
                               {"held_out", share_text(row.held_out_close, held_out(rows).size())},
                               {"worst", row.worst}};
  }
  return report;
}

void print(const ChoiceRow& row) {
  fmt::print("{:9} {:7} {:>11}  {}  ({} choices)", name_of(row.direction), name_of(layout_of(row.problem)),
             time_text(row.picked), row.pick, row.candidates.size());
  if (row.best != row.pick) fmt::print("\n{:17} {:>11}  {}", "  best", time_text(row.fastest), row.best);
  fmt::print("  {:.3f}{}\n", row.ratio(), row.close() ? "" : "  <--");
  std::fflush(stdout);
}

void print_summary(const ConvBenchOptions& options, const ChoiceRows& rows) {
  const std::vector<RowSummary> others = summaries(rows);
  if (!others.empty()) fmt::print("\nchoices within 15 % of the best, if the model reads the built-in row\n");
  for (const RowSummary& row : others) {
    fmt::print("{:18} {}, held out {}, worst {:.2f}\n", row.row, share_text(row.close, rows.size()),
               share_text(row.held_out_close, held_out(rows).size()), row.worst);
  }
  fmt::print("\n");
  if (options.directions.size() > 1) {
    for (const Direction direction : options.directions) {
      fmt::print("{}: {}\n", name_of(direction), summary(rows_of(rows, direction)));
    }
  }
  fmt::print("problems that are held out from fitting: {}\n", summary(held_out(rows)));
  fmt::print("worst, best choice over pick: {}\n", worst(rows));
  fmt::print("{}\n", summary(rows));
}

/// Returns a row of a report, with the pick of the model of today. A pick that was not measured is replaced by the
/// candidate whose estimate is the least; `unknown` counts these.
ChoiceRow recorded_row(const ConvBenchOptions& o, const Json& entry, int& unknown) {
  ChoiceRow row;
  row.name = entry.at("name");
  row.problem = parse_problem(entry.at("problem").get<std::string>());
  if (entry.at("layout") == "blocked") row.problem = with_layout(row.problem, Layout::blocked);
  row.direction = direction_names().at(entry.at("dir"));
  row.held_out = is_held_out(row.problem);
  ConvOptions options = o.conv(Engine::automatic);
  options.want_dx = row.direction == Direction::backward_data || row.direction == Direction::training;
  options.want_dw = row.direction == Direction::backward_weights || row.direction == Direction::training;
  if (row.direction != Direction::training) throw InvalidArgument("only rows of --dir training are judged");
  for (const auto& [text, seconds] : entry.at("seconds").items()) {
    options.choice = text;
    row.candidates.emplace_back(text, seconds);
    row.estimates[text] = ConvPlan::make(row.problem, options).seconds();
  }
  const auto by_seconds = [](const auto& a, const auto& b) { return a.second < b.second; };
  std::tie(row.best, row.fastest) = *std::min_element(row.candidates.begin(), row.candidates.end(), by_seconds);
  options.choice.clear();
  row.pick = ConvPlan::make(row.problem, options).choice();
  const auto measured = [&] {
    return std::find_if(row.candidates.begin(), row.candidates.end(),
                        [&](const auto& c) { return c.first == row.pick; });
  };
  if (measured() == row.candidates.end()) {
    ++unknown;
    row.pick = std::min_element(row.estimates.begin(), row.estimates.end(), by_seconds)->first;
  }
  row.picked = measured()->second;
  return row;
}

}  // namespace

int judge_recorded_choices(const ConvBenchOptions& o) {
  std::ifstream stream(o.recorded);
  if (!stream)
    throw IoError(fmt::format("{}: cannot be read; name the JSON of a run of --choices", o.recorded.string()));
  const Json report = Json::parse(stream);
  ChoiceRows rows;
  int unknown = 0;
  for (const Json& entry : report.at("choices")) {
    rows.push_back(recorded_row(o, entry, unknown));
    fmt::print("{}  {}\n", rows.back().name, to_string(rows.back().problem));
    print(rows.back());
  }
  fmt::print("\n{} picks were not measured; the measured choice with the least estimate stands for each\n", unknown);
  print_summary(o, rows);
  if (!o.json.empty()) ReportFile(o.json, Json::object()).write(to_json(o, rows));
  return 0;
}

int conv_choices(const ConvBenchOptions& o) {
  ChoiceRows rows;
  const StopRequest stop;
  ReportFile file(o.json, to_json(o, rows));
  ProgressBar bar;
  bool failed = false;
  const auto measure = [&](NamedProblem named, double share) {
    named.problem.type = o.types.front();
    for (const Layout layout : o.layouts) {
      bar.show(share, named.name);
      ChoiceContest contest(o, named, layout);
      for (const Direction direction : o.directions) {
        if (contest.empty() || stop.pending()) continue;
        bar.show(share, fmt::format("{} {}", named.name, name_of(direction)));
        rows.push_back(contest.measure(direction, [&] { return !stop.pending(); }));
        bar.clear();
        print(rows.back());
      }
    }
  };
  fmt::print(
      "{} thread{}, weights {}; a ratio is the time of the model's pick divided by the time of the best choice\n",
      o.threads, o.threads == 1 ? "" : "s", o.cached_weights ? "cached" : "fresh");
  for (std::size_t i = 0; i < o.problems.size() && !stop.pending(); ++i) {
    const NamedProblem& named = o.problems[i];
    bar.clear();
    fmt::print("{}  {}\n", named.name, to_string(named.problem));
    try {
      measure(named, static_cast<double>(i) / static_cast<double>(o.problems.size()));
    } catch (const std::exception& error) {
      failed = true;
      bar.clear();
      fmt::print(stderr, "bench_conv: {}: {}\n", named.name, error.what());
    }
    if (file.due()) file.write(to_json(o, rows));
  }
  bar.clear();
  print_summary(o, rows);
  file.write(to_json(o, rows));
  return stop.pending() ? interrupted_status : failed ? 1 : 0;
}

}  // namespace convolume::bench
