// One graph on one scheduler: who works on it, what is ready, and how it ends.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <stop_token>
#include <vector>

#include "scheduler/ready_tasks.hpp"
#include "scheduler/spin_lock.hpp"
#include "scheduler/task_graph.hpp"
#include "scheduler/workers.hpp"

namespace convolume::scheduler {

/// The calling thread and helpers, which it invites from the scheduler's arena, take ready tasks until none is left.
/// The caller works by itself, outside the arena, and waits for nothing but tasks that run already: a run ends
/// however many helpers come, in whatever thread it was called.
///
/// Invariants, under `lock_`, while a run is on:
/// - `idle_` of the `active_` workers look for a task. Each of the others has one, and looks at the ready set when it
///   has ended. So the ready set is looked at again as long as idle_ < active_, and the run is over when idle_ ==
///   active_ and the set is empty.
///   Of tasks that wait for scratch the same holds: whoever holds some has a task.
/// - A worker that finds the set empty leaves (a helper) or sleeps (the caller) only while idle_ < active_.
/// - `first_ready_` is the first element of the set that may start, or 0 once the run is over.
///
/// An invitation may be read long after its run: it shares the ownership of this object, and whoever comes when no run
/// is on goes away again. Invitations that nobody has read yet hold for the next run.
class Run : public std::enable_shared_from_this<Run> {
 public:
  /// Allocates all that runs need. The graph is prepared.
  Run(TaskGraph::Impl& graph, Scheduler::Impl& workers);

  bool is_for(const Scheduler::Impl& workers) const noexcept { return &workers_ == &workers; }
  /// As TaskGraph::run().
  RunResult execute(std::stop_token stop);

 private:
  static constexpr std::int32_t none = ReadyTasks::none;
  enum class Role { caller, helper };

  /// A worker, and the tasks that are its own for the moment. Of tasks that end sooner than two workers can pass a lock
  /// to each other it takes several at once, and tells what they made ready together. Order among so few and so short
  /// tasks is given up for that; as soon as anybody is idle, all but the task that runs is handed over.
  struct Worker {
    static constexpr std::size_t most = 8;
    Role role;
    std::array<std::int32_t, most> tasks{};
    std::size_t next = 0, count = 0;
    std::array<std::int32_t, 64> woken{};
    std::size_t woken_count = 0;
    std::int32_t holding = none;  ///< the task that runs, where it holds scratch that is counted; it runs alone then
    std::size_t together = 1;     ///< how many it takes at once
    int ran = 0;                  ///< since the clock was last read
    std::int64_t since = 0;
  };

  void begin(std::stop_token stop);
  void end() noexcept;
  void work(Role role) noexcept;
  void help() noexcept;
  bool enter() noexcept;
  void leave() noexcept;

  void run_step(std::int32_t rank, TraceStretch& stretch) noexcept;
  bool execute_body(const Step& step) noexcept;
  std::int32_t pass_on(std::int32_t rank, Worker& me) noexcept;
  std::int32_t next_of(Worker& me) noexcept;
  std::int32_t exchange(Worker& me) noexcept;
  void publish(Worker& me) noexcept;
  void measure(Worker& me) noexcept;
  std::int32_t take(Worker& me) noexcept;
  std::int32_t take_some(Worker& me) noexcept;
  void insert_woken(Worker& me) noexcept;
  bool out_of_work() noexcept;
  void sleep() noexcept;
  int spin(int patience) const noexcept;

  /// Who has to be told that there is work, found under the lock and told outside.
  struct Call {
    bool caller = false;
    int helpers = 0;
  };
  Call call_workers(int own) noexcept;
  void make(Call call) noexcept;
  void invite(int helpers) noexcept;

  TaskGraph::Impl& graph_;
  Scheduler::Impl& workers_;
  Trace::Impl* trace_ = nullptr;
  int traced_run_ = 0;  // its number in the trace
  std::stop_token stop_;
  std::vector<std::atomic<std::int32_t>> pending_;  // by rank: predecessors that have not ended

  SpinLock lock_;  // guards what follows, up to the next comment
  ReadyTasks ready_;
  int active_ = 0, idle_ = 0;
  int spinning_ = 0;            // of the idle ones: they see first_ready_ change by themselves
  int invited_ = 0;             // about: an invitation whose sending failed may arrive or not
  bool can_invite_ = true;      // until an invitation has failed
  bool over_ = true;            // no task is left
  bool caller_sleeps_ = false;  // until somebody sets wake_up_
  std::exception_ptr error_;    // the first one

  // Written under the lock, read also without it. A line of its own: spinning threads read it.
  alignas(64) std::atomic<std::int32_t> first_ready_{none};
  alignas(64) std::atomic<std::int32_t> wake_up_{0};
  std::atomic<int> present_{0};  // helpers that have not left yet
  std::atomic<int> hungry_{0};   // idle_, for those without the lock: about right
  std::atomic<bool> cancelled_{false}, skipped_{false};
};

}  // namespace convolume::scheduler
