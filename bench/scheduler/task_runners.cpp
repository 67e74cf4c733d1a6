#include "bench/scheduler/task_runners.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>

#include <tbb/flow_graph.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

namespace convolume::bench {
namespace {

class OurGraph final : public TaskRunner {
 public:
  OurGraph(const TaskShape& shape, TaskBody body, int threads) : scheduler_(threads) {
    for (std::size_t i = 0; i < shape.tasks.size(); ++i) {
      const TaskDescription& task = shape.tasks[i];
      graph_.add(
          task.options, [body, id = static_cast<TaskId>(i)] { body(id); }, task.after);
    }
  }
  void run() override { graph_.run(scheduler_); }

 private:
  Scheduler scheduler_;
  TaskGraph graph_;
};

class FlowGraph final : public TaskRunner {
 public:
  FlowGraph(const TaskShape& shape, TaskBody body, int threads) : arena_(threads) {
    arena_.execute([&] {
      graph_ = std::make_unique<tbb::flow::graph>();
      for (std::size_t i = 0; i < shape.tasks.size(); ++i) {
        const auto id = static_cast<TaskId>(i);
        nodes_.emplace_back(*graph_, [body, id](const tbb::flow::continue_msg&) { body(id); });
        for (const TaskId before : shape.tasks[i].after) {
          tbb::flow::make_edge(nodes_[static_cast<std::size_t>(before)], nodes_.back());
        }
        if (shape.tasks[i].after.empty()) sources_.push_back(&nodes_.back());
      }
    });
  }
  void run() override {
    arena_.execute([&] {
      for (Node* node : sources_) node->try_put(tbb::flow::continue_msg());
      graph_->wait_for_all();
    });
  }

 private:
  using Node = tbb::flow::continue_node<tbb::flow::continue_msg>;
  tbb::task_arena arena_;
  std::unique_ptr<tbb::flow::graph> graph_;
  std::deque<Node> nodes_;  // a deque, because a node must not move
  std::vector<Node*> sources_;
};

class TaskGroup final : public TaskRunner {
 public:
  TaskGroup(const TaskShape& shape, TaskBody body, int threads)
      : body_(body), arena_(threads), nodes_(shape.tasks.size()) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i].predecessors = static_cast<int>(shape.tasks[i].after.size());
      for (const TaskId before : shape.tasks[i].after) {
        nodes_[static_cast<std::size_t>(before)].successors.push_back(static_cast<TaskId>(i));
      }
    }
  }
  void run() override {
    arena_.execute([&] {
      for (Node& node : nodes_) node.pending.store(node.predecessors, std::memory_order_relaxed);
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i].predecessors == 0) start(static_cast<TaskId>(i));
      }
      group_->wait();
    });
  }

 private:
  struct Node {
    int predecessors = 0;
    std::vector<TaskId> successors;
    std::atomic<int> pending{0};
  };

  void start(TaskId id) {
    group_->run([this, id] { work(id); });
  }

  void work(TaskId id) {
    constexpr TaskId none = -1;
    while (id != none) {
      body_(id);
      TaskId next = none;
      for (const TaskId after : nodes_[static_cast<std::size_t>(id)].successors) {
        // acq_rel: the last predecessor passes on what all predecessors wrote.
        if (nodes_[static_cast<std::size_t>(after)].pending.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
        next == none ? void(next = after) : start(after);
      }
      id = next;
    }
  }

  TaskBody body_;
  tbb::task_arena arena_;
  std::unique_ptr<tbb::task_group> group_ =
      std::make_unique<tbb::task_group>();  // a pointer, because its destructor may throw
  std::vector<Node> nodes_;
};

/// Makes threads for each level of the graph, and joins them before the next one. Tasks of a level do not depend on
/// each other. A level of one task needs no threads.
class JoinedThreads final : public TaskRunner {
 public:
  JoinedThreads(const TaskShape& shape, TaskBody body, int threads) : body_(body), threads_(threads) {
    const std::vector<int> levels = shape.levels();
    for (std::size_t i = 0; i < levels.size(); ++i) {
      const auto level = static_cast<std::size_t>(levels[i]);
      if (level >= tasks_.size()) tasks_.resize(level + 1);
      tasks_[level].push_back(static_cast<TaskId>(i));
    }
  }
  void run() override {
    for (const std::vector<TaskId>& tasks : tasks_) {
      const std::size_t threads = std::min(static_cast<std::size_t>(threads_), tasks.size());
      const auto work = [&](std::size_t thread) {
        for (std::size_t i = thread; i < tasks.size(); i += threads) body_(tasks[i]);
      };
      std::vector<std::thread> others;
      for (std::size_t thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
      work(0);
      for (std::thread& other : others) other.join();
    }
  }

 private:
  TaskBody body_;
  int threads_;
  std::vector<std::vector<TaskId>> tasks_;  // of each level
};

template <class Runner>
RunnerKind kind(const char* name) {
  return {name, [](const TaskShape& shape, TaskBody body, int threads) -> std::unique_ptr<TaskRunner> {
            return std::make_unique<Runner>(shape, body, threads);
          }};
}

}  // namespace

const std::vector<RunnerKind>& runner_kinds() {
  static const std::vector<RunnerKind> kinds{kind<OurGraph>("convolume"), kind<FlowGraph>("flow_graph"),
                                             kind<TaskGroup>("task_group"), kind<JoinedThreads>("join_levels")};
  return kinds;
}

}  // namespace convolume::bench
