#include "bench/fft/fft_side_by_side.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/common/progress_bar.hpp"
#include "bench/fft/fft_competitors.hpp"
#include "bench/fft/fft_peers.hpp"
#include "bench/fft/fft_report.hpp"
#include "convolume/cpu.hpp"
#include "convolume/error.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;

/// The time of a library beside ours.
struct PeerTime {
  std::string name, title;  // in reports, and for people
  double seconds = 0;
  double ratio = 0, ratio_low = 0, ratio_high = 0;  // its time divided by ours; quartiles over the rounds
  double call = 0;                                  // seconds of a call that computes nothing, which `seconds` contain
};

/// One size in one order. Times are in seconds.
struct LengthRow {
  index_t n;
  fft::Kind kind;
  fft::Order order;
  double native = 0, fftw = 0;
  std::optional<double> patient{};
  double ratio = 0, ratio_low = 0, ratio_high = 0;  // FFTW's time divided by ours; quartiles over the rounds
  double flops = 0, floor_fraction = 0;
  std::vector<PeerTime> peers{};
};

using LengthRows = std::vector<LengthRow>;

PeerTime peer_time(std::string name, std::string title, const std::vector<double>& seconds,
                   const std::vector<double>& ours, double call) {
  const auto ratios = quotients(seconds, ours);
  const double median = quantile(seconds, 0.5);
  return {std::move(name),        std::move(title),       median, median / quantile(ours, 0.5),
          quantile(ratios, 0.25), quantile(ratios, 0.75), call};
}

/// Measures all orders, FFTW and the peers in one contest.
LengthRows measure(const FftOptions& options, FftwPlanner& planner, FftPeers& peers, fft::Kind kind, index_t n) {
  const DataType type = options.types.front();
  std::vector<std::unique_ptr<Competitor>> competitors;
  for (const fft::Order order : options.orders) {
    competitors.push_back(
        native_contestant({.type = type, .kind = kind, .extent = Extent3::all(n), .order = order}, options.prime));
  }
  const bool patient = options.has(Implementation::fftw_patient);
  competitors.push_back(planner.competitor(kind, n, Implementation::fftw));
  if (patient) competitors.push_back(planner.competitor(kind, n, Implementation::fftw_patient));
  if (peers.has_mkl()) competitors.push_back(peers.mkl().competitor(type, kind, n));
  std::vector<OtherCompetitor> others;
  if (peers.has_ducc0()) others.push_back(peers.ducc0(kind, type, n));
  Arena arena(std::move(competitors), type, kind == fft::Kind::c2r);
  const auto seconds = contest(arena, {.rounds = options.rounds, .min_seconds = options.min_seconds}, others);

  LengthRows rows;
  const std::size_t fftw = options.orders.size(), mkl = fftw + (patient ? 2 : 1), ducc0 = seconds.size() - 1;
  for (std::size_t i = 0; i < fftw; ++i) {
    LengthRow row{.n = n, .kind = kind, .order = options.orders[i]};
    row.native = quantile(seconds[i], 0.5);
    row.fftw = quantile(seconds[fftw], 0.5);
    if (patient) row.patient = quantile(seconds[fftw + 1], 0.5);
    const auto ratios = quotients(seconds[fftw], seconds[i]);
    row.ratio = row.fftw / row.native;
    row.ratio_low = quantile(ratios, 0.25);
    row.ratio_high = quantile(ratios, 0.75);
    row.flops = nominal_flops(kind, std::pow(static_cast<double>(n), 3));
    row.floor_fraction = floor_seconds(kind, type, n) / row.native;
    if (peers.has_mkl()) row.peers.push_back(peer_time("mkl", "MKL", seconds[mkl], seconds[i], 0));
    if (peers.has_ducc0()) {
      row.peers.push_back(peer_time("ducc0", "ducc0", seconds[ducc0], seconds[i], peers.ducc0_call()));
    }
    rows.push_back(row);
  }
  return rows;
}

void print_header(const FftOptions& options) {
  fmt::print("{:>5}  {:12} {:8} {:>11} {:>11}{} {:>8} {:>8} {:>7}  {:14} {:>6}\n", "N", "kind", "order", "native",
             "FFTW", options.has(Implementation::fftw_patient) ? "     patient" : "", "GFLOP/s", "FFTW's", "ratio",
             "quartiles", "floor");
}

