#include "bench/conv/conv_choices.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "bench/common/progress_bar.hpp"
#include "bench/common/report.hpp"
#include "bench/conv/conv_competitor.hpp"
#include "bench/conv/conv_field.hpp"
#include "plan/autotune.hpp"

namespace convolume::bench {
namespace {

using conv::Choice;
using Json = nlohmann::ordered_json;

constexpr double close_enough = 1.15;

/// Returns the part of a choice that matters in one direction. In training, all of it matters.
std::string text_of(const Choice& choice, Direction direction) {
  if (!choice.tiles || direction == Direction::training) return to_string(choice);
  const auto& [tile, group] = (*choice.tiles)[static_cast<std::size_t>(direction)];
  return fmt::format("{} {}x{}x{}*{}{}", convolume::name_of(choice.engine), tile.z, tile.y, tile.x, group,
                     choice.shared ? " shared" : "");
}

/// The result of one problem in one direction and layout.
struct ChoiceRow {
  std::string name;
  ConvProblem problem;
  Direction direction;
  std::string pick, best;  ///< selected by the model, and fastest when measured
  double picked = 0, fastest = 0;
  std::vector<std::pair<std::string, double>> candidates;  ///< all candidates with their seconds

  bool held_out = false;  ///< belongs to the quarter of the problems that is held out from fitting

  double ratio() const { return picked / fastest; }
  bool close() const { return ratio() <= close_enough; }
};
using ChoiceRows = std::vector<ChoiceRow>;

struct Candidate {
  Choice choice;
  std::unique_ptr<PlannedConvolution> convolution;
};

class ChoiceContest {
 public:
  ChoiceContest(const ConvBenchOptions& options, const NamedProblem& named, Layout layout)
      : o_(options), name_(named.name), problem_(with_layout(named.problem, layout)), data_(named.problem) {
    if (layout_of(problem_) != layout) return;
    data_.fill_normal();
    for (const Choice& choice : choice_field(problem_, o_.conv(Engine::automatic))) add(choice);
  }

  bool empty() const { return candidates_.empty(); }

  ChoiceRow measure(Direction direction, const std::function<bool()>& go_on) {
    if (direction == Direction::training && best_of_directions_) add(*best_of_directions_);
    const std::vector<std::size_t> racing = different(direction);
    for (const std::size_t i : racing) candidates_[i].convolution->plan(direction);  // plan before anything is timed
    std::vector<PassTimer> timers(racing.size());
    const plan::AutotuneRules rules{.rounds = o_.rounds, .min_seconds = o_.min_seconds, .max_seconds = o_.max_seconds};
    const auto seconds = plan::autotune(
        racing.size(), rules,
        [&](std::size_t i) { return timers[i].seconds(*candidates_[racing[i]].convolution, direction); }, go_on);
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
            .held_out = is_held_out(problem_)};
  }

 private:
  void add(const Choice& choice) {
    const auto same = [&](const Candidate& other) { return other.choice == choice; };
    if (std::any_of(candidates_.begin(), candidates_.end(), same)) return;
    PlannedConvolution::Options options{.conv = o_.conv(Engine::automatic),
                                        .threads = o_.threads,
                                        .prepare_forward = !o_.cached_weights,
                                        .prepare_backward = false};
    options.conv.choice = to_string(choice);
    candidates_.push_back({choice, std::make_unique<PlannedConvolution>(problem_, data_, options)});
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

  /// Notes the best tiles of each direction measured so far. In training, they become another candidate, without shared
  /// tiles.
  void note_best_tiles(Direction direction, const std::vector<std::size_t>& racing,
                       const std::vector<double>& seconds) {
    if (direction == Direction::training) return;
    std::vector<std::size_t> tiled;
    std::vector<double> times;
    for (std::size_t i = 0; i < racing.size(); ++i) {
      if (!candidates_[racing[i]].choice.has_separate_tiles()) continue;
      tiled.push_back(racing[i]);
      times.push_back(seconds[i]);
    }
    if (tiled.empty()) return;
    const Choice& best = candidates_[tiled[plan::winner(times)]].choice;
    if (!best_of_directions_) best_of_directions_ = candidates_[tiled.front()].choice;
    const auto d = static_cast<std::size_t>(direction);
    (*best_of_directions_->tiles)[d] = (*best.tiles)[d];
  }

  const ConvBenchOptions& o_;
  std::string name_;
  ConvProblem problem_;
  ConvData data_;
  std::vector<Candidate> candidates_;
  std::optional<Choice> best_of_directions_;
};

std::string summary(const ChoiceRows& rows) {
  const auto close = std::count_if(rows.begin(), rows.end(), [](const ChoiceRow& row) { return row.close(); });
  return fmt::format("{} of {} within 15 % of the best fixed choice ({:.0f} %)", close, rows.size(),
                     rows.empty() ? 100.0 : 100.0 * static_cast<double>(close) / static_cast<double>(rows.size()));
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
    report["choices"].push_back({{"problem", to_string(row.problem)},
                                 {"name", row.name},
                                 {"dir", name_of(row.direction)},
                                 {"layout", name_of(layout_of(row.problem))},
                                 {"threads", options.threads},
                                 {"candidates", row.candidates.size()},
                                 {"seconds", Json(std::map(row.candidates.begin(), row.candidates.end()))},
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

}  // namespace

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
