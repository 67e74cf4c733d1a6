#include "bench/conv/conv_streamed.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/common/report.hpp"
#include "conv/streamed/stream_plan.hpp"
#include "convolume/streamed.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

/// Quotients of the seconds of all transfers and those of the computation.
constexpr std::array wanted_quotients{0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0};
constexpr double start_s = 2e-5, jump_s = 1e-8;

index_t runs_of(const Shape5& whole, const Shape5& box) {
  if (box.extent.x < whole.extent.x) return box.n * box.c * box.extent.z * box.extent.y;
  if (box.extent.y < whole.extent.y) return box.n * box.c * box.extent.z;
  if (box.extent.z < whole.extent.z) return box.n * box.c;
  return box.c < whole.c ? box.n : 1;
}

/// A device that works for the time of the price of a transfer. It serves one piece of a transfer at a time, and takes
/// pieces of several transfers in turn, as disks and kernels do.
class Device {
 public:
  static double seconds_of(const Shape5& whole, const TensorBox& box, const TransferPrice& price) {
    const double words = static_cast<double>(box.shape.elements());
    return price.of(1, static_cast<double>(runs_of(whole, box.shape)), words);
  }

  void serve(const Shape5& whole, const TensorBox& box, const TransferPrice& price) {
    const double seconds = seconds_of(whole, box, price);
    const auto pieces = static_cast<int>(seconds / piece_s) + 1;
    const auto piece = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds / pieces));
    // The next piece is requested before the last one is done, so a thread that wakes up late delays nothing.
    Clock::time_point requested = Clock::now();
    for (int i = 0; i < pieces; ++i) {
      {
        const std::lock_guard lock(mutex_);
        requested = free_ = std::max(free_, requested) + piece;
      }
      std::this_thread::sleep_until(requested);
    }
  }

 private:
  static constexpr double piece_s = 5e-4;
  std::mutex mutex_;
  Clock::time_point free_{};
};

/// A source of ones. Without a device it leaves buffers as they are.
class TimedSource final : public TensorSource {
 public:
  TimedSource(const Shape5& shape, Device* device, const TransferPrice& price)
      : TensorSource("a timed source", shape, DataType::f32), device_(device), price_(price) {}

 private:
  void do_read(const TensorBox& box, void* to) override {
    if (device_ != nullptr) device_->serve(shape(), box, price_);
    std::memset(to, 0, 64);  // one line: to fill the buffer is not what is measured
  }
  Device* device_;
  TransferPrice price_;
};

class TimedSink final : public TensorSink {
 public:
  TimedSink(const Shape5& shape, Device* device, const TransferPrice& price)
      : TensorSink("a timed sink", shape, DataType::f32), device_(device), price_(price) {}
  void finish() override {}

 private:
  void do_write(const TensorBox& box, const void*) override {
    if (device_ != nullptr) device_->serve(shape(), box, price_);
  }
  Device* device_;
  TransferPrice price_;
};

/// Seconds of one problem at one price.
struct StreamedRow {
  std::string name;
  ConvProblem problem;
  StreamCosts costs;
  double wanted = 1;  ///< quotient of transfers and computation for which the price was made
  double transfers = 0, compute = 0, in_turn = 0, at_once = 0;  ///< medians
  double over_longest = 0, over_low = 0, over_high = 0;         ///< at once over the longest alone: median, quartiles
  double gain = 0;                                              ///< in turn over at once
};

class StreamedContest {
 public:
  StreamedContest(const ConvBenchOptions& options, const NamedProblem& named) : o_(options), named_(named) {
    const double elements = static_cast<double>(named.problem.x_shape().elements()) +
                            static_cast<double>(named.problem.y_shape().elements());
    memory_ = static_cast<std::size_t>(elements);  // a quarter of the bytes of x and y
  }

  StreamedRow measure(double quotient, const std::function<bool(double)>& go_on) {
    const ConvProblem& p = named_.problem;
    StreamOptions options{
        .conv = o_.conv(o_.engines.front()), .memory = memory_, .threads = o_.threads, .prices = prices(1e-9)};
    const double words = static_cast<double>(p.x_shape().elements() + p.y_shape().elements());
    const double compute = time(StreamedConv::make(p, options), nullptr, 3);
    options.prices = prices(quotient * compute / words);
    const StreamedConv overlapped = StreamedConv::make(p, options);
    options.tile = overlapped.costs().tile;
    options.buffers = 1;
    const StreamedConv alone = StreamedConv::make(p, options);
    price_ = options.prices;
    Device device;
    const std::vector<std::function<double()>> ways{[&] { return time(overlapped, nullptr, 1); },
                                                    [&] { return time(alone, &device, 1); },
                                                    [&] { return time(overlapped, &device, 1); }};
    const double transfers = transfers_alone(overlapped);
    const Protocol protocol{.rounds = o_.rounds, .min_seconds = o_.min_seconds, .max_seconds = o_.max_seconds};
    const auto seconds = take_turns(
        ways.size(), protocol, [&](std::size_t i) { return ways[i](); }, go_on);
    std::vector<double> longest;
    for (const double compute_alone : seconds[0]) longest.push_back(std::max(transfers, compute_alone));
    const auto over = quotients(seconds[2], longest);
    return {.name = named_.name,
            .problem = p,
            .costs = overlapped.costs(),
            .wanted = quotient,
            .transfers = transfers,
            .compute = quantile(seconds[0], 0.5),
            .in_turn = quantile(seconds[1], 0.5),
            .at_once = quantile(seconds[2], 0.5),
            .over_longest = quantile(over, 0.5),
            .over_low = quantile(over, 0.25),
            .over_high = quantile(over, 0.75),
            .gain = quantile(quotients(seconds[1], seconds[2]), 0.5)};
  }