void print(const LengthRow& row) {
  fmt::print("{:5}  {:12} {:8} {:>11} {:>11}{} {:8.2f} {:8.2f} {:7.3f}  {:14} {:4.0f} %\n", row.n, name_of(row.kind),
             name_of(row.order), time_text(row.native), time_text(row.fftw),
             row.patient ? fmt::format(" {:>11}", time_text(*row.patient)) : "", 1e-9 * row.flops / row.native,
             1e-9 * row.flops / row.fftw, row.ratio, fmt::format("{:.3f} .. {:.3f}", row.ratio_low, row.ratio_high),
             100 * row.floor_fraction);
  for (const PeerTime& peer : row.peers) {
    fmt::print("{:>19} {:>11} {:24} {:7.3f}  {:.3f} .. {:.3f}{}\n", peer.title, time_text(peer.seconds), "", peer.ratio,
               peer.ratio_low, peer.ratio_high,
               peer.call > 0 ? fmt::format(" (with {} for the call)", time_text(peer.call)) : "");
  }
  fmt::print("{}", floor_warning(fmt::format("N = {}", row.n), row.floor_fraction));
  std::fflush(stdout);
}

/// Geometric means by class of size.
struct Means {
  Mean all, smooth, prime;
  void add(index_t n, double value) {
    all.add(value);
    if (is_smooth(n)) smooth.add(value);
    if (is_large_prime(n)) prime.add(value);
  }
  Json json() const { return {{"all", all.json()}, {"smooth", smooth.json()}, {"prime", prime.json()}}; }
  std::string text() const {
    return fmt::format("all {}, smooth {}, prime {}", all.text("sizes"), smooth.text("sizes"), prime.text("sizes"));
  }
};

Means ratio_means(const LengthRows& rows) {
  Means means;
  for (const LengthRow& row : rows) means.add(row.n, row.ratio);
  return means;
}

/// Returns the means of the ratios of each peer, with its name for people.
std::vector<std::pair<std::string, Means>> peer_means(const LengthRows& rows) {
  std::vector<std::pair<std::string, Means>> all;
  for (const LengthRow& row : rows) {
    all.resize(std::max(all.size(), row.peers.size()));
    for (std::size_t i = 0; i < row.peers.size(); ++i) {
      all[i].first = row.peers[i].title;
      all[i].second.add(row.n, row.peers[i].ratio);
    }
  }
  return all;
}

LengthRows select(const LengthRows& rows, fft::Kind kind, fft::Order order) {
  LengthRows selected;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(selected),
               [&](const LengthRow& row) { return row.kind == kind && row.order == order; });
  return selected;
}

/// Returns the means of the time in natural order divided by the time in rotated order, for sizes with both.
Means order_means(const LengthRows& rows, fft::Kind kind) {
  Means means;
  const LengthRows natural = select(rows, kind, fft::Order::natural), rotated = select(rows, kind, fft::Order::rotated);
  for (std::size_t i = 0; i < std::min(natural.size(), rotated.size()); ++i) {
    means.add(natural[i].n, natural[i].native / rotated[i].native);
  }
  return means;
}

std::string ratio_text(const LengthRow& row) {
  return fmt::format("{:.3f} ({:.3f} .. {:.3f})", row.ratio, row.ratio_low, row.ratio_high);
}

void print_summary(const FftOptions& options, const LengthRows& rows) {
  fmt::print("\nFFTW's time over ours, geometric means over sizes:\n");
  for (const fft::Kind kind : options.kinds) {
    for (const fft::Order order : options.orders) {
      const LengthRows selected = select(rows, kind, order);
      if (selected.empty()) continue;
      fmt::print("{} {}: {}\n", name_of(kind), name_of(order), ratio_means(selected).text());
      for (const auto& [title, means] : peer_means(selected)) {
        fmt::print("  {}'s time over ours, {}\n", title, means.text());
      }
      const auto worst = std::min_element(selected.begin(), selected.end(),
                                          [](const LengthRow& a, const LengthRow& b) { return a.ratio < b.ratio; });
      fmt::print("  worst: N = {} with {}\n", worst->n, ratio_text(*worst));
      for (const LengthRow& row : selected) {
        if (row.n != 256) continue;
        fmt::print("  N = 256: {}, {:.2f} GFLOP/s, {:.0f} % of the floor's speed\n", ratio_text(row),
                   1e-9 * row.flops / row.native, 100 * row.floor_fraction);
      }
    }
    const Means orders = order_means(rows, kind);
    if (orders.all.count() > 0)
      fmt::print("{}, time in natural over rotated order: {}\n", name_of(kind), orders.text());
  }
}

