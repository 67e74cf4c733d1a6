#include "scheduler/task_graph.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "core/sanitizers.hpp"
#include "scheduler/run.hpp"

#if CONVOLUME_ADDRESS_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif

namespace convolume {

const char* name_of(TaskClass task_class) noexcept {
  switch (task_class) {
    case TaskClass::release:
      return "release";
    case TaskClass::normal:
      return "normal";
    case TaskClass::update:
      return "update";
  }
  return "unknown";
}

std::vector<scheduler::Urgency> TaskGraph::Impl::urgencies() const {
  std::vector<scheduler::Urgency> all;
  all.reserve(nodes.size());
  for (const Node& node : nodes) all.push_back(scheduler::last_urgency(node.options.task_class, node.options.cost));
  // Tasks are added after their predecessors, so descending ids are a reverse topological order.
  for (std::size_t id = nodes.size(); id-- > 0;) {
    for (const TaskId before : nodes[id].predecessors) all[static_cast<std::size_t>(before)].lengthen(all[id].path);
  }
  return all;
}

namespace {

using Predecessors = std::vector<TaskId>;

/// What each step waits for: first all tasks, then joins. Often several tasks wait for the same long list, for example
/// the rows of a layer for all channels of the layer before. They then wait for one step that joins the list.
struct Dependencies {
  std::vector<Predecessors> joined;        ///< a list for each join that holds only this join
  std::vector<const Predecessors*> after;  ///< of each task, and then of each join
};

/// Returns the dependencies, and lengthens `urgency` by the joins. A join runs as soon as it can, like a task that
/// releases memory.
Dependencies join_long_lists(const std::vector<TaskGraph::Impl::Node>& nodes,
                             std::vector<scheduler::Urgency>& urgency) {
  constexpr std::size_t long_list = 16;  // shorter ones cost less than another step
  const auto less = [](const Predecessors* a, const Predecessors* b) { return *a < *b; };
  std::map<const Predecessors*, std::vector<std::size_t>, decltype(less)> users(less);
  Dependencies dependencies;
  for (std::size_t id = 0; id < nodes.size(); ++id) {
    const Predecessors& list = nodes[id].predecessors;
    dependencies.after.push_back(&list);
    if (list.size() >= long_list) users[&list].push_back(id);
  }
  std::erase_if(users, [](const auto& entry) { return entry.second.size() == 1; });
  dependencies.joined.reserve(users.size());
  for (const auto& [list, tasks] : users) {
    dependencies.joined.push_back({static_cast<TaskId>(dependencies.after.size())});
    scheduler::Urgency join{.task_class = TaskClass::release};
    for (const std::size_t id : tasks) {
      dependencies.after[id] = &dependencies.joined.back();
      join.lengthen(urgency[id].path);
    }
    dependencies.after.push_back(list);
    urgency.push_back(join);
  }
  return dependencies;
}

}  // namespace

void TaskGraph::Impl::prepare() {
  if (prepared) return;
  run.reset();
  std::vector<scheduler::Urgency> urgency = urgencies();
  const Dependencies dependencies = join_long_lists(nodes, urgency);
  const std::size_t count = dependencies.after.size();
  std::vector<TaskId> by_rank(count);
  for (std::size_t id = 0; id < count; ++id) by_rank[id] = static_cast<TaskId>(id);
  std::stable_sort(by_rank.begin(), by_rank.end(), [&](TaskId a, TaskId b) {
    return urgency[static_cast<std::size_t>(a)] > urgency[static_cast<std::size_t>(b)];
  });
  std::vector<std::int32_t> successor_count(count + 1, 0), rank_of(count);
  for (std::size_t rank = 0; rank < count; ++rank) {
    rank_of[static_cast<std::size_t>(by_rank[rank])] = static_cast<std::int32_t>(rank);
  }
  for (const Predecessors* after : dependencies.after) {
    for (const TaskId before : *after) {
      ++successor_count[static_cast<std::size_t>(rank_of[static_cast<std::size_t>(before)])];
    }
  }
  steps.assign(count + 1, {});
  std::int64_t edges = 0;
  for (std::size_t rank = 0; rank <= count; ++rank) {
    steps[rank].first_successor = static_cast<std::int32_t>(edges);
    edges += std::exchange(successor_count[rank], 0);
    if (edges > std::numeric_limits<std::int32_t>::max()) {
      throw OverflowError(fmt::format("task graph: {} tasks have more than {} dependencies; add tasks that join others",
                                      nodes.size(), std::numeric_limits<std::int32_t>::max()));
    }
    if (rank == count) break;
    const auto id = static_cast<std::size_t>(by_rank[rank]);
    steps[rank].task = id < nodes.size() ? by_rank[rank] : scheduler::no_task;
    steps[rank].predecessors = static_cast<std::int32_t>(dependencies.after[id]->size());
    steps[rank].task_class = urgency[id].task_class;
  }
  for (std::size_t begin = 0, end = 0; begin < count; begin = end) {
    const scheduler::Urgency& first = urgency[static_cast<std::size_t>(by_rank[begin])];
    while (end < count && !(first > urgency[static_cast<std::size_t>(by_rank[end])])) ++end;
    for (std::size_t rank = begin; rank < end; ++rank) {
      steps[rank].first_equal = static_cast<std::int32_t>(begin);
      steps[rank].last_equal = static_cast<std::int32_t>(end);
    }
  }
  successors.resize(static_cast<std::size_t>(edges));
  // Visit successors by ascending rank, so that each list is ascending.
  for (std::size_t rank = 0; rank < count; ++rank) {
    for (const TaskId before : *dependencies.after[static_cast<std::size_t>(by_rank[rank])]) {
      const auto from = static_cast<std::size_t>(rank_of[static_cast<std::size_t>(before)]);
      const std::int32_t at = steps[from].first_successor + successor_count[from]++;
      successors[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(rank);
    }
  }
  prepared = true;
}

const scheduler::SharedLabels& TaskGraph::Impl::trace_labels() {
  if (labels) return labels;
  std::vector<scheduler::TaskLabel> made;
  made.reserve(nodes.size());
  for (const Node& node : nodes) {
    made.push_back({node.options.name, node.layer, node.options.bytes, node.options.task_class, node.predecessors});
  }
  labels = std::make_shared<const std::vector<scheduler::TaskLabel>>(std::move(made));
  return labels;
}

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
  Impl::Node node{.options = std::move(options), .layer = impl_->layer, .predecessors = {}};
  node.predecessors.assign(after.begin(), after.end());
  std::sort(node.predecessors.begin(), node.predecessors.end());
  node.predecessors.erase(std::unique(node.predecessors.begin(), node.predecessors.end()), node.predecessors.end());
  impl_->bodies.resize(impl_->nodes.size());  // an earlier call that ran out of memory may have left a body
  impl_->bodies.push_back(std::move(body));
  impl_->nodes.push_back(std::move(node));
  impl_->prepared = false;
  impl_->labels.reset();
  return id;
}

std::string TaskGraph::set_layer(std::string layer) { return std::exchange(impl_->layer, std::move(layer)); }

std::size_t TaskGraph::size() const noexcept { return impl_->nodes.size(); }

std::vector<TaskDescription> TaskGraph::describe() const {
  std::vector<TaskDescription> tasks;
  tasks.reserve(impl_->nodes.size());
  for (const Impl::Node& node : impl_->nodes) tasks.push_back({node.options, node.layer, node.predecessors});
  return tasks;
}

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

namespace {

/// Marks a graph as running for its lifetime. Throws InvalidArgument if the graph is already running.
class Running {
 public:
  explicit Running(std::atomic<bool>& flag) : flag_(flag) {
    // acquire: sees what the last run did, perhaps in another thread.
    if (!flag_.exchange(true, std::memory_order_acquire)) return;
    throw InvalidArgument(
        "task graph: run() was called while the graph is running, in another thread or in one of its own tasks; build "
        "one graph for each run");
  }
  ~Running() { flag_.store(false, std::memory_order_release); }  // release: see the constructor
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace

RunResult TaskGraph::run(Scheduler& scheduler, std::stop_token stop) {
  const Running running(impl_->running);
  impl_->prepare();
  if (!impl_->run || !impl_->run->is_for(scheduler.impl())) {
    impl_->run = std::make_shared<scheduler::Run>(*impl_, scheduler.impl());
#if CONVOLUME_ADDRESS_SANITIZER
    // If the process ends with unread invitations, these are in TBB's memory. LeakSanitizer does not search that memory
    // for owners.
    __lsan_ignore_object(impl_->run.get());
#endif
  }
  return impl_->run->execute(std::move(stop));
}

}  // namespace convolume
