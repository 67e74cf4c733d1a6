#include "bench/conv/conv_report.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "bench/conv/conv_competitor.hpp"
#include "bench/peers/im2col_convolution.hpp"
#include "bench/peers/onednn_convolution.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<ConvRow>;

constexpr double noticeable = 0.95;

/// Returns the load average of the last minute, read once. Other processes slow down everybody, most of all the
/// barriers of OpenMP.
double load_average() {
  static const double load = [] {
    double one = 0;
    return getloadavg(&one, 1) == 1 ? one : 0.0;
  }();
  return load;
}

using Member = std::optional<Comparison> ConvRow::*;

Member member_of(Peer peer) {
  switch (peer) {
    case Peer::onednn:
      return &ConvRow::onednn;
    case Peer::fft_volume:
      return &ConvRow::fft_volume;
    case Peer::im2col_openblas:
      return &ConvRow::im2col_openblas;
    case Peer::im2col_atlas:
      return &ConvRow::im2col_atlas;
    case Peer::c_loops:
      return &ConvRow::c_loops;
    case Peer::torch:
      break;
  }
  return &ConvRow::torch;
}

/// Returns the group of a row; each group has its own mean. A group is a direction, a requested engine and a layout.
std::string group_of(const ConvRow& row) {
  return fmt::format("{} {} {}", name_of(row.direction), name_of(row.asked), name_of(layout_of(row.problem)));
}

/// Returns the ratio to oneDNN's time that counts for a row: on one thread that of the medians, on several threads that
/// of the lower quartiles.
double ratio_that_counts(const ConvRow& row) { return row.threads == 1 ? row.onednn->ratio : row.onednn->in_time; }

/// Returns a row of each problem, direction, engine and layout that oneDNN serves: the one with the worse ratio.
Rows worse_rows(const Rows& rows) {
  Rows worse;
  for (const ConvRow& row : rows) {
    if (!row.onednn) continue;
    const auto same = std::find_if(worse.begin(), worse.end(), [&](const ConvRow& other) {
      return other.name == row.name && group_of(other) == group_of(row);
    });
    if (same == worse.end()) {
      worse.push_back(row);
    } else if (ratio_that_counts(row) < ratio_that_counts(*same)) {
      *same = row;
    }
  }
  return worse;
}

bool has_two_thread_counts(const Rows& rows) {
  return std::any_of(rows.begin(), rows.end(), [&](const ConvRow& row) { return row.threads != rows[0].threads; });
}

template <class Condition>
Mean mean(const Rows& rows, Peer peer, const Condition& condition) {
  Mean mean;
  for (const ConvRow& row : rows) {
    const auto& comparison = row.*member_of(peer);
    if (comparison && condition(row)) mean.add(comparison->ratio);
  }
  return mean;
}

std::vector<std::string> groups(const Rows& rows) {
  std::vector<std::string> all;
  for (const ConvRow& row : rows) {
    if (std::find(all.begin(), all.end(), group_of(row)) == all.end()) all.push_back(group_of(row));
  }
  return all;
}

Json by_direction(const ConvBenchOptions& options, const Rows& rows, Peer peer) {
  Json means = Json::object();
  for (const Direction direction : options.directions) {
    means[name_of(direction)] = mean(rows, peer, [&](const ConvRow& row) {
                                  return row.direction == direction && row.threads == options.threads;
                                }).json();
  }
  return means;
}

std::string columns_of(const std::optional<Comparison>& comparison) {
  if (!comparison) return fmt::format(" {:>11} {:>7}  {:17} {:>7}", "-", "-", "-", "-");
  return fmt::format(" {:>11} {:7.3f}  {:17} {:7.3f}", time_text(comparison->seconds), comparison->ratio,
                     fmt::format("{:.3f} .. {:.3f}", comparison->low, comparison->high), comparison->in_time);
}

Json to_json(const ConvBenchOptions& options, const ConvRow& row) {
  Json json{{"problem", to_string(row.problem)},
            {"name", row.name},
            {"dir", name_of(row.direction)},
            {"layout", name_of(layout_of(row.problem))},
            {"asked", name_of(row.asked)},
            {"engine", name_of(row.engine)},
            {"choice", row.choice},
            {"threads", row.threads},
            {"precision", row.problem.type == DataType::f32 ? "float" : "double"},
            {"weights", options.cached_weights ? "cached" : "fresh"},
            {"rounds", row.rounds},
            {"ours_s", row.ours},
            {"ours_low_s", row.ours_low},
            {"ours_high_s", row.ours_high}};
  const auto add = [&](const std::string& peer, const std::string& prefix, const std::optional<Comparison>& c) {
    const auto value = [&](double Comparison::*field) { return c ? Json(*c.*field) : Json(nullptr); };
    json[peer + "_s"] = value(&Comparison::seconds);
    json[peer + "_low_s"] = value(&Comparison::seconds_low);
    json[peer + "_high_s"] = value(&Comparison::seconds_high);
    json[prefix + "ratio"] = value(&Comparison::ratio);
    json[prefix + "ratio_low"] = value(&Comparison::low);
    json[prefix + "ratio_high"] = value(&Comparison::high);
    json[prefix + "ratio_in_time"] = value(&Comparison::in_time);
  };
  add("onednn", "", row.onednn);
  if (row.onednn) {
    json["onednn_implementation"] = row.onednn_implementation;
    json["onednn_threads"] = row.onednn_threads;
  }
  add("fft_volume", "fft_volume_", row.fft_volume);
  if (options.has(Peer::torch)) add("torch", "torch_", row.torch);
  if (row.torch) json["torch_format"] = row.torch_format;
  if (options.has(Peer::im2col_openblas)) add("im2col_openblas", "im2col_openblas_", row.im2col_openblas);
  if (options.has(Peer::im2col_atlas)) add("im2col_atlas", "im2col_atlas_", row.im2col_atlas);
  if (options.has(Peer::c_loops)) add("c_loops", "c_loops_", row.c_loops);
  json["floor_fraction"] = row.floor_fraction;
  return json;
}

}  // namespace

