// The implementation of a Trace: the records that workers hand over at the end of a stretch of work.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "convolume/scheduler.hpp"

namespace convolume::scheduler {

/// The description of a task in a trace. Traces share it, because the graph may end before they are read.
struct TaskLabel {
  std::string name, layer;
  double bytes;
  TaskClass task_class;
  std::vector<TaskId> after;
};
using SharedLabels = std::shared_ptr<const std::vector<TaskLabel>>;

struct TaskRecord {
  TaskId task;
  std::int64_t begin, end;
};

inline std::int64_t trace_clock() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace convolume::scheduler

namespace convolume {

/// ForkLock::traces guards all members.
struct Trace::Impl {
  /// The tasks that one thread ran between joining a run and leaving it.
  struct Stretch {
    scheduler::SharedLabels labels;
    int run, thread;
    std::vector<scheduler::TaskRecord> records;
  };

  std::vector<Stretch> stretches;
  std::vector<std::vector<scheduler::TaskRecord>> spare;  // empty, with reserved memory
  std::map<std::thread::id, int> threads;
  std::size_t lost = 0;
  int runs = 0;  // begun so far
};

namespace scheduler {

/// Collects the tasks that the calling thread runs, without locks, and hands them over in its destructor. Tracing never
/// makes a run fail: records for which there is no memory are counted as lost.
class TraceStretch {
 public:
  /// `run` is the number of the run. Records nothing if `trace` is null.
  TraceStretch(Trace::Impl* trace, const SharedLabels& labels, int run) noexcept;
  ~TraceStretch();
  TraceStretch(const TraceStretch&) = delete;
  TraceStretch& operator=(const TraceStretch&) = delete;

  bool on() const noexcept { return trace_ != nullptr; }
  void add(TaskId task, std::int64_t begin, std::int64_t end) noexcept;

 private:
  Trace::Impl* trace_;
  SharedLabels labels_;
  int run_;
  std::vector<TaskRecord> records_;
  std::size_t lost_ = 0;
};

}  // namespace scheduler
}  // namespace convolume
