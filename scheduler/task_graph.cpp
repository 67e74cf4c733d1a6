#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <tbb/task_group.h>

#include "convolume/error.hpp"
#include "convolume/scheduler.hpp"
#include "core/fp_environment.hpp"
#include "scheduler/trace.hpp"
#include "scheduler/tsan.hpp"
#include "scheduler/workers.hpp"

namespace convolume {

struct TaskGraph::Impl {
  struct Node {
    TaskOptions options;
    std::function<void()> body;
    std::string layer;
    std::vector<TaskId> predecessors, successors;
    double path = 0;                  // cost of the costliest path from here to the end
    std::vector<std::int32_t> woken;  // ranks that the task makes ready in a run
  };

  /// Successors and priorities follow from what was added; recomputed after each change of the graph.
  void prepare();
  /// What traces call the tasks; made for the first run that is recorded.
  const scheduler::SharedLabels& trace_labels();

  std::vector<Node> nodes;
  std::string layer;                // of tasks to come
  scheduler::SharedLabels labels;   // none, or of all nodes
  std::vector<TaskId> by_priority;  // rank -> task
  std::vector<std::int32_t> rank;   // task -> rank; a smaller rank runs first
  bool prepared = false;
  // Of a run, of which there is one at a time: kept, so that runs allocate nothing.
  std::vector<std::atomic<std::int32_t>> pending;  // predecessors that have not ended
  std::vector<std::int32_t> queue;                 // heap of ranks; guarded by the run's mutex
};

void TaskGraph::Impl::prepare() {
  if (prepared) return;
  for (auto& node : nodes) node.successors.clear();
  for (std::size_t id = 0; id < nodes.size(); ++id) {
    for (const TaskId before : nodes[id].predecessors) {
      nodes[static_cast<std::size_t>(before)].successors.push_back(static_cast<TaskId>(id));
    }
  }
  for (auto& node : nodes) node.woken.reserve(node.successors.size());
  pending = std::vector<std::atomic<std::int32_t>>(nodes.size());
  queue.reserve(nodes.size());
  // Tasks are added after their predecessors, so that descending ids are a reverse topological order.
  for (std::size_t id = nodes.size(); id-- > 0;) {
    double longest = 0;
    for (const TaskId after : nodes[id].successors) {
      longest = std::max(longest, nodes[static_cast<std::size_t>(after)].path);
    }
    nodes[id].path = nodes[id].options.cost + longest;
  }
  by_priority.resize(nodes.size());
  for (std::size_t id = 0; id < nodes.size(); ++id) by_priority[id] = static_cast<TaskId>(id);
  std::stable_sort(by_priority.begin(), by_priority.end(), [&](TaskId a, TaskId b) {
    const Node& left = nodes[static_cast<std::size_t>(a)];
    const Node& right = nodes[static_cast<std::size_t>(b)];
    if (left.options.task_class != right.options.task_class) return left.options.task_class == TaskClass::normal;
    return left.path > right.path;
  });
  rank.resize(nodes.size());
  for (std::size_t i = 0; i < by_priority.size(); ++i) {
    rank[static_cast<std::size_t>(by_priority[i])] = static_cast<std::int32_t>(i);
  }
  prepared = true;
}

const scheduler::SharedLabels& TaskGraph::Impl::trace_labels() {
  if (labels) return labels;
  std::vector<scheduler::TaskLabel> made;
  made.reserve(nodes.size());
  for (const Node& node : nodes) made.push_back({node.options.name, node.layer, node.options.bytes});
  labels = std::make_shared<const std::vector<scheduler::TaskLabel>>(std::move(made));
  return labels;
}

namespace {

/// One run of a graph. A worker drains the ready queue until it is empty; whoever makes tasks ready starts further
/// workers while fewer than `threads` are draining. Invariant, under `mutex_`: if the queue is not empty, then either
/// `threads` workers drain or the thread that pushed last is about to drain it itself.
class Run {
 public:
  Run(TaskGraph::Impl& graph, Scheduler::Impl& workers, std::stop_token stop)
      : graph_(graph), workers_(workers), stop_(std::move(stop)), pending_(graph.pending), queue_(graph.queue) {
    if (workers.trace != nullptr) {
      trace_ = &workers.trace->impl();
      graph.trace_labels();
    }
    queue_.clear();
    for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
      const auto count = graph.nodes[id].predecessors.size();
      pending_[id].store(static_cast<std::int32_t>(count), std::memory_order_relaxed);
      if (count == 0) queue_.push_back(graph.rank[id]);
    }
    std::make_heap(queue_.begin(), queue_.end(), std::greater<>{});
  }

  RunResult execute() {
    if (workers_.threads == 1) {
      active_ = 1;
      drain();
    } else {
      // Where no slot is free, a worker of the arena runs this in the caller's place.
      scheduler::tsan_release(this);
      const scheduler::TsanIgnore ignore;
      workers_.arena.execute([this] {
        scheduler::tsan_acquire(this);
        tbb::task_group group;
        group_ = &group;
        start_workers(reserve_workers(queue_.size()));
        group.wait();
        group_ = nullptr;
        scheduler::tsan_release(this);
      });
    }
    scheduler::tsan_acquire(this);
    if (error_) std::rethrow_exception(error_);
    return skipped_.load(std::memory_order_relaxed) ? RunResult::cancelled : RunResult::completed;
  }