Json to_json(const FftOptions& options, const LengthRow& row) {
  Json json{{"n", row.n},
            {"kind", name_of(row.kind)},
            {"order", name_of(row.order)},
            {"precision", precision_name(options.types.front())},
            {"simd", simd_target()},
            {"algorithm", name_of(options.prime)},
            {"native_s", row.native},
            {"fftw_s", row.fftw}};
  if (row.patient) json["fftw_patient_s"] = *row.patient;
  json.update(Json{{"ratio", row.ratio},
                   {"ratio_low", row.ratio_low},
                   {"ratio_high", row.ratio_high},
                   {"gflops", 1e-9 * row.flops / row.native},
                   {"fftw_gflops", 1e-9 * row.flops / row.fftw},
                   {"floor_fraction", row.floor_fraction}});
  for (const PeerTime& peer : row.peers) {
    json[peer.name + "_s"] = peer.seconds;
    json[peer.name + "_ratio"] = peer.ratio;
    json[peer.name + "_ratio_low"] = peer.ratio_low;
    json[peer.name + "_ratio_high"] = peer.ratio_high;
    if (peer.call > 0) json[peer.name + "_call_s"] = peer.call;
  }
  return json;
}

Json to_json(const FftOptions& options, const LengthRows& rows, const FftPeers& peers) {
  Json report{{"machine", describe_fft_machine(options.types.front())}, {"results", Json::array()}};
  peers.add_to(report);
  for (const LengthRow& row : rows) report["results"].push_back(to_json(options, row));
  report["geomean"] = ratio_means(rows).json();
  Json by = Json::object(), natural = Json::object();
  for (const fft::Kind kind : options.kinds) {
    for (const fft::Order order : options.orders) {
      by[name_of(kind) + " " + name_of(order)] = ratio_means(select(rows, kind, order)).json();
    }
    const Means orders = order_means(rows, kind);
    if (orders.all.count() > 0) natural[name_of(kind)] = orders.json();
  }
  report["geomean_by"] = by;
  if (!natural.empty()) report["natural_over_rotated"] = natural;
  return report;
}

/// Returns the relative cost of a size, for the progress bar: the least time of a contest, and the transforms.
double work(const FftOptions& options, index_t n) {
  return options.min_seconds + 1e-7 * options.rounds * std::pow(static_cast<double>(n), 3);
}

}  // namespace

int side_by_side(const FftOptions& options) {
  if (!options.has(Implementation::native) || !options.has(Implementation::fftw)) {
    throw InvalidArgument("--side-by-side compares native with fftw; name both in --impl");
  }
  if (options.has(Implementation::algorithm2))
    throw InvalidArgument("--side-by-side does not measure algorithm2; leave it out of --impl");
  LengthRows rows;
  const StopRequest stop;
  FftPeers peers(options);
  for (const auto& [name, reason] : peers.left_out()) fmt::print(stderr, "bench_fft: {} left out: {}\n", name, reason);
  ReportFile file(options.json, to_json(options, rows, peers));
  FftwPlanner planner(options.types.front(), options.fftw_wisdom);
  ProgressBar bar;
  double total = 0, done = 0;
  for (const index_t n : options.sizes) total += work(options, n) * static_cast<double>(options.kinds.size());
  print_header(options);
  for (const fft::Kind kind : options.kinds) {
    for (const index_t n : options.sizes) {
      if (stop.pending()) break;
      bar.show(done / total, fmt::format("{} N = {}", name_of(kind), n));
      done += work(options, n);
      try {
        const LengthRows measured = measure(options, planner, peers, kind, n);
        bar.clear();
        for (const LengthRow& row : measured) print(row);
        rows.insert(rows.end(), measured.begin(), measured.end());
      } catch (const Unsupported& error) {
        bar.clear();
        fmt::print(stderr, "bench_fft: N = {} left out: {}\n", n, error.what());
      }
      if (file.due()) file.write(to_json(options, rows, peers));
    }
  }
  bar.clear();
  if (!rows.empty()) print_summary(options, rows);
  file.write(to_json(options, rows, peers));
  return stop.pending() ? interrupted_status : 0;
}

}  // namespace convolume::bench
