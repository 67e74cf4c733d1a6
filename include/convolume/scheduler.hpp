// Task graphs: built once and run many times, by priority, on several threads or on one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "convolume/version.hpp"

namespace convolume {

class Trace;

/// Threads of another library that help with the runs of a scheduler. If that library's threads wait actively after
/// their own work, as those of OpenMP do, threads of our own would share processors with them.
class CONVOLUME_API HelperPool {
 public:
  virtual ~HelperPool() = default;
  /// Calls job(0) in the calling thread, and job(place) in up to `threads - 1` other threads at the same time, with
  /// places from 1 to threads - 1, each at most once. Returns when all have ended. Fewer threads are allowed, also
  /// none. The job throws nothing. A scheduler calls this from every thread that runs graphs on it, also within a job,
  /// and never in a child of fork().
  virtual void together(int threads, const std::function<void(int place)>& job) noexcept = 0;

 protected:
  HelperPool() = default;
  HelperPool(const HelperPool&) = default;
  HelperPool& operator=(const HelperPool&) = default;
};

/// Options of a scheduler.
struct SchedulerOptions {
  /// Limit in bytes for the scratch (TaskOptions::scratch_bytes) of all running tasks of a graph; 0 means no limit.
  /// Tasks wait, in priority order, until their scratch fits. Tasks without scratch never wait, and one task with
  /// scratch may always run, so every run ends (the throttling scheduler of Feinberg 2015, "VTune Exploration"). The
  /// limit changes when tasks run, never what they compute.
  std::size_t scratch_budget = 0;
  /// Whether a run may keep helper threads off the processor of its caller. It then changes the affinity masks of those
  /// that sleep, until they wake or the run ends. The threads are TBB's, so a library inside of another program may
  /// leave them alone. Short runs after a rest then take up to some milliseconds longer on some virtual machines. The
  /// first scheduler with helper threads sets the masks of the calling and of the main thread for a moment in any case.
  bool change_affinity = true;
  /// How long helper threads look for the next run before they sleep, in microseconds (roughly). 0 frees their
  /// processors at once, and the next run has to wake them, which takes 40 to 100 us.
  int linger_us = 100;
  /// Where helper threads come from instead of TBB; null means TBB. It must outlive the scheduler, which then starts no
  /// threads, changes no affinity masks, and has no use for `linger_us`. A run asks for them once, as soon as it has
  /// tasks for several threads, and keeps them until it ends.
  HelperPool* helpers = nullptr;
};

/// Threads that run task graphs. Movable. Several graphs may run on one scheduler at once, from any threads.
class CONVOLUME_API Scheduler {
 public:
  /// Creates a scheduler. At most `threads` threads work on a run, the caller included. With 1, the caller runs all
  /// tasks in priority order.
  /// More threads than CPUs are allowed. In a child of fork(), the caller does all the work, also with schedulers from
  /// before. Throws InvalidArgument if threads < 1 or above the maximum of 1024, or for wrong options, and Unsupported
  /// if the system cannot start the threads.
  explicit Scheduler(int threads, const SchedulerOptions& options = {});
  /// Returns a scheduler that runs everything in the calling thread.
  static Scheduler serial() { return Scheduler(1); }
  ~Scheduler();
  Scheduler(Scheduler&&) noexcept;
  Scheduler& operator=(Scheduler&&) noexcept;

  int threads() const noexcept;  ///< 0 if moved from
  /// Returns the number of distinct threads, the caller included, that have taken part in runs so far. Different
  /// callers count as one. Tests of determinism use it to prove that several threads worked.
  int distinct_workers() const;
  /// Records every task that runs from now on in `trace`. The trace must live until another trace or nullptr replaces
  /// it. Must not be called while a graph runs on this scheduler.
  void record(Trace* trace) noexcept;

  struct Impl;
  Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Threads and memory for an execution. Both belong to the caller and must outlive the execution.
struct Execution {
  Scheduler& scheduler;
  std::pmr::memory_resource* memory;
};

/// Returns name and version of the library whose threads run the tasks.
CONVOLUME_API std::string tasking_version();

/// The index of a task in its graph, in the order of add().
using TaskId = std::int32_t;

/// How a task is scheduled and whether it can be skipped.
enum class TaskClass : std::uint8_t {
  normal,
  /// Cancellation or failure never skips it. It is as urgent as the most urgent task that waits for it. If no task
  /// waits for it, it runs last.
  update,
  /// Frees memory. It is never skipped, and runs before all other ready tasks.
  release,
};

CONVOLUME_API const char* name_of(TaskClass task_class) noexcept;

/// Name, cost and memory of a task.
struct TaskOptions {
  std::string name;
  double cost = 1;  ///< in any unit, the same for a whole graph; a task's priority is the cost of its costliest path to
                    ///< the end of the graph
  TaskClass task_class = TaskClass::normal;
  double bytes = 0;               ///< bytes that the task reads and writes, for traces; 0 means unknown
  std::size_t scratch_bytes = 0;  ///< bytes that the task holds while it runs; see SchedulerOptions
};

/// A task as it was added to a graph.
struct TaskDescription {
  TaskOptions options;
  std::string layer;
  std::vector<TaskId> after;  ///< ascending, without duplicates
};

enum class RunResult { completed, cancelled };

/// A directed acyclic graph of tasks. Build it in one thread. run() may be called many times, by one thread at a time.
/// A task sees the writes of all tasks before it.
class CONVOLUME_API TaskGraph {
 public:
  TaskGraph();
  ~TaskGraph();
  TaskGraph(TaskGraph&&) noexcept;
  TaskGraph& operator=(TaskGraph&&) noexcept;

