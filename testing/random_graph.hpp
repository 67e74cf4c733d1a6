// Random graphs whose tasks check the order in which they run, and a watchdog for runs that never end.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "convolume/scheduler.hpp"
#include "core/random.hpp"

namespace convolume::test {

/// A random graph in which about every fourth task is an update.
class RandomGraph {
 public:
  /// `extra` is called in every task, with the task's index, after the task has counted itself. `density` is the
  /// probability of an edge.
  RandomGraph(std::uint64_t seed, int most_tasks, double density, std::function<void(int)> extra = {})
      : extra_(std::move(extra)) {
    const RandomKey key{.seed = seed};
    const auto tasks = 1 + static_cast<int>(uniform_below(key, 0, static_cast<std::uint64_t>(most_tasks)));
    done_ = std::vector<std::atomic<int>>(static_cast<std::size_t>(tasks));
    std::uint64_t draw = 1;
    for (int i = 0; i < tasks; ++i) {
      std::vector<TaskId> before;
      for (int p = 0; p < i; ++p) {
        if (uniform(key, draw++) < density) before.push_back(p);
      }
      const bool update = uniform(key, draw++) < 0.25;
      updates_.push_back(update);
      graph_.add(
          {.name = "task " + std::to_string(i),
           .cost = uniform(key, draw++),
           .task_class = update ? TaskClass::update : TaskClass::normal},
          [this, i, before] { visit(i, before); }, before);
    }
  }

  TaskGraph& graph() { return graph_; }
  int size() const { return static_cast<int>(done_.size()); }
  bool is_update(int task) const { return updates_[static_cast<std::size_t>(task)]; }
  int done(int task) const { return done_[static_cast<std::size_t>(task)]; }
  /// Returns how many tasks started before one of their predecessors had ended. It is valid for runs that skip no task.
  int violations() const { return violations_; }
  /// Returns whether every task has run exactly once after the last call of clear().
  bool all_done() const {
    for (const auto& count : done_) {
      if (count != 1) return false;
    }
    return true;
  }
  /// Returns whether every update ran once and no task ran twice.
  bool updates_done() const {
    for (int i = 0; i < size(); ++i) {
      if (done(i) > 1 || (is_update(i) && done(i) != 1)) return false;
    }
    return true;
  }
  void clear() {
    for (auto& count : done_) count = 0;
    violations_ = 0;
  }

 private:
  void visit(int i, const std::vector<TaskId>& before) {
    for (const TaskId p : before) violations_ += done_[static_cast<std::size_t>(p)] == 1 ? 0 : 1;
    // The task counts before `extra_` may throw, because it did run.
    ++done_[static_cast<std::size_t>(i)];
    if (extra_) extra_(i);
  }

  TaskGraph graph_;
  std::function<void(int)> extra_;
  std::vector<std::atomic<int>> done_;
  std::vector<bool> updates_;
  std::atomic<int> violations_{0};
};

/// Aborts the process, naming the current graph, if nothing was reported for 120 turns of one second each. A process
/// that is stopped for a while takes no turns meanwhile.
class Watchdog {
 public:
  Watchdog() : thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      end_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void report(std::uint64_t seed, int threads) {
    seed_ = seed;
    threads_ = threads;
    ++reports_;
  }

 private:
  void watch() {
    constexpr int turns = 120;
    std::unique_lock lock(mutex_);
    std::uint64_t last = 0;
    for (int quiet = 0; !wake_.wait_for(lock, std::chrono::seconds(1), [this] { return end_; }); ++quiet) {
      const std::uint64_t now = reports_;
      if (now != std::exchange(last, now)) quiet = 0;
      if (quiet < turns) continue;
      std::fprintf(stderr, "no end in sight: graph of seed %llu on %d threads\n",
                   static_cast<unsigned long long>(seed_.load()), threads_.load());
      std::abort();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool end_ = false;
  std::atomic<std::uint64_t> seed_{0}, reports_{0};
  std::atomic<int> threads_{0};
  std::thread thread_;
};

}  // namespace convolume::test
