#include "bench/scheduler/order_contest.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/common/progress_bar.hpp"
#include "bench/common/report.hpp"
#include "bench/net/measured_net.hpp"
#include "bench/scheduler/task_orders.hpp"
#include "scheduler/task_graph.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;
constexpr double mib = 1u << 20;

/// A competitor that runs the tasks of a graph.
class Competitor {
 public:
  virtual ~Competitor() = default;
  virtual void run() = 0;
};

/// Runs the tasks with TaskGraph and the given scheduler options.
class OurOrder final : public Competitor {
 public:
  OurOrder(const TaskGraph& graph, int threads, const SchedulerOptions& options) : scheduler_(threads, options) {
    const auto& bodies = graph.impl().bodies;
    for (const TaskDescription& task : graph.describe()) {
      graph_.add(
          task.options, [&body = bodies[graph_.size()]] { body(); }, task.after);
    }
  }
  void run() override { graph_.run(scheduler_); }

 private:
  Scheduler scheduler_;
  TaskGraph graph_;
};

/// Runs the tasks in any order: workers take them under a mutex. The workers are tasks of a graph themselves, so that
/// all orders use the same threads.
class AnyOrder final : public Competitor {
 public:
  AnyOrder(const TaskGraph& graph, TaskOrder order, int threads)
      : tasks_(graph.describe()),
        bodies_(graph.impl().bodies),
        order_(std::move(order)),
        run_(tasks_, order_),
        scheduler_(threads) {
    for (int i = 0; i < threads; ++i) workers_.add({.name = "worker"}, [this] { work(); });
  }
  void run() override {
    run_.begin();
    workers_.run(scheduler_);
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (!run_.over() && !failed_) {
      const auto task = run_.take();
      if (!task) {
        wake_.wait(lock);
        continue;
      }
      lock.unlock();
      try {
        bodies_[static_cast<std::size_t>(*task)]();
      } catch (...) {
        lock.lock();
        failed_ = true;
        wake_.notify_all();
        throw;
      }
      lock.lock();
      run_.ended(*task);
      wake_.notify_all();
    }
  }

  const std::vector<TaskDescription> tasks_;
  const std::vector<std::function<void()>>& bodies_;
  const TaskOrder order_;
  OrderedRun run_;
  Scheduler scheduler_;
  TaskGraph workers_;
  std::mutex mutex_;  // guards run_ and failed_ while the workers run
  std::condition_variable wake_;
  bool failed_ = false;
};

/// An order with its name and results.
struct Way {
  std::string name;
  std::function<std::unique_ptr<Competitor>(const TaskGraph&)> make;
  std::vector<double> seconds{};   ///< one value per round
  std::vector<double> speed_up{};  ///< on simulated cores, relative to one core; empty if nothing was simulated
  std::size_t peak_bytes = 0;
};

class OrderContest {
 public:
  OrderContest(const OrderContestOptions& options, const nets::NetSpec& spec, int threads)
      : o_(options), spec_(spec), threads_(threads), net_(make_net()) {
    net_->call();  // later calls include an update
    net_->call();
    add_ours("TaskGraph", {});
    for (const TaskOrder& order : task_orders(net_->graph())) {
      ways_.push_back({order.name, [order, threads](const TaskGraph& graph) {
                         return std::make_unique<AnyOrder>(graph, order, threads);
                       }});
    }
    for (const double budget : o_.scratch_mib) {
      add_ours(fmt::format("TaskGraph, {:g} MiB of scratch", budget),
               {.scratch_budget = static_cast<std::size_t>(budget * mib)});
    }
  }

  void run(ProgressBar& bar, const StopRequest& stop) {
    simulate_orders();
    std::vector<std::unique_ptr<Competitor>> competitors;
    for (const Way& way : ways_) competitors.push_back(way.make(net_->graph()));
    auto seconds = take_turns(
        competitors.size(), {.rounds = o_.rounds, .min_seconds = o_.min_seconds},
        [&](std::size_t i) {
          competitors[i]->run();
          const auto begin = std::chrono::steady_clock::now();
          competitors[i]->run();
          return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        },
        [&](double share) {
          bar.show(share, spec_.name);
          return !stop.pending();
        });
    for (std::size_t i = 0; i < ways_.size(); ++i) ways_[i].seconds = std::move(seconds[i]);
    competitors.clear();
    net_.reset();
    measure_peaks(bar, stop);
    bar.clear();
  }

