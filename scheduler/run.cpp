#include "scheduler/run.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/fp_environment.hpp"
#include "scheduler/helper_threads.hpp"

namespace convolume::scheduler {
namespace {

/// Returns the scratch of the tasks by rank, or an empty vector if there is no budget.
std::vector<std::size_t> scratch_of(const TaskGraph::Impl& graph, const SchedulerOptions& options) {
  std::vector<std::size_t> scratch;
  if (options.scratch_budget == 0) return scratch;
  scratch.reserve(graph.step_count());
  for (std::size_t rank = 0; rank < graph.step_count(); ++rank) {
    const TaskId task = graph.steps[rank].task;
    scratch.push_back(task == no_task ? 0 : graph.nodes[static_cast<std::size_t>(task)].options.scratch_bytes);
  }
  return scratch;
}

}  // namespace

Run::Run(TaskGraph::Impl& graph, Scheduler::Impl& workers)
    : graph_(graph),
      workers_(workers),
      pending_(graph.step_count()),
      ready_(graph.step_count(), scratch_of(graph, workers.options), workers.options.scratch_budget) {}

RunResult Run::execute(std::stop_token stop) {
  if (pending_.empty()) return RunResult::completed;
  begin(std::move(stop));
  work(Role::caller, 0);
  end();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return skipped_.load(std::memory_order_relaxed) ? RunResult::cancelled : RunResult::completed;
}

void Run::begin(std::stop_token stop) {
  trace_ = workers_.trace == nullptr ? nullptr : &workers_.trace->impl();
  if (trace_ != nullptr) {
    graph_.trace_labels();
    const std::lock_guard lock(fork_lock(ForkLock::traces));
    traced_run_ = trace_->runs++;
  }
  stop_ = std::move(stop);
  // relaxed, and without the lock: no helper reads these before over_ is false, and a helper that sees this has taken
  // the lock.
  cancelled_.store(false, std::memory_order_relaxed);
  skipped_.store(false, std::memory_order_relaxed);
  for (std::size_t rank = 0; rank < pending_.size(); ++rank) {
    const std::int32_t count = graph_.steps[rank].predecessors;
    pending_[rank].store(count, std::memory_order_relaxed);
    if (count == 0) ready_.insert(static_cast<std::int32_t>(rank));
  }
  Call call;
  {
    const std::lock_guard lock(lock_);
    first_ready_.store(ready_.first(), std::memory_order_relaxed);
    active_ = 1;  // the caller: it has no task yet, but takes one next
    over_ = false;
    can_invite_ = pool_ != nullptr || (workers_.arena != nullptr && !in_child_);
    pool_wanted_ = pool_came_ = false;
    call = call_workers(1);
  }
  make(call);
}

/// Waits until all helpers that entered have handed over their trace records. No helper can enter any more.
void Run::end() noexcept {
  // acquire: sees everything that the helpers did until they left.
  for (int left; (left = present_.load(std::memory_order_acquire)) != 0;) {
    present_.wait(left, std::memory_order_acquire);
  }
  if (!in_child_ && workers_.changes_masks()) HelperThreads::instance().let_go(this);
  stop_ = {};
}

void Run::work(Role role, int place) noexcept {
  const DefaultFpEnvironment environment;
  workers_.note_worker(place);
  TraceStretch stretch(trace_, graph_.labels, traced_run_);
  Worker me{.role = role, .place = std::clamp(place, 0, workers_.threads - 1)};
  work_on(take(me), me, stretch);
}

/// Runs this task, and those that the worker takes after it.
void Run::work_on(std::int32_t rank, Worker& me, TraceStretch& stretch) noexcept {
  while (rank != none) {
    if (me.role == Role::caller && pool_wanted_) return work_with_pool(rank, me, stretch);
    run_step(rank, stretch);
    rank = pass_on(rank, me);
    if (rank == none) rank = take(me);
  }
}

/// Does the rest of the run together with the helpers of the pool.
void Run::work_with_pool(std::int32_t rank, Worker& me, TraceStretch& stretch) noexcept {
  pool_wanted_ = false;
  pool_came_ = true;
  struct Rest {
    Run& run;
    std::int32_t rank;
    Worker& me;
    TraceStretch& stretch;
  } rest{*this, rank, me, stretch};
  // One pointer, so that no memory is allocated.
  pool_->together(workers_.threads, [&rest](int place) {
    if (place == 0) {
      rest.run.work_on(rest.rank, rest.me, rest.stretch);
    } else {
      rest.run.help_in(place);
    }
  });
}

void Run::help() noexcept { help_in(tbb::this_task_arena::current_thread_index()); }

void Run::help_in(int place) noexcept {
  if (!enter()) return;
  work(Role::helper, place);
  leave();
}

bool Run::enter() noexcept {
  const std::lock_guard lock(lock_);
  invited_ = std::max(0, invited_ - 1);
  if (over_ || active_ == workers_.threads) return false;
  ++active_;
  // relaxed: the caller cannot leave before it has seen, under the lock, that this helper is no longer active.
  present_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Run::leave() noexcept {
  // release: the caller sees everything that this helper did.
  if (present_.fetch_sub(1, std::memory_order_release) == 1) present_.notify_one();
}

void Run::run_step(std::int32_t rank, TraceStretch& stretch) noexcept {
  const Step& step = graph_.steps[static_cast<std::size_t>(rank)];
  if (step.task == no_task) return;
  if (!stretch.on()) {
    execute_body(step);
    return;
  }
  const std::int64_t begin = trace_clock();
  if (execute_body(step)) stretch.add(step.task, begin, trace_clock());
}

/// Runs the task, or skips it if the run is cancelled. Returns whether the task ran.
bool Run::execute_body(const Step& step) noexcept {
  if (step.task_class == TaskClass::normal) {
    // relaxed: a cancelled run may still start any tasks; the caller sees what they wrote at the end of the run.
    if (stop_.stop_requested()) cancelled_.store(true, std::memory_order_relaxed);
    if (cancelled_.load(std::memory_order_relaxed)) {
      skipped_.store(true, std::memory_order_relaxed);
      return false;
    }
  }
  try {
    graph_.bodies[static_cast<std::size_t>(step.task)]();
  } catch (...) {
    std::exception_ptr error = std::current_exception();
    cancelled_.store(true, std::memory_order_relaxed);
    const std::lock_guard lock(lock_);
    if (!error_) error_.swap(error);
  }
  return true;
}

/// Decrements the dependency counts of the successors of a task that has ended. Returns the task that the calling
/// worker runs next, or `none` if the worker must take one.
std::int32_t Run::pass_on(std::int32_t rank, Worker& me) noexcept {
  const Step* step = &graph_.steps[static_cast<std::size_t>(rank)];
  for (std::int32_t i = step[0].first_successor; i < step[1].first_successor; ++i) {
    const std::int32_t after = graph_.successors[static_cast<std::size_t>(i)];
    // acq_rel: the last predecessor sees the writes of all other predecessors, and passes them on to the successor.
    if (pending_[static_cast<std::size_t>(after)].fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    if (me.woken_count == me.woken.size()) publish(me);
    me.woken[me.woken_count++] = after;
  }
  ++me.ran;
  return next_of(me);
}

std::int32_t Run::next_of(Worker& me) noexcept {
  // relaxed, here and below: a worker may see changes by other workers a little later.
  if (me.next < me.count) {
    const bool share = hungry_.load(std::memory_order_relaxed) > 0;
    if (!share) return me.tasks[me.next++];
    publish(me);
    return none;
  }
  if (me.holding != none) return exchange(me);
  if (me.woken_count == 0) return none;
  if (me.woken_count == 1 && me.woken[0] < first_ready_.load(std::memory_order_relaxed) && !ready_.holds(me.woken[0])) {
    me.woken_count = 0;
    return me.woken[0];
  }
  return exchange(me);
}

/// Adds the tasks that the worker has made ready. The caller holds the lock.
void Run::insert_woken(Worker& me) noexcept {
  for (std::size_t i = 0; i < me.woken_count; ++i) ready_.insert(me.woken[i]);
  me.woken_count = 0;
}

/// Adds the tasks that the worker has made ready, gives back the scratch of its last task, and takes the first ready
/// task.
std::int32_t Run::exchange(Worker& me) noexcept {
  measure(me);
  std::int32_t first;
  Call call;
  {
    const std::lock_guard lock(lock_);
    insert_woken(me);
    if (me.holding != none) ready_.ended(std::exchange(me.holding, none));
    first = take_some(me);
    call = call_workers(0);
  }
  make(call);
  return first;
}

/// Adds all tasks that the worker has, except the one that runs, to the ready set.
void Run::publish(Worker& me) noexcept {
  Call call;
  {
    const std::lock_guard lock(lock_);
    insert_woken(me);
    for (; me.next < me.count; ++me.next) ready_.insert(me.tasks[me.next]);
    first_ready_.store(ready_.first(), std::memory_order_relaxed);
    call = call_workers(0);
  }
  make(call);
}

/// Measures how long tasks have taken lately. This decides how many tasks the worker takes at once.
void Run::measure(Worker& me) noexcept {
  constexpr int enough = 16;
  constexpr std::int64_t short_task = 1000;  // nanoseconds, including the time between two tasks
  if (me.ran < enough) return;
  const std::int64_t now = trace_clock();
  me.together = me.since != 0 && now - me.since < short_task * me.ran ? Worker::most : 1;
  me.since = now;
  me.ran = 0;
}

/// Returns the task that a worker takes next, or `none`: one of the most urgent ready tasks. If there are several, the
/// worker prefers those in its own share of them. A layer computes its results in order, so each worker then reads and
/// writes the same part of the tensors in each layer and in each run, and finds it in its own caches. The caller holds
/// the lock.
std::int32_t Run::first_for(const Worker& me) const noexcept {
  const std::int32_t first = ready_.first();
  if (first == none || me.place == 0 || ready_.holds(first)) return first;
  const Step& step = graph_.steps[static_cast<std::size_t>(first)];
  const std::int64_t equal = step.last_equal - step.first_equal;
  const auto own = static_cast<std::int32_t>(step.first_equal + equal * me.place / workers_.threads);
  if (own <= first) return first;
  const std::int32_t preferred = ready_.first_free_from(own);
  return preferred < step.last_equal ? preferred : first;
}

/// Takes the next task. If tasks are short and there are many, it also takes some that follow. The caller holds the
/// lock.
std::int32_t Run::take_some(Worker& me) noexcept {
  const std::int32_t first = first_for(me);
  me.next = me.count = 0;
  if (first != none) {
    ready_.erase(first);
    if (ready_.holds(first)) me.holding = first;
    const std::size_t fair = ready_.size() / static_cast<std::size_t>(2 * workers_.threads);
    const std::size_t more = idle_ > 0 || me.holding != none ? 0 : std::min(me.together - 1, fair);
    for (; me.count < more; ++me.count) {
      const std::int32_t next = first_for(me);
      if (ready_.holds(next)) break;
      me.tasks[me.count] = next;
      ready_.erase(next);
    }
  }
  // relaxed: a hint for workers that read it without the lock.
  first_ready_.store(ready_.first(), std::memory_order_relaxed);
  return first;
}

/// Returns the next task; waits for it for a while. Returns `none` if the worker's part in the run is over.
std::int32_t Run::take(Worker& me) noexcept {
  measure(me);
  std::unique_lock lock(lock_);
  std::int32_t rank = take_some(me);
  if (rank != none) return rank;
  hungry_.store(++idle_, std::memory_order_relaxed);
  for (int patience = workers_.patience; !out_of_work();) {
    if (patience > 0) {
      ++spinning_;
      lock.unlock();
      patience = spin(patience);
      lock.lock();
      --spinning_;
    } else if (me.role == Role::helper) {
      if (pool_ == nullptr) break;
      sleep_until_bell(lock);
      patience = workers_.patience;
    } else {
      caller_sleeps_ = true;
      lock.unlock();
      sleep();
      lock.lock();
      patience = workers_.patience;
    }
    rank = take_some(me);
    if (rank != none) {
      hungry_.store(--idle_, std::memory_order_relaxed);
      return rank;
    }
  }
  hungry_.store(--idle_, std::memory_order_relaxed);
  --active_;
  const Call call{.caller = over_ && std::exchange(caller_sleeps_, false),
                  .helpers = over_ ? std::exchange(sleeping_, 0) : 0};
  lock.unlock();
  make(call);
  return none;
}

/// Returns whether the run is over. The caller holds the lock, is idle and has found no task. The first worker that
/// sees that no other worker has a task ends the run.
bool Run::out_of_work() noexcept {
  if (over_) return true;
  if (idle_ < active_) return false;
  over_ = true;
  first_ready_.store(0, std::memory_order_relaxed);
  return true;
}

void Run::sleep() noexcept {
  // relaxed: the lock provides acquire and release; wake_up_ only decides when to wake.
  wake_up_.wait(0, std::memory_order_relaxed);
  wake_up_.store(0, std::memory_order_relaxed);
}

/// Lets a helper of the pool sleep until there is work, or the run is over. Takes the lock again.
void Run::sleep_until_bell(std::unique_lock<SpinLock>& lock) noexcept {
  ++sleeping_;
  // relaxed, here and in ring(): whoever has seen this sleeper under the lock rings after this load.
  const std::int32_t before = bell_.load(std::memory_order_relaxed);
  lock.unlock();
  bell_.wait(before, std::memory_order_relaxed);
  lock.lock();
}

void Run::ring() noexcept {
  bell_.fetch_add(1, std::memory_order_relaxed);
  bell_.notify_all();
}

/// Waits until a task is ready or `patience` turns have passed. Returns the turns that are left.
int Run::spin(int patience) const noexcept {
  while (patience > 0 && first_ready_.load(std::memory_order_relaxed) == none) {
    spin_pause();
    --patience;
  }
  return patience;
}

/// Returns which workers must be woken for the tasks in the ready set. The calling worker takes `own` of these tasks
/// itself. The caller holds the lock.
Run::Call Run::call_workers(int own) noexcept {
  Call call;
  int wanted = static_cast<int>(std::min<std::size_t>(ready_.size(), static_cast<std::size_t>(workers_.threads)));
  wanted -= own + spinning_;
  if (wanted <= 0) return call;
  if (caller_sleeps_) {
    caller_sleeps_ = false;
    call.caller = true;
    --wanted;
  }
  wanted -= pool_ == nullptr ? invited_ : 0;  // helpers come second, because the caller is certain to come
  if (!can_invite_ || wanted <= 0) return call;
  if (pool_ != nullptr) {
    // All that sleep wake up, and count no longer as sleeping.
    call.helpers = pool_came_ ? std::exchange(sleeping_, 0) : wanted;
    return call;
  }
  call.helpers = std::clamp(wanted, 0, std::max(0, workers_.threads - active_ - invited_));
  invited_ += call.helpers;
  return call;
}

void Run::make(Call call) noexcept {
  if (call.caller) {
    wake_up_.store(1, std::memory_order_relaxed);  // relaxed: see sleep()
    wake_up_.notify_one();
  }
  if (call.helpers == 0) return;
  if (pool_ == nullptr) {
    invite(call.helpers);
  } else if (pool_came_) {
    ring();
  } else {
    pool_wanted_ = true;
  }
}

/// Invites helpers. If there is no memory or no thread for them, the run continues with the workers that it has. (TBB
/// does not ask again for a thread that the system has refused.)
void Run::invite(int helpers) noexcept {
  int sent = 0;
  try {
    for (; sent < helpers; ++sent)
      workers_.arena->invite(shared_from_this(), workers_.linger, workers_.changes_masks());
  } catch (...) {
    const std::lock_guard lock(lock_);
    can_invite_ = false;
    invited_ = std::max(0, invited_ - (helpers - sent));
  }
}

}  // namespace convolume::scheduler