  /// Adds a task that starts after all tasks in `after` have ended; duplicates are allowed. Returns its id. Throws
  /// InvalidArgument for an unknown id.
  TaskId add(TaskOptions options, std::function<void()> body, std::span<const TaskId> after = {});
  std::size_t size() const noexcept;
  /// Returns all tasks, ordered by id, for simulations and benchmarks of schedules.
  std::vector<TaskDescription> describe() const;
  /// Sets the layer, a name for traces, of all tasks that are added from now on. Returns the previous layer; see
  /// LayerScope.
  std::string set_layer(std::string layer);
  /// Returns whether `before` always ends before `after` starts, because a path leads from one to the other.
  bool ordered(TaskId before, TaskId after) const;

  /// Runs every task once and returns when all have ended. The first exception of a task cancels the run and is
  /// rethrown here; later exceptions are dropped. A stop request cancels the run too and gives RunResult::cancelled. A
  /// cancelled run skips all tasks that have not started, except update and release tasks. The graph can run again
  /// afterwards. Tasks run with the default floating-point environment.
  ///
  /// May be called from any thread, also within a task of this or another scheduler and within TBB tasks. The caller
  /// works on the graph itself, helped by as many other threads as are free. It waits only for tasks that are already
  /// running.
  ///
  /// Throws InvalidArgument if the graph is already running. The first run after a change, or on another scheduler,
  /// allocates memory; if that fails, it throws std::bad_alloc before any task runs. Later runs allocate nothing,
  /// except inside TBB. If TBB finds no memory, fewer threads help.
  RunResult run(Scheduler& scheduler, std::stop_token stop = {});

  struct Impl;
  Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Sets the layer of all tasks that are added to a graph during the life of this object. The destructor restores the
/// previous layer, so scopes nest. The graph must not move or end meanwhile.
class LayerScope {
 public:
  LayerScope(TaskGraph& graph, std::string layer) : graph_(graph), outer_(graph.set_layer(std::move(layer))) {}
  ~LayerScope() { graph_.set_layer(std::move(outer_)); }
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

 private:
  TaskGraph& graph_;
  std::string outer_;
};

/// A task that ran.
struct TraceEvent {
  std::string name, layer;          ///< the layer is empty if the graph set none
  double bytes = 0;                 ///< see TaskOptions
  int thread = 0;                   ///< numbered from 0 in the order in which threads handed over their first records
  std::int64_t begin = 0, end = 0;  ///< std::chrono::steady_clock, in nanoseconds
  int run = 0;                      ///< number of the run of a graph, from 0 in the order of their begin
  TaskId task = 0;                  ///< id in its graph
  TaskClass task_class = TaskClass::normal;
  std::vector<TaskId> after{};  ///< direct predecessors in the same run, also if they were skipped
};

/// Records which task ran when and in which thread, on all schedulers that record into it. The cost is two clock
/// readings and one record per task; a scheduler without a trace pays one test per task. Tasks that a cancelled run
/// skips are not recorded; tasks that throw are. Events of one thread do not overlap, except that they nest if a task
/// runs a graph.
///
///   Trace trace;
///   scheduler.record(&trace);
///   graph.run(scheduler);
///   scheduler.record(nullptr);
///   write(chrome_trace({{"one run", trace.events()}}));
class CONVOLUME_API Trace {
 public:
  Trace();
  ~Trace();
  Trace(Trace&&) noexcept;
  Trace& operator=(Trace&&) noexcept;

  /// Returns the events of all runs that have ended, ordered by begin. Thread-safe.
  std::vector<TraceEvent> events() const;
  /// Returns the number of events that were lost because there was no memory for their records.
  std::size_t lost() const;
  /// Removes all events and threads. Keeps the memory of their records for later ones.
  void clear();

  struct Impl;
  Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Events with a name, for chrome_trace().
struct TracedProcess {
  std::string name;
  std::vector<TraceEvent> events;
};

/// Returns JSON for chrome://tracing and ui.perfetto.dev: one row per thread, with the times of each process counted
/// from its first event. Categories are layers.
CONVOLUME_API std::string chrome_trace(const std::vector<TracedProcess>& processes);

/// How the time of the traced runs was spent.
struct TraceSummary {
  struct Thread {
    double busy = 0, between = 0, idle = 0;  ///< seconds in tasks, between tasks (at most 2 us per gap), and idle
  };
  /// The path through a run whose tasks took longest in total.
  struct CriticalPath {
    double seconds = 0;
    std::vector<std::pair<std::string, double>> layers;  ///< seconds of its tasks by layer, longest first
  };
  double seconds = 0;  ///< from the first begin to the last end
  std::vector<Thread> threads;
  std::vector<CriticalPath> runs;
};
/// Evaluates the events of a trace.
CONVOLUME_API TraceSummary summarize(const std::vector<TraceEvent>& events);
/// Returns the summary as a table.
CONVOLUME_API std::string to_string(const TraceSummary& summary);

/// Returns the seconds that the runs of a trace would take, one after the other, on `cores` cores, if every task took
/// as long as in the trace. The method is list scheduling in the priority order of TaskGraph. It ignores the cost of
/// scheduling and the memory bandwidth that cores share, so real runs gain less from more cores. Throws InvalidArgument
/// if cores < 1.
CONVOLUME_API double simulate_seconds(const std::vector<TraceEvent>& events, int cores);

}  // namespace convolume