  void print() const {
    fmt::print(
        "\niteration of {}, engine {}, {} tasks of at most {:.2f} MiB of scratch, {} thread{}, {} rounds; speed-ups by "
        "simulation\n",
        spec_.name, o_.engine, tasks_, static_cast<double>(scratch_bytes_) / mib, threads_, threads_ == 1 ? "" : "s",
        ways_[0].seconds.size());
    fmt::print("{:32} {:>9}  {:19} {:>28} {:>9}", "", "ms", "quartiles", "times TaskGraph's", "peak MiB");
    for (const int cores : o_.cores) fmt::print(" {:>9}", fmt::format("{} cores", cores));
    fmt::print("\n");
    for (const Way& way : ways_) {
      fmt::print("{:32} {:9.2f}  {:19} {:>28} {:9.1f}", way.name, 1e3 * quantile(way.seconds, 0.5),
                 fmt::format("{:.2f} .. {:.2f}", 1e3 * quantile(way.seconds, 0.25), 1e3 * quantile(way.seconds, 0.75)),
                 fmt::format("{:.3f} ({:.3f} .. {:.3f})", ratio(way, 0.5), ratio(way, 0.25), ratio(way, 0.75)),
                 static_cast<double>(way.peak_bytes) / mib);
      for (const double speed_up : way.speed_up) fmt::print(" {:9.2f}", speed_up);
      fmt::print("\n");
    }
    std::fflush(stdout);
  }

  void add_to(Json& rows) const {
    for (const Way& way : ways_) {
      rows.push_back({{"net", spec_.name},
                      {"engine", o_.engine},
                      {"order", way.name},
                      {"tasks", tasks_},
                      {"threads", threads_},
                      {"rounds", way.seconds.size()},
                      {"seconds", quantile(way.seconds, 0.5)},
                      {"seconds_low", quantile(way.seconds, 0.25)},
                      {"seconds_high", quantile(way.seconds, 0.75)},
                      {"ratio", ratio(way, 0.5)},
                      {"ratio_low", ratio(way, 0.25)},
                      {"ratio_high", ratio(way, 0.75)},
                      {"peak_bytes", way.peak_bytes},
                      {"most_scratch_bytes", scratch_bytes_},
                      {"simulated_cores", way.speed_up.empty() ? std::vector<int>{} : o_.cores},
                      {"simulated_speed_up", way.speed_up}});
    }
  }

 private:
  std::unique_ptr<MeasuredNet> make_net() const {
    return MeasuredNet::make(
        Work::training, spec_,
        {.engine = engine_of(o_.engine), .low_error = o_.low_error, .memory_budget = std::size_t{4} << 30}, threads_);
  }

  void add_ours(const std::string& name, const SchedulerOptions& options) {
    ways_.push_back({name, [threads = threads_, options](const TaskGraph& graph) {
                       return std::make_unique<OurOrder>(graph, threads, options);
                     }});
  }

  /// Simulates all orders. Each task takes as long as in one traced call.
  void simulate_orders() {
    Trace trace;
    net_->record(&trace);
    net_->call();
    net_->record(nullptr);
    const auto tasks = net_->graph().describe();
    tasks_ = tasks.size();
    for (const TaskDescription& task : tasks) scratch_bytes_ = std::max(scratch_bytes_, task.options.scratch_bytes);
    std::vector<double> seconds(tasks.size(), 0);
    for (const TraceEvent& event : trace.events()) {
      seconds[static_cast<std::size_t>(event.task)] = 1e-9 * static_cast<double>(event.end - event.begin);
    }
    for (const TaskOrder& order : task_orders(net_->graph())) {
      for (Way& way : ways_) {
        if (way.name != order.name) continue;
        const double alone = simulate(tasks, order, seconds, 1);
        for (const int cores : o_.cores) way.speed_up.push_back(alone / simulate(tasks, order, seconds, cores));
      }
    }
  }

  /// Measures the peak of each order on a new net, which has run in no other order.
  void measure_peaks(ProgressBar& bar, const StopRequest& stop) {
    for (Way& way : ways_) {
      if (stop.pending()) return;
      bar.show(1, fmt::format("{}: memory of {}", spec_.name, way.name));
      const auto net = make_net();
      const auto competitor = way.make(net->graph());
      for (int i = 0; i < 3; ++i) competitor->run();
      way.peak_bytes = net->peak_bytes();
    }
  }

  /// Returns the ratio to TaskGraph's time in the same round.
  double ratio(const Way& way, double q) const { return quantile(quotients(way.seconds, ways_[0].seconds), q); }

  const OrderContestOptions& o_;
  const nets::NetSpec& spec_;
  int threads_;
  std::unique_ptr<MeasuredNet> net_;
  std::size_t tasks_ = 0, scratch_bytes_ = 0;  // number of tasks of the graph; largest scratch of a task
  std::vector<Way> ways_;
};

}  // namespace

int order_contest(const OrderContestOptions& options) {
  Json report{{"machine", describe_machine(DataType::f32)}, {"results", Json::array()}};
  const StopRequest stop;
  ReportFile file(options.json, report);
  ProgressBar bar;
  for (const std::string& net : options.nets) {
    const nets::NetSpec spec = nets::load_net(net, options.overrides);
    for (const int threads : options.threads) {
      if (stop.pending()) return interrupted_status;
      OrderContest contest(options, spec, threads);
      contest.run(bar, stop);
      contest.print();
      contest.add_to(report["results"]);
      file.write(report);
    }
  }
  return stop.pending() ? interrupted_status : 0;
}

}  // namespace convolume::bench
