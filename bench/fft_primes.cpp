#include "bench/fft_primes.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include <fmt/format.h>

#include "bench/contest.hpp"
#include "bench/fft_contestants.hpp"
#include "bench/fft_report.hpp"
#include "bench/progress_bar.hpp"
#include "convolume/error.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;
using fft::PrimeAlgorithm;

constexpr index_t batch = 256;
constexpr double tolerance = 1.05;
constexpr std::array algorithms{PrimeAlgorithm::generic, PrimeAlgorithm::rader, PrimeAlgorithm::rader_padded,
                                PrimeAlgorithm::bluestein};

struct Row {
  index_t prime = 0;
  std::array<std::optional<double>, algorithms.size()> seconds{};
  double automatic = 0;
  std::size_t best = 0;
  std::string pick{};
  double over_best() const { return automatic / *seconds[best]; }
};

fft::Problem problem_of(DataType type, index_t prime) {
  return {.type = type, .kind = fft::Kind::c2c_forward, .extent = {1, 1, prime}, .batch = batch};
}

/// Which algorithm a plan's description names. The outermost comes first: Rader's convolution has lengths, and maybe
/// primes, of its own.
std::string pick_of(const std::string& description) {
  const std::array<std::pair<const char*, const char*>, 6> words{{{"rader_padded", "rader-padded"},
                                                                  {"rader-padded", "rader-padded"},
                                                                  {"rader padded", "rader-padded"},
                                                                  {"generic", "generic"},
                                                                  {"bluestein", "bluestein"},
                                                                  {"rader", "rader"}}};
  std::size_t first = std::string::npos;
  std::string pick = "?";
  for (const auto& [word, name] : words) {
    const std::size_t at = description.find(word);
    if (at >= first) continue;
    first = at;
    pick = name;
  }
  return pick;
}

std::optional<Row> measure(const FftOptions& options, index_t prime) {
  const DataType type = options.types.front();
  const fft::Problem problem = problem_of(type, prime);
  std::vector<std::unique_ptr<Contestant>> contestants;
  std::vector<std::size_t> entered;
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    try {
      contestants.push_back(native_contestant(problem, algorithms[i]));
      entered.push_back(i);
    } catch (const Unsupported&) {
      // Not every algorithm serves every prime; the table shows a dash.
    }
  }
  if (entered.empty()) return std::nullopt;
  contestants.push_back(native_contestant(problem, PrimeAlgorithm::automatic));
  Arena arena(std::move(contestants), type, false);
  const auto seconds = contest(arena, {.rounds = options.rounds, .min_seconds = options.min_seconds});

  Row row{.prime = prime, .best = entered.front()};
  for (std::size_t i = 0; i < entered.size(); ++i) {
    row.seconds[entered[i]] = quantile(seconds[i], 0.5);
    if (*row.seconds[entered[i]] < *row.seconds[row.best]) row.best = entered[i];
  }
  row.automatic = quantile(seconds.back(), 0.5);
  row.pick = pick_of(fft::Plan::make(problem).describe());
  return row;
}

std::string time_text(const std::optional<double>& seconds) {
  return seconds ? fmt::format("{:.2f}", 1e6 * *seconds) : "-";
}

void print_header(DataType type) {
  fmt::print("{} complex lines of a prime length, forward, {}; microseconds for all of them\n", batch,
             precision_name(type));
  fmt::print("{:>5}", "prime");
  for (const PrimeAlgorithm algorithm : algorithms) fmt::print(" {:>13}", name_of(algorithm));
  fmt::print(" {:>13}  {:13} {:13} {:>14}\n", "automatic", "best", "model's pick", "automatic/best");
}

void print(const Row& row) {
  fmt::print("{:5}", row.prime);
  for (const auto& seconds : row.seconds) fmt::print(" {:>13}", time_text(seconds));
  fmt::print(" {:>13}  {:13} {:13} {:14.3f}\n", time_text(row.automatic), name_of(algorithms[row.best]), row.pick,
             row.over_best());
  std::fflush(stdout);
}

std::size_t count_good(const std::vector<Row>& rows) {
  return static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.over_best() <= tolerance; }));
}

Json to_json(const FftOptions& options, const std::vector<Row>& rows) {
  Json report{{"machine", describe_machine(options.types.front())}, {"primes", Json::array()}};
  for (const Row& row : rows) {
    Json json{{"prime", row.prime}, {"batch", batch}, {"precision", precision_name(options.types.front())}};
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      if (row.seconds[i]) json[name_of(algorithms[i]) + "_s"] = *row.seconds[i];
    }
    json.update(Json{{"automatic_s", row.automatic},
                     {"best", name_of(algorithms[row.best])},
                     {"pick", row.pick},
                     {"automatic_over_best", row.over_best()}});
    report["primes"].push_back(json);
  }
  report["within_5_percent"] = count_good(rows);
  report["count"] = rows.size();
  return report;
}

}  // namespace

int primes(const FftOptions& options) {
  std::vector<index_t> lengths;
  std::copy_if(options.sizes.begin(), options.sizes.end(), std::back_inserter(lengths), is_large_prime);
  if (lengths.empty()) throw InvalidArgument("--sizes holds no prime of 17 or more; try 17:300");
  std::vector<Row> rows;
  const StopRequest stop;
  ReportFile file(options.json, to_json(options, rows));
  ProgressBar bar;
  print_header(options.types.front());
  for (std::size_t i = 0; i < lengths.size() && !stop.pending(); ++i) {
    bar.show(static_cast<double>(i) / static_cast<double>(lengths.size()), fmt::format("prime {}", lengths[i]));
    const auto row = measure(options, lengths[i]);
    bar.clear();
    if (!row) continue;
    print(*row);
    rows.push_back(*row);
    if (file.due()) file.write(to_json(options, rows));
  }
  bar.clear();
  file.write(to_json(options, rows));
  if (!rows.empty()) {
    fmt::print("model within 5 % of the best at {} of {} primes ({:.0f} %)\n", count_good(rows), rows.size(),
               100.0 * static_cast<double>(count_good(rows)) / static_cast<double>(rows.size()));
  }
  return stop.pending() ? interrupted_status : 0;
}

}  // namespace convolume::bench
