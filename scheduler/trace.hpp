// The inside of a Trace: what workers hand over at the end of a stretch of work.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "convolume/scheduler.hpp"

namespace convolume::scheduler {

/// What a trace says of a task of a graph. Shared with the traces, since the graph may end before they are read.
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

struct Trace::Impl {
  /// What one thread did between two looks at an empty queue.
  struct Stretch {
    scheduler::SharedLabels labels;
    int run, thread;
    std::vector<scheduler::TaskRecord> records;
  };

  mutable std::mutex mutex;  // guards all below
  std::vector<Stretch> stretches;
  std::vector<std::vector<scheduler::TaskRecord>> spare;  // empty, with memory
  std::map<std::thread::id, int> threads;
  std::size_t lost = 0;
  int runs = 0;  // begun so far
};

namespace scheduler {

/// Collects what the calling thread runs, without locks, and hands it over when it ends. Tracing never makes a run
/// fail: records that find no memory are counted as lost.
class TraceStretch {
 public:
  /// Of a run by its number. Records nothing where `trace` is null.
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