 private:
  static StreamPrices prices(double element_s) {
    const TransferPrice price{.start = start_s, .jump = jump_s, .element = element_s};
    return {.x = price, .w = price, .y = price};
  }

  /// Returns the least seconds of some runs. Without a device, transfers cost nothing.
  double time(const StreamedConv& conv, Device* device, int runs) {
    const ConvProblem& p = conv.problem();
    double least = 1e300;
    for (int i = 0; i < runs; ++i) {
      TimedSource x(p.x_shape(), device, price_.x), w(p.w_shape(), device, price_.w);
      TimedSink y(p.y_shape(), device, price_.y);
      least = std::min(least, conv.run({scheduler_, &slabs_}, x, w, {}, y)->seconds);
    }
    return least;
  }

  /// Returns the seconds of all transfers of a run on the device. They are added up, not measured, because each thread
  /// that sleeps wakes up late.
  double transfers_alone(const StreamedConv& conv) const {
    const ConvProblem& p = conv.problem();
    const StreamCosts& costs = conv.costs();
    const conv::StreamUnits units = conv::units_of(conv.plan());
    const auto steps = conv::steps_of({.problem = p,
                                       .tile = costs.tile,
                                       .whole_tile = units.whole_tile,
                                       .channels_outermost = costs.channels_outermost});
    double seconds = 0;
    TensorBox x, w;
    for (const conv::StreamStep& step : steps) {
      if (!(step.x == x)) seconds += Device::seconds_of(p.x_shape(), step.x, price_.x);
      if (!(step.w == w)) seconds += Device::seconds_of(p.w_shape(), step.w, price_.w);
      if (step.last_part) seconds += Device::seconds_of(p.y_shape(), step.y, price_.y);
      x = step.x;
      w = step.w;
    }
    return seconds;
  }

  const ConvBenchOptions& o_;
  NamedProblem named_;
  std::size_t memory_ = 0;
  Scheduler scheduler_{o_.threads};
  SlabResource slabs_;
  StreamPrices price_{};
};

Json to_json(const ConvBenchOptions& options, const std::vector<StreamedRow>& rows) {
  Json report{{"machine", describe_machine(DataType::f32)}, {"streamed", Json::array()}};
  for (const StreamedRow& row : rows) {
    report["streamed"].push_back({{"problem", to_string(row.problem)},
                                  {"name", row.name},
                                  {"threads", options.threads},
                                  {"tile", to_string(row.costs.tile)},
                                  {"tiles", row.costs.tiles},
                                  {"buffers", row.costs.buffers},
                                  {"peak_bytes", row.costs.peak_bytes},
                                  {"wanted_quotient", row.wanted},
                                  {"transfers_s", row.transfers},
                                  {"compute_s", row.compute},
                                  {"in_turn_s", row.in_turn},
                                  {"at_once_s", row.at_once},
                                  {"over_longest", row.over_longest},
                                  {"over_longest_low", row.over_low},
                                  {"over_longest_high", row.over_high},
                                  {"gain", row.gain}});
  }
  return report;
}

void print(const StreamedRow& row) {
  fmt::print("  {:28} {:>5} {:>7} {:>10} {:>10} {:>10} {:>10} {:6.3f}  {:15} {:6.2f}\n", to_string(row.costs.tile),
             row.costs.tiles, row.costs.buffers[0], time_text(row.transfers), time_text(row.compute),
             time_text(row.in_turn), time_text(row.at_once), row.over_longest,
             fmt::format("{:.3f} .. {:.3f}", row.over_low, row.over_high), row.gain);
  std::fflush(stdout);
}

}  // namespace

int conv_streamed(const ConvBenchOptions& o) {
  std::vector<StreamedRow> rows;
  ReportFile file(o.json, to_json(o, rows));
  const StopRequest stop;
  bool failed = false;
  fmt::print(
      "memory: a quarter of x and y; transfers from and to a device that serves one at a time\n"
      "  {:28} {:>5} {:>7} {:>10} {:>10} {:>10} {:>10} {:>6}  {:15} {:>6}\n",
      "tile", "tiles", "buffers", "transfers", "compute", "in turn", "at once", "ratio", "quartiles", "gain");
  for (const NamedProblem& named : o.problems) {
    fmt::print("{}\n", named.name);
    try {
      StreamedContest contest(o, named);
      for (const double quotient : wanted_quotients) {
        if (stop.pending()) break;
        rows.push_back(contest.measure(quotient, [&](double) { return !stop.pending(); }));
        print(rows.back());
        if (file.due()) file.write(to_json(o, rows));
      }
    } catch (const std::exception& error) {
      failed = true;
      fmt::print(stderr, "bench_conv: {}: {}\n", named.name, error.what());
    }
  }
  fmt::print("ratio: at once over the longer of transfers and computation; gain: in turn over at once\n");
  file.write(to_json(o, rows));
  return stop.pending() ? interrupted_status : failed ? 1 : 0;
}

}  // namespace convolume::bench