void print_header(const ConvBenchOptions& options) {
  fmt::print(
      "{} thread{}, weights {}, load average {:.1f}; a ratio is the competitor's time divided by "
      "ours; in time: of the lower quartiles\n",
      options.threads, options.threads == 1 ? "" : "s", options.cached_weights ? "cached" : "fresh", load_average());
  if (options.has(Peer::im2col_openblas)) fmt::print("OpenBLAS with its kernels for {}\n", openblas_core());
  fmt::print("{:11} {:7} {:10} {:>11}", "dir", "layout", "engine", "ours");
  for (const Peer peer : options.peers) {
    fmt::print(" {:>11} {:>7}  {:17} {:>7}", name_of(peer), "ratio", "quartiles", "in time");
  }
  fmt::print(" {:>6}\n", "floor");
}

void print_title(const NamedProblem& problem) {
  const std::string text = to_string(problem.problem);
  fmt::print("{}\n", problem.name == text ? text : fmt::format("{}  {}", problem.name, text));
}

void print(const ConvBenchOptions& options, const ConvRow& row) {
  const std::string threads = row.threads == options.threads ? "" : fmt::format(" {}t", row.threads);
  fmt::print("{:11} {:7} {:10} {:>11}", name_of(row.direction) + threads, name_of(layout_of(row.problem)),
             name_of(row.engine), time_text(row.ours));
  for (const Peer peer : options.peers) fmt::print("{}", columns_of(row.*member_of(peer)));
  fmt::print(" {:4.0f} %\n{}", 100 * row.floor_fraction, floor_warning("this row", row.floor_fraction));
  std::fflush(stdout);
}

void print_summary(const ConvBenchOptions& options, const Rows& rows) {
  fmt::print("\ngeometric means of the ratios:\n");
  for (const std::string& group : groups(rows)) {
    fmt::print("{}:", group);
    for (const Peer peer : options.peers) {
      const Mean all = mean(
          rows, peer, [&](const ConvRow& row) { return group_of(row) == group && row.threads == options.threads; });
      fmt::print(" {} {}{}", name_of(peer), all.text("problems"), peer == options.peers.back() ? "\n" : ",");
    }
    if (options.peers.empty()) fmt::print(" no competitor\n");
  }
  if (mean(rows, Peer::onednn, [](const ConvRow&) { return true; }).count() == 0) return;
  const Rows compared = worse_rows(rows);
  Rows slower;
  std::copy_if(compared.begin(), compared.end(), std::back_inserter(slower),
               [](const ConvRow& row) { return ratio_that_counts(row) < noticeable; });
  std::sort(slower.begin(), slower.end(),
            [](const ConvRow& a, const ConvRow& b) { return ratio_that_counts(a) < ratio_that_counts(b); });
  Mean all;
  for (const ConvRow& row : compared) all.add(ratio_that_counts(row));
  fmt::print("by lower quartiles{}: geometric mean {}; {} of {} below {} of oneDNN's speed{}\n",
             has_two_thread_counts(rows) ? ", or on one thread by medians if that is worse" : "", all.text("rows"),
             slower.size(), compared.size(), noticeable, slower.empty() ? "" : ":");
  for (const ConvRow& row : slower) {
    fmt::print("  {:.3f} (all rounds {:.3f} .. {:.3f})  {}, {} thread{}  {}  {}\n", ratio_that_counts(row),
               row.onednn->low, row.onednn->high, group_of(row), row.threads, row.threads == 1 ? "" : "s", row.name,
               name_of(row.engine));
  }
}

Json to_json(const ConvBenchOptions& options, const Rows& rows) {
  Json report{{"machine", describe_machine(options.types.front())}, {"results", Json::array()}};
  report["machine"]["onednn"] = onednn_version().empty() ? Json(nullptr) : Json(onednn_version());
  report["machine"]["load_average"] = load_average();
  for (const ConvRow& row : rows) report["results"].push_back(to_json(options, row));
  report["geomean"] = by_direction(options, rows, Peer::onednn);
  report["geomean_fft_volume"] = by_direction(options, rows, Peer::fft_volume);
  if (options.has(Peer::torch)) report["geomean_torch"] = by_direction(options, rows, Peer::torch);
  report["worse"] = Json::array();
  for (const ConvRow& row : worse_rows(rows)) {
    report["worse"].push_back({{"name", row.name},
                               {"dir", name_of(row.direction)},
                               {"layout", name_of(layout_of(row.problem))},
                               {"asked", name_of(row.asked)},
                               {"engine", name_of(row.engine)},
                               {"threads", row.threads},
                               {"ratio", ratio_that_counts(row)}});
  }
  report["geomean_by"] = Json::object();
  for (const std::string& group : groups(rows)) {
    for (const Peer peer : options.peers) {
      report["geomean_by"][group][name_of(peer)] = mean(rows, peer, [&](const ConvRow& row) {
                                                     return group_of(row) == group && row.threads == options.threads;
                                                   }).json();
    }
  }
  return report;
}

}  // namespace convolume::bench
