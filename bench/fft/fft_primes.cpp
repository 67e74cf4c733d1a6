#include "bench/fft/fft_primes.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/common/progress_bar.hpp"
#include "bench/fft/fft_competitors.hpp"
#include "bench/fft/fft_report.hpp"
#include "convolume/error.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;
using fft::PrimeAlgorithm;

constexpr index_t batch = 256;
constexpr double tolerance = 1.05;
constexpr std::array algorithms{PrimeAlgorithm::generic, PrimeAlgorithm::rader, PrimeAlgorithm::rader_padded,
                                PrimeAlgorithm::bluestein};

struct PrimeRow {
  index_t prime = 0;
  std::array<std::optional<double>, algorithms.size()> seconds{};
  std::size_t best = 0, pick = 0;
  double over_best() const { return *seconds[pick] / *seconds[best]; }
};

fft::Problem problem_of(DataType type, index_t prime) {
  return {.type = type, .kind = fft::Kind::c2c_forward, .extent = {1, 1, prime}, .batch = batch};
}

/// Returns the algorithm whose plan equals the model's plan. So an equal plan has one time, not two that differ by
/// noise.
std::size_t pick_of(const fft::Problem& problem, const std::vector<std::size_t>& entered) {
  const std::string automatic = fft::Plan::make(problem).describe();
  for (const std::size_t i : entered) {
    if (fft::Plan::make(problem, {.prime = algorithms[i]}).describe() == automatic) return i;
  }
  throw std::logic_error(fmt::format("no forced algorithm has the plan {}", automatic));
}

std::optional<PrimeRow> measure(const FftOptions& options, index_t prime) {
  const DataType type = options.types.front();
  const fft::Problem problem = problem_of(type, prime);
  std::vector<std::unique_ptr<Competitor>> competitors;
  std::vector<std::size_t> entered;
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    try {
      competitors.push_back(native_contestant(problem, algorithms[i]));
      entered.push_back(i);
    } catch (const Unsupported&) {
      // Some algorithms do not support every prime; the table shows a dash for them.
    }
  }
  if (entered.empty()) return std::nullopt;
  Arena arena(std::move(competitors), type, false);
  const auto seconds = contest(arena, {.rounds = options.rounds, .min_seconds = options.min_seconds});

  PrimeRow row{.prime = prime, .best = entered.front()};
  for (std::size_t i = 0; i < entered.size(); ++i) {
    row.seconds[entered[i]] = quantile(seconds[i], 0.5);
    if (*row.seconds[entered[i]] < *row.seconds[row.best]) row.best = entered[i];
  }
  row.pick = pick_of(problem, entered);
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
  fmt::print("  {:13} {:13} {:>9}\n", "best", "model's pick", "pick/best");
}

void print(const PrimeRow& row) {
  fmt::print("{:5}", row.prime);
  for (const auto& seconds : row.seconds) fmt::print(" {:>13}", time_text(seconds));
  fmt::print("  {:13} {:13} {:9.3f}\n", name_of(algorithms[row.best]), name_of(algorithms[row.pick]), row.over_best());
  std::fflush(stdout);
}

std::size_t count_good(const std::vector<PrimeRow>& rows) {
  return static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [](const PrimeRow& row) { return row.over_best() <= tolerance; }));
}

Json to_json(const FftOptions& options, const std::vector<PrimeRow>& rows) {
  Json report{{"machine", describe_fft_machine(options.types.front())}, {"primes", Json::array()}};
  for (const PrimeRow& row : rows) {
    Json json{{"prime", row.prime}, {"batch", batch}, {"precision", precision_name(options.types.front())}};
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      if (row.seconds[i]) json[name_of(algorithms[i]) + "_s"] = *row.seconds[i];
    }
    json.update(Json{{"best", name_of(algorithms[row.best])},
                     {"pick", name_of(algorithms[row.pick])},
                     {"pick_over_best", row.over_best()}});
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
  if (lengths.empty()) throw InvalidArgument("--sizes contains no prime of 17 or more; try 17:300");
  std::vector<PrimeRow> rows;
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
