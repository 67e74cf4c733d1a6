// One run of a graph on a scheduler: its workers, its ready tasks, and its end.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "core/fork.hpp"
#include "scheduler/ready_tasks.hpp"
#include "scheduler/spin_lock.hpp"
#include "scheduler/task_graph.hpp"
#include "scheduler/workers.hpp"

namespace convolume::scheduler {

/// The calling thread and its helpers take ready tasks until none is left. The caller invites the helpers from the
/// scheduler's arena. The caller itself works outside the arena and waits only for tasks that are already running.
/// Therefore a run ends however many helpers come, and whichever thread called it.
///
/// Invariants, under `lock_`, during a run:
/// - `idle_` of the `active_` workers look for a task. Each other worker has a task, and looks at the ready set when
///   its task has ended. So as long as idle_ < active_, the ready set will be looked at again. If idle_ == active_ and
///   the set is empty, the run is over. The same holds for tasks that wait for scratch: a worker that holds scratch has
///   a task.
/// - If the set is empty, a helper may leave and the caller may sleep, but only while idle_ < active_.
/// - `first_ready_` is the first task of the set that may start, or `none`. It is 0 once the run is over, so that
///   spinning workers stop.
///
/// If the scheduler has a HelperPool, the caller asks it for helpers, once in a run, as soon as it has tasks for them.
/// These helpers stay until the run is over, and sleep on `bell_` while there is no task. Helpers of TBB leave instead.
///
/// An invitation may be read long after its run. Therefore it shares the ownership of this object. A helper that comes
/// when no run is on waits for another invitation or goes away. Unread invitations stay valid for the next run.
class Run : public std::enable_shared_from_this<Run> {
 public:
  /// Allocates everything that runs need. The graph must be prepared.
  Run(TaskGraph::Impl& graph, Scheduler::Impl& workers);

  /// Returns whether this object can run the graph on a scheduler again. A child of fork() cannot use those from
  /// before: a helper that read an old invitation may have held the lock.
  bool is_for(const Scheduler::Impl& workers) const noexcept {
    return &workers_ == &workers && in_child_ == is_forked_child();
  }
  /// Runs the graph as TaskGraph::run() says.
  RunResult execute(std::stop_token stop);
  /// Works on the run until it is over. Does nothing if it is over, or has enough workers.
  void help() noexcept;

 private:
  static constexpr std::int32_t none = ReadyTasks::none;
  enum class Role { caller, helper };

  /// A worker and the tasks that it has taken. If tasks are so short that passing the lock takes longer, the worker
  /// takes several tasks under one lock. Under the next lock it adds all tasks that these have made ready. A few very
  /// short tasks may then run out of priority order. As soon as another worker is idle, the worker hands over all its
  /// tasks except the one that runs.
  struct Worker {
    static constexpr std::size_t most = 8;
    Role role;
    int place;  ///< from 0, below the scheduler's threads: which share of equally urgent tasks the worker prefers
    std::array<std::int32_t, most> tasks{};
    std::size_t next = 0, count = 0;
    std::array<std::int32_t, 64> woken{};
    std::size_t woken_count = 0;
    std::int32_t holding = none;  ///< the running task if it holds counted scratch; the worker then takes no other task
    std::size_t together = 1;     ///< how many tasks the worker takes at once
    int ran = 0;                  ///< tasks since the clock was last read
    std::int64_t since = 0;
  };

  void begin(std::stop_token stop);
  void end() noexcept;
  void work(Role role, int place) noexcept;
  void work_on(std::int32_t rank, Worker& me, TraceStretch& stretch) noexcept;
  void work_with_pool(std::int32_t rank, Worker& me, TraceStretch& stretch) noexcept;
  void help_in(int place) noexcept;
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
  std::int32_t first_for(const Worker& me) const noexcept;
  void insert_woken(Worker& me) noexcept;
  bool out_of_work() noexcept;
  void sleep() noexcept;
  void sleep_until_bell(std::unique_lock<SpinLock>& lock) noexcept;
  int spin(int patience) const noexcept;

  /// The workers to wake for new work. They are determined under the lock and woken without it.
  struct Call {
    bool caller = false;
    int helpers = 0;
  };
  Call call_workers(int own) noexcept;
  void make(Call call) noexcept;
  void invite(int helpers) noexcept;
  void ring() noexcept;

  TaskGraph::Impl& graph_;
  Scheduler::Impl& workers_;
  const bool in_child_ = is_forked_child();
  HelperPool* const pool_ = in_child_ || workers_.threads == 1 ? nullptr : workers_.options.helpers;
  Trace::Impl* trace_ = nullptr;
  int traced_run_ = 0;  // number of this run in the trace
  std::stop_token stop_;
  std::vector<std::atomic<std::int32_t>> pending_;  // by rank: predecessors that have not ended

  SpinLock lock_;  // guards all members up to the next comment
  ReadyTasks ready_;
  int active_ = 0, idle_ = 0;
  int spinning_ = 0;            // idle workers that poll first_ready_, so nobody must wake them
  int invited_ = 0;             // approximate: an invitation whose sending failed may still arrive
  bool can_invite_ = true;      // false after an invitation has failed
  bool over_ = true;            // no task is left
  int sleeping_ = 0;            // helpers of the pool that wait for the bell
  bool caller_sleeps_ = false;  // true until another worker sets wake_up_
  std::exception_ptr error_;    // the first exception

  // Written under the lock, but also read without it. It has its own cache line because spinning threads read it.
  alignas(64) std::atomic<std::int32_t> first_ready_{none};
  alignas(64) std::atomic<std::int32_t> wake_up_{0};
  alignas(64) std::atomic<std::int32_t> bell_{0};
  // Whether the caller wants the helpers of the pool, and has got them. It alone works before.
  bool pool_wanted_ = false, pool_came_ = false;
  std::atomic<int> present_{0};  // helpers that have not left yet
  std::atomic<int> hungry_{0};   // a copy of idle_ that is read without the lock, so it is approximate
  std::atomic<bool> cancelled_{false}, skipped_{false};
};

}  // namespace convolume::scheduler