 private:
  /// How many more workers may start for `ready` queued tasks. Before the first task no lock is needed.
  int reserve_workers(std::size_t ready) {
    const int count = static_cast<int>(
        std::min<std::size_t>(ready, static_cast<std::size_t>(std::max(0, workers_.threads - active_))));
    active_ += count;
    return count;
  }

  void start_workers(int count) {
    if (count == 0) return;
    scheduler::tsan_release(this);
    const scheduler::TsanIgnore ignore;
    for (int i = 0; i < count; ++i) group_->run([this] { work(); });
  }

  void work() {
    const scheduler::TsanWatch watch;
    scheduler::tsan_acquire(this);
    drain();
    scheduler::tsan_release(this);
  }

  void drain() {
    const DefaultFpEnvironment environment;
    workers_.note_worker();
    scheduler::TraceStretch stretch(trace_, graph_.labels);
    TaskId task = 0;
    while (pop(task)) {
      if (stretch.on()) {
        const std::int64_t begin = scheduler::trace_clock();
        if (execute_task(task)) stretch.add(task, begin, scheduler::trace_clock());
      } else {
        execute_task(task);
      }
      auto& node = graph_.nodes[static_cast<std::size_t>(task)];
      node.woken.clear();
      for (const TaskId after : node.successors) {
        // acq_rel: the last predecessor to arrive has seen the writes of all the others, and passes them on.
        if (pending_[static_cast<std::size_t>(after)].fetch_sub(1, std::memory_order_acq_rel) == 1) {
          node.woken.push_back(graph_.rank[static_cast<std::size_t>(after)]);
        }
      }
      push(node.woken);
    }
  }

  bool pop(TaskId& task) {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) {
      --active_;
      return false;
    }
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>{});
    task = graph_.by_priority[static_cast<std::size_t>(queue_.back())];
    queue_.pop_back();
    return true;
  }

  void push(const std::vector<std::int32_t>& ready) {
    if (ready.empty()) return;
    int start = 0;
    {
      const std::lock_guard lock(mutex_);
      for (const auto rank : ready) {
        queue_.push_back(rank);
        std::push_heap(queue_.begin(), queue_.end(), std::greater<>{});
      }
      // The pusher itself takes one.
      start = reserve_workers(queue_.size() - 1);
    }
    start_workers(start);
  }

  /// Whether the task ran, rather than being skipped.
  bool execute_task(TaskId id) {
    auto& node = graph_.nodes[static_cast<std::size_t>(id)];
    if (node.options.task_class == TaskClass::normal) {
      if (stop_.stop_requested()) cancelled_.store(true, std::memory_order_relaxed);
      if (cancelled_.load(std::memory_order_relaxed)) {
        skipped_.store(true, std::memory_order_relaxed);
        return false;
      }
    }
    try {
      node.body();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      cancelled_.store(true, std::memory_order_relaxed);
    }
    return true;
  }

  TaskGraph::Impl& graph_;
  Scheduler::Impl& workers_;
  Trace::Impl* trace_ = nullptr;
  std::stop_token stop_;
  std::vector<std::atomic<std::int32_t>>& pending_;
  std::mutex mutex_;
  std::vector<std::int32_t>& queue_;
  int active_ = 0;            // workers that drain; guarded by mutex_
  std::exception_ptr error_;  // guarded by mutex_ until all workers have ended
  std::atomic<bool> cancelled_{false}, skipped_{false};
  tbb::task_group* group_ = nullptr;
};

}  // namespace

TaskGraph::TaskGraph() : impl_(std::make_unique<Impl>()) {}
TaskGraph::~TaskGraph() = default;
TaskGraph::TaskGraph(TaskGraph&&) noexcept = default;
TaskGraph& TaskGraph::operator=(TaskGraph&&) noexcept = default;

TaskId TaskGraph::add(TaskOptions options, std::function<void()> body, std::span<const TaskId> after) {
  const auto id = static_cast<TaskId>(impl_->nodes.size());
  for (const TaskId before : after) {
    if (before < 0 || before >= id) {
      throw InvalidArgument(
          fmt::format("task '{}': predecessor {} does not exist; tasks 0 to {} do", options.name, before, id - 1));
    }
  }
  Impl::Node node{.options = std::move(options),
                  .body = std::move(body),
                  .layer = impl_->layer,
                  .predecessors = {},
                  .successors = {},
                  .woken = {}};
  node.predecessors.assign(after.begin(), after.end());
  std::sort(node.predecessors.begin(), node.predecessors.end());
  node.predecessors.erase(std::unique(node.predecessors.begin(), node.predecessors.end()), node.predecessors.end());
  impl_->nodes.push_back(std::move(node));
  impl_->prepared = false;
  impl_->labels.reset();
  return id;
}

std::string TaskGraph::set_layer(std::string layer) { return std::exchange(impl_->layer, std::move(layer)); }

std::size_t TaskGraph::size() const noexcept { return impl_->nodes.size(); }

bool TaskGraph::ordered(TaskId before, TaskId after) const {
  std::vector<char> reaches(impl_->nodes.size(), 0);
  for (TaskId id = after; id > before; --id) {
    if (id != after && !reaches[static_cast<std::size_t>(id)]) continue;
    for (const TaskId predecessor : impl_->nodes.at(static_cast<std::size_t>(id)).predecessors) {
      if (predecessor == before) return true;
      reaches[static_cast<std::size_t>(predecessor)] = 1;
    }
  }
  return false;
}

RunResult TaskGraph::run(Scheduler& scheduler, std::stop_token stop) {
  impl_->prepare();
  return Run(*impl_, scheduler.impl(), std::move(stop)).execute();
}

}  // namespace convolume
