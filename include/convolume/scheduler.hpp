// Task graphs: built once, run many times, by priority, on a pool of workers or serially.
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

struct SchedulerOptions {
  /// Bytes of scratch (TaskOptions::scratch_bytes) that the running tasks of a graph may hold together; 0 is no limit.
  /// Tasks wait, in their order, until what they hold fits; what holds nothing never waits, and one task is always
  /// admitted, so that every run ends (the throttling scheduler of Feinberg 2015, "VTune Exploration"). Changes when
  /// tasks run, never what they compute.
  std::size_t scratch_budget = 0;
};

/// Threads that drain task graphs. Movable; several graphs may run on one scheduler at once, from any thread.
class CONVOLUME_API Scheduler {
 public:
  /// At most `threads` threads work on a run, its caller counted; 1 runs everything in the caller, in priority order.
  /// Throws InvalidArgument for threads < 1, Unsupported where the system refuses so many threads. More workers than
  /// processors are allowed.
  explicit Scheduler(int threads, const SchedulerOptions& options = {});
  /// All work in the calling thread.
  static Scheduler serial() { return Scheduler(1); }
  ~Scheduler();
  Scheduler(Scheduler&&) noexcept;
  Scheduler& operator=(Scheduler&&) noexcept;

  int threads() const noexcept;  ///< 0 where it was moved away
  /// Of threads() workers, the caller one of them, how many have taken part in runs so far; what a test of determinism
  /// asserts.
  int distinct_workers() const;
  /// Notes every task that runs from now on in `trace`, which must live until another one, or nullptr, takes its place.
  /// While no graph runs on this scheduler.
  void record(Trace* trace) noexcept;

  struct Impl;
  Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Threads and memory for an execution; both come from the caller and must outlive it.
struct Execution {
  Scheduler& scheduler;
  std::pmr::memory_resource* memory;
};

/// Name and version of the library whose threads run the tasks.
CONVOLUME_API std::string tasking_version();

using TaskId = std::int32_t;

enum class TaskClass : std::uint8_t {
  normal,
  /// Never skipped by cancellation or failure. As urgent as the most urgent task that waits for it, which thus forces
  /// it; last, where none does.
  update,
  /// Gives memory back: never skipped either, and first of all that is ready.
  release,
};

CONVOLUME_API const char* name_of(TaskClass task_class) noexcept;

struct TaskOptions {
  std::string name;
  double cost = 1;  ///< any unit, the same within a graph: priority is the costliest path to the end of the graph
  TaskClass task_class = TaskClass::normal;
  double bytes = 0;               ///< that the task reads and writes, for traces; 0 where nobody counted
  std::size_t scratch_bytes = 0;  ///< that it holds while it runs, and no longer; see SchedulerOptions
};

/// A task as it was added to a graph.
struct TaskDescription {
  TaskOptions options;
  std::string layer;
  std::vector<TaskId> after;  ///< ascending, each once
};

enum class RunResult { completed, cancelled };

/// A directed acyclic graph of tasks. Building is single-threaded; run() may be called again and again, by one thread
/// at a time. A task sees the writes of all tasks before it.
class CONVOLUME_API TaskGraph {
 public:
  TaskGraph();
  ~TaskGraph();
  TaskGraph(TaskGraph&&) noexcept;
  TaskGraph& operator=(TaskGraph&&) noexcept;

  /// Adds a task that starts after all of `after` (duplicates allowed). Throws InvalidArgument for an unknown id.
  TaskId add(TaskOptions options, std::function<void()> body, std::span<const TaskId> after = {});
  std::size_t size() const noexcept;
  /// All tasks, by id; what simulations and benchmarks of schedules start from.
  std::vector<TaskDescription> describe() const;
  /// The layer, as traces name it, of all tasks that are added from now on. Returns the last one; see LayerScope.
  std::string set_layer(std::string layer);
  /// Whether every path makes `before` end before `after` starts.
  bool ordered(TaskId before, TaskId after) const;

  /// Runs every task once and returns when all have ended. The first exception of a task cancels the rest (release and
  /// update tasks still run, also where it came from one of them) and is rethrown here, once; later ones are dropped. A
  /// stop request cancels likewise and gives RunResult::cancelled. The graph can run again after either. Tasks run with
  /// the default floating-point environment.
  ///
  /// May be called from any thread, also in a task of this or another scheduler and in tasks of TBB: the caller works
  /// on the graph itself, with as many other workers as are free, and waits for nothing but tasks that run already.
  /// Throws InvalidArgument where the graph runs already, and std::bad_alloc where the first run after a change, or on
  /// another scheduler, finds no memory; no task has run then. Later runs allocate nothing, but inside TBB; where TBB
  /// finds no memory, fewer workers come.
  RunResult run(Scheduler& scheduler, std::stop_token stop = {});

  struct Impl;
  Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Tasks that are added to a graph during its life belong to this layer; afterwards to the one before, so that scopes
/// nest. The graph must neither move nor end meanwhile.
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
  std::string name, layer;          ///< the layer is empty where the graph named none
  double bytes = 0;                 ///< of TaskOptions
  int thread = 0;                   ///< counted from 0 in the order in which threads came to the trace
  std::int64_t begin = 0, end = 0;  ///< nanoseconds of std::chrono::steady_clock
  int run = 0;                      ///< of a graph; counted from 0 in the order in which they began
  TaskId task = 0;                  ///< in its graph
  TaskClass task_class = TaskClass::normal;
  std::vector<TaskId> after{};  ///< tasks of the same run that came before it, whether they left an event or not
};

/// What ran when, and where, on the schedulers that record into it. Two readings of the clock and one record per task;
/// schedulers that record nowhere pay one test per task. Tasks that a cancelled run skips leave no event, those that
/// throw do. The events of one thread do not overlap, but nest where a task runs a graph itself.
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

  /// Of all runs that have ended, by begin. Thread-safe.
  std::vector<TraceEvent> events() const;
  /// Events that found no memory.
  std::size_t lost() const;
  /// Forgets all events and threads; memory of their records stays for the next ones.
  void clear();

  struct Impl;
  Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Events under a name, for chrome_trace().
struct TracedProcess {
  std::string name;
  std::vector<TraceEvent> events;
};

/// The JSON that chrome://tracing and ui.perfetto.dev show: a row per thread, each process from its own zero.
/// Categories are layers.
CONVOLUME_API std::string chrome_trace(const std::vector<TracedProcess>& processes);

/// Where the time of the runs of a trace went.
struct TraceSummary {
  struct Thread {
    double busy = 0, between = 0, idle = 0;  ///< seconds: in tasks, between two of them (2 us at most each), otherwise
  };
  /// The costliest path through a run, by what its tasks took.
  struct CriticalPath {
    double seconds = 0;
    std::vector<std::pair<std::string, double>> layers;  ///< seconds of its tasks by layer, the longest first
  };
  double seconds = 0;  ///< from the first begin to the last end
  std::vector<Thread> threads;
  std::vector<CriticalPath> runs;
};
CONVOLUME_API TraceSummary summarize(const std::vector<TraceEvent>& events);
/// A table of it.
CONVOLUME_API std::string to_string(const TraceSummary& summary);

/// What the runs of a trace would have taken, one after the other, on so many cores on which every task takes as long
/// as it took in the trace: list scheduling by the order of TaskGraph, the longest path to the end first.
/// Neither memory that more cores share nor the cost of scheduling is in it, so that it bounds what more cores gain.
/// Throws InvalidArgument for cores < 1.
CONVOLUME_API double simulate_seconds(const std::vector<TraceEvent>& events, int cores);

}  // namespace convolume
