#include "bench/conv/conv_side_by_side.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/common/progress_bar.hpp"
#include "bench/common/thread_times.hpp"
#include "bench/conv/conv_competitor.hpp"
#include "bench/conv/conv_floor.hpp"
#include "bench/conv/conv_report.hpp"
#include "bench/peers/c_loops_convolution.hpp"
#include "bench/peers/im2col_convolution.hpp"
#include "bench/peers/onednn_convolution.hpp"
#include "bench/peers/torch_convolution.hpp"

namespace convolume::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Rows = std::vector<ConvRow>;

double seconds_of(ConvCompetitor& competitor, Direction direction) {
  const auto begin = Clock::now();
  competitor.execute(direction);
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Prints messages. A message that holds for many problems is printed once.
class Notes {
 public:
  explicit Notes(ProgressBar& bar) : bar_(bar) {}
  void say(const std::string& what) {
    bar_.clear();
    std::fflush(stdout);  // keeps the order of standard output and standard error
    fmt::print(stderr, "bench_conv: {}\n", what);
  }
  void say_once(const std::string& what) {
    if (said_.insert(what).second) say(what);
  }

 private:
  ProgressBar& bar_;
  std::set<std::string> said_;
};

enum class Who { ours, fft_volume, onednn, torch, im2col_openblas, im2col_atlas, c_loops };

bool is_ours(Who who) { return who == Who::ours || who == Who::fft_volume; }

struct Competitor {
  Who who;
  std::unique_ptr<ConvCompetitor> competitor;
  std::string name{};
  ConvProblem problem{};  // with the layouts in use
  Engine asked = Engine::automatic;
  std::vector<double> seconds{};  // of the current direction
  double first = 0;               // seconds of the first pass of the current direction, for PyTorch
};

/// One problem with all its competitors.
class ConvContest {
 public:
  /// `torch` runs torch_conv.py, or is null if PyTorch does not take part.
  ConvContest(const ConvBenchOptions& options, const NamedProblem& named, Notes& notes, PeerProcess* torch)
      : o_(options), name_(named.name), problem_(named.problem), notes_(notes), data_(problem_) {
    data_.fill_normal();
    for (const Engine engine : o_.engines) {
      for (const Layout layout : o_.layouts) {
        for (const std::string& choice : o_.choices) add_ours(engine, layout, choice);
      }
    }
    if (competitors_.empty()) return;
    if (o_.has(Peer::fft_volume)) add_fft_volume();
    if (o_.has(Peer::onednn)) {
      add_peer(Who::onednn, "oneDNN", [&] { return onednn_convolution(problem_, data_, o_.threads); });
    }
    if (torch != nullptr) {
      for (const char* const format : torch_formats) {
        add_peer(Who::torch, fmt::format("PyTorch ({})", format),
                 [&] { return std::make_unique<TorchConvolution>(*torch, problem_, data_, format, o_.threads); });
      }
    }
    const auto add_im2col = [&](Who who, const char* name, Blas blas) {
      add_peer(who, name, [&] { return im2col_convolution(problem_, data_, blas, o_.threads); });
    };
    if (o_.has(Peer::im2col_openblas)) add_im2col(Who::im2col_openblas, "im2col:openblas", Blas::openblas);
    if (o_.has(Peer::im2col_atlas)) add_im2col(Who::im2col_atlas, "im2col:atlas", Blas::atlas);
    if (o_.has(Peer::c_loops)) {
      add_peer(Who::c_loops, "c_loops", [&] { return c_loops_convolution(problem_, data_, o_.threads); });
    }
  }

  bool empty() const { return competitors_.empty(); }

  Rows measure(Direction direction, const std::function<bool(double)>& go_on) {
    std::vector<Competitor*> running;
    for (Competitor& competitor : competitors_) {
      competitor.seconds.clear();
      if (warm_up(competitor, direction)) running.push_back(&competitor);
    }
    drop_slow_formats(running);
    const Protocol protocol{.rounds = o_.rounds, .min_seconds = o_.min_seconds, .max_seconds = o_.max_seconds};
    const auto sample = [&](std::size_t i) { return running[i]->competitor->sample(direction); };
    auto seconds = take_turns(running.size(), protocol, sample, go_on);
    for (std::size_t i = 0; i < running.size(); ++i) running[i]->seconds = std::move(seconds[i]);
    Rows rows;
    for (const Competitor& competitor : competitors_) {
      if (competitor.who == Who::ours) rows.push_back(row_of(competitor, direction));
    }
    return rows;
  }

 private:
  PlannedConvolution::Options planned(Engine engine, const std::string& choice) const {
    ConvOptions conv = o_.conv(engine);
    conv.choice = choice;
    return {.conv = conv, .threads = o_.threads, .prepare_forward = !o_.cached_weights, .tune = o_.tune};
  }

  void add_ours(Engine engine, Layout layout, const std::string& choice) {
    const ConvProblem problem = with_layout(problem_, layout);
    // If both layouts are measured, the layout column shows which one is missing.
    const bool only = o_.layouts.size() == 1;
    if (layout_of(problem) != layout) {
      if (only)
        notes_.say(fmt::format("{} left out: blocked tensors need 8 channels, and it has no such tensor", name_));
      return;
    }
    try {
      auto planned_one = std::make_unique<PlannedConvolution>(problem, data_, planned(engine, choice));
      const auto same = [&](const Competitor& other) {
        return layout_of(other.problem) == layout && choose_alike(*planned_one, ours(other));
      };
      if (std::any_of(competitors_.begin(), competitors_.end(), same)) return;
      competitors_.push_back({.who = Who::ours,
                              .competitor = std::move(planned_one),
                              .name = fmt::format("{} {}", convolume::name_of(engine), convolume::name_of(layout)),
                              .problem = problem,
                              .asked = engine});
    } catch (const Unsupported& error) {
      if (only || layout == Layout::plain) {
        notes_.say(fmt::format("{} left out: {} {}", name_, convolume::name_of(engine), refusal(error, engine)));
      }
    }
  }

  static PlannedConvolution& ours(const Competitor& competitor) {
    return static_cast<PlannedConvolution&>(*competitor.competitor);
  }
  /// Returns whether two plans make equal choices in all directions that are measured.
  bool choose_alike(PlannedConvolution& a, PlannedConvolution& b) const {
    return std::all_of(o_.directions.begin(), o_.directions.end(),
                       [&](Direction d) { return a.plan(d).choice() == b.plan(d).choice(); });
  }

  void add_fft_volume() {
    const auto runs = [&](const Competitor& e) {
      return layout_of(e.problem) == Layout::plain &&
             std::all_of(o_.directions.begin(), o_.directions.end(),
                         [&](Direction d) { return ours(e).plan(d).engine() == Engine::fft_volume; });
    };
    if (std::any_of(competitors_.begin(), competitors_.end(), runs)) return;
    try {
      competitors_.push_back(
          {.who = Who::fft_volume,
           .competitor = std::make_unique<PlannedConvolution>(problem_, data_, planned(Engine::fft_volume, "")),
           .name = "fft_volume",
           .problem = problem_});
    } catch (const Unsupported& error) {
      notes_.say(fmt::format("{}: fft_volume {}", name_, refusal(error, Engine::fft_volume)));
    }
  }

  template <class Make>
  void add_peer(Who who, const std::string& name, const Make& make) {
    try {
      competitors_.push_back({.who = who, .competitor = make(), .name = name, .problem = problem_});
    } catch (const PeerEnded&) {
      throw;  // rows without this peer would flatter us
    } catch (const Unsupported& error) {
      notes_.say_once(fmt::format("{} left out: {}", name, error.what()));
    }
  }

  /// Executes a direction for the first time, and checks the result against the first competitor. Returns whether the
  /// competitor supports the direction.
  bool warm_up(Competitor& competitor, Direction direction) {
    if (!competitor.competitor->has(direction)) return false;
    try {
      if (competitor.who == Who::onednn) {
        count_threads(competitor, direction);
      } else if (competitor.who == Who::torch) {
        competitor.first = competitor.competitor->sample(direction);
      } else {
        competitor.competitor->execute(direction);
      }
    } catch (const PeerEnded&) {
      throw;
    } catch (const Unsupported& error) {
      notes_.say(fmt::format("{} {}: {}", name_, name_of(direction), error.what()));
      return false;
    }
    const double bound = problem_.type == DataType::f32 ? 1e-4 : 1e-10;
    for (const Output output : outputs_of(direction)) {
      if (&competitor == &competitors_.front()) break;
      ConvTensor wanted(problem_.type, shape_of(problem_, output)), got(problem_.type, shape_of(problem_, output));
      competitors_.front().competitor->read(output, wanted);
      competitor.competitor->read(output, got);
      const double error = relative_error(got, wanted);
      if (error <= bound) continue;
      throw NumericalError(fmt::format("{} {}: {} of {} and of {} differ by {:.3g}; at most {:.3g} is allowed", name_,
                                       name_of(direction), name_of(output), competitor.name, competitors_.front().name,
                                       error, bound));
    }
    return true;
  }

  /// Removes PyTorch's memory formats whose first pass took more than twice as long as that of the fastest format. Some
  /// take seconds for what another does in milliseconds.
  static void drop_slow_formats(std::vector<Competitor*>& running) {
    constexpr double too_slow = 2;
    double fastest = std::numeric_limits<double>::infinity();
    for (const Competitor* one : running) {
      if (one->who == Who::torch) fastest = std::min(fastest, one->first);
    }
    std::erase_if(running,
                  [&](const Competitor* one) { return one->who == Who::torch && one->first > too_slow * fastest; });
  }

  /// Executes for the first time, and counts how many threads oneDNN keeps busy. A very short call may end before all
  /// threads have woken, so several calls are made.
  void count_threads(Competitor& competitor, Direction direction) {
    constexpr int calls = 6;
    constexpr double long_call = 0.1;
    onednn_threads_ = 0;
    for (int i = 0; i < calls && onednn_threads_ < o_.threads; ++i) {
      const ThreadTimes times;
      const double seconds = seconds_of(*competitor.competitor, direction);
      onednn_threads_ = std::max(onednn_threads_, times.busy());
      if (seconds > long_call) break;
    }
    if (onednn_threads_ >= o_.threads) return;
    notes_.say(fmt::format("{} {}: oneDNN kept {} of {} threads busy", name_, name_of(direction), onednn_threads_,
                           o_.threads));
  }

  /// Returns the fastest competitor of this kind, or null if none was measured.
  const Competitor* find(Who who) const {
    const Competitor* fastest = nullptr;
    for (const Competitor& one : competitors_) {
      if (one.who != who || one.seconds.empty()) continue;
      if (fastest == nullptr || quantile(one.seconds, 0.5) < quantile(fastest->seconds, 0.5)) fastest = &one;
    }
    return fastest;
  }

  /// Returns the competitor fft_volume in plain layout, which may be one of our engines.
  const Competitor* fft_volume(Direction direction) const {
    const auto found = std::find_if(competitors_.begin(), competitors_.end(), [&](const Competitor& e) {
      return is_ours(e.who) && ours(e).plan(direction).engine() == Engine::fft_volume &&
             layout_of(e.problem) == Layout::plain;
    });
    return found == competitors_.end() || found->seconds.empty() ? nullptr : &*found;
  }

  static std::optional<Comparison> compare(const Competitor* other, const Competitor& ours) {
    if (other == nullptr) return {};
    const auto ratios = quotients(other->seconds, ours.seconds);
    Comparison result{.seconds = quantile(other->seconds, 0.5),
                      .seconds_low = quantile(other->seconds, 0.25),
                      .seconds_high = quantile(other->seconds, 0.75),
                      .low = quantile(ratios, 0.25),
                      .high = quantile(ratios, 0.75)};
    result.ratio = result.seconds / quantile(ours.seconds, 0.5);
    result.in_time = result.seconds_low / quantile(ours.seconds, 0.25);
    return result;
  }

  ConvRow row_of(const Competitor& competitor, Direction direction) const {
    ConvRow row{.name = name_,
                .problem = competitor.problem,
                .direction = direction,
                .threads = o_.threads,
                .asked = competitor.asked,
                .engine = ours(competitor).plan(direction).engine(),
                .choice = ours(competitor).plan(direction).choice(),
                .rounds = competitor.seconds.size()};
    row.ours = quantile(competitor.seconds, 0.5);
    row.ours_low = quantile(competitor.seconds, 0.25);
    row.ours_high = quantile(competitor.seconds, 0.75);
    row.floor_fraction = floor_seconds(problem_, direction, o_.threads, o_.cached_weights) / row.ours;
    if (o_.has(Peer::fft_volume)) row.fft_volume = compare(fft_volume(direction), competitor);
    const Competitor* onednn = find(Who::onednn);
    row.onednn = compare(onednn, competitor);
    row.im2col_openblas = compare(find(Who::im2col_openblas), competitor);
    row.im2col_atlas = compare(find(Who::im2col_atlas), competitor);
    row.c_loops = compare(find(Who::c_loops), competitor);
    const Competitor* torch = find(Who::torch);
    row.torch = compare(torch, competitor);
    if (torch != nullptr) row.torch_format = static_cast<TorchConvolution&>(*torch->competitor).format();
    if (onednn != nullptr) {
      row.onednn_implementation = static_cast<OneDnnConvolution&>(*onednn->competitor).implementation(direction);
      row.onednn_threads = onednn_threads_;
    }
    return row;
  }

  const ConvBenchOptions& o_;
  std::string name_;
  ConvProblem problem_;
  Notes& notes_;
  ConvData data_;
  std::vector<Competitor> competitors_;
  int onednn_threads_ = 0;
};

class SideBySide {
 public:
  explicit SideBySide(const ConvBenchOptions& options) : o_(options), runs_{o_}, file_(o_.json, to_json(o_, rows_)) {
    if (o_.has(Peer::torch)) start_torch();
    if (!o_.one_thread_too || o_.threads == 1) return;
    runs_.push_back(o_);
    runs_.back().threads = 1;
  }

  int run() {
    print_header(o_);
    for (; at_ < o_.problems.size() && !stop_.pending(); ++at_) {
      try {
        measure(o_.problems[at_]);
      } catch (const std::exception& error) {
        failed_ = true;
        notes_.say(fmt::format("{}: {}", o_.problems[at_].name, error.what()));
      }
    }
    bar_.clear();
    if (!rows_.empty()) print_summary(o_, rows_);
    if (torch_) fmt::print("PyTorch {}\n", to_string(torch_->facts()));
    file_.write(report());
    return stop_.pending() ? interrupted_status : failed_ ? 1 : 0;
  }

 private:
  void measure(NamedProblem named) {
    named.problem.type = o_.types.front();
    Rows rows;
    for (const ConvBenchOptions& run : runs_) {
      if (!stop_.pending()) measure(named, run, rows);
    }
    bar_.clear();
    print_title(named);
    for (ConvRow& row : rows) {
      print(o_, row);
      rows_.push_back(std::move(row));
    }
    if (file_.due()) file_.write(report());
  }

  void measure(const NamedProblem& named, const ConvBenchOptions& run, Rows& rows) {
    show(named, 0, "plans");
    ConvContest contest(run, named, notes_, torch_.get());
    if (contest.empty()) return;
    Rows measured;
    for (std::size_t i = 0; i < o_.directions.size() && !stop_.pending(); ++i) {
      const Direction direction = o_.directions[i];
      const auto go_on = [&](double share) {
        show(named, (static_cast<double>(i) + share) / static_cast<double>(o_.directions.size()), name_of(direction));
        return !stop_.pending();
      };
      for (ConvRow& row : contest.measure(direction, go_on)) measured.push_back(std::move(row));
    }
    std::move(measured.begin(), measured.end(), std::back_inserter(rows));
  }

  void start_torch() {
    try {
      torch_ = std::make_unique<PeerProcess>("torch_conv.py");
    } catch (const Unsupported& error) {
      torch_missing_ = error.what();
      notes_.say(fmt::format("PyTorch left out: {}", error.what()));
    }
  }

  nlohmann::ordered_json report() const {
    auto report = to_json(o_, rows_);
    if (torch_) bench::add_to(report["machine"]["torch"], torch_->facts());
    if (!torch_missing_.empty()) report["left_out"].push_back({{"peer", "torch"}, {"reason", torch_missing_}});
    return report;
  }

  void show(const NamedProblem& named, double share, const std::string& what) {
    bar_.show((static_cast<double>(at_) + share) / static_cast<double>(o_.problems.size()),
              fmt::format("{} {}", named.name, what));
  }

  const ConvBenchOptions& o_;
  std::vector<ConvBenchOptions> runs_;  // one per number of threads
  Rows rows_;
  const StopRequest stop_;
  ReportFile file_;
  ProgressBar bar_;
  Notes notes_{bar_};
  std::unique_ptr<PeerProcess> torch_;
  std::string torch_missing_;  // why PyTorch was left out
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace

int conv_side_by_side(const ConvBenchOptions& options) { return SideBySide(options).run(); }

}  // namespace convolume::bench
