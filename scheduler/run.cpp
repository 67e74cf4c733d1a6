#include "scheduler/run.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/fp_environment.hpp"
#include "scheduler/helper_threads.hpp"
#include "scheduler/tsan.hpp"

namespace convolume::scheduler {
namespace {

/// By rank; none where nobody counts.
std::vector<std::size_t> scratch_of(const TaskGraph::Impl& graph, const SchedulerOptions& options) {
  std::vector<std::size_t> scratch;
  if (options.scratch_budget == 0) return scratch;
  scratch.reserve(graph.nodes.size());
  for (std::size_t rank = 0; rank < graph.nodes.size(); ++rank) {
    scratch.push_back(graph.nodes[static_cast<std::size_t>(graph.steps[rank].task)].options.scratch_bytes);
  }
  return scratch;
}

}  // namespace

Run::Run(TaskGraph::Impl& graph, Scheduler::Impl& workers)
    : graph_(graph),
      workers_(workers),
      pending_(graph.nodes.size()),
      ready_(graph.nodes.size(), scratch_of(graph, workers.options), workers.options.scratch_budget) {}

RunResult Run::execute(std::stop_token stop) {
  if (pending_.empty()) return RunResult::completed;
  begin(std::move(stop));
  work(Role::caller);
  end();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return skipped_.load(std::memory_order_relaxed) ? RunResult::cancelled : RunResult::completed;
}

void Run::begin(std::stop_token stop) {
  trace_ = workers_.trace == nullptr ? nullptr : &workers_.trace->impl();
  if (trace_ != nullptr) {
    graph_.trace_labels();
    const std::lock_guard lock(trace_->mutex);
    traced_run_ = trace_->runs++;
  }
  stop_ = std::move(stop);
  // relaxed, and without the lock: nobody looks before over_ is false, and whoever does has taken the lock.
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
    active_ = 1;  // the caller, who has no task yet, but takes one next
    over_ = false;
    can_invite_ = true;
    call = call_workers(1);
  }
  make(call);
}

/// Nobody enters any more; waits until those who entered have handed in what they traced.
void Run::end() noexcept {
  // acquire: sees what the helpers did until they left.
  for (int left; (left = present_.load(std::memory_order_acquire)) != 0;) {
    present_.wait(left, std::memory_order_acquire);
  }
  if (workers_.arena != nullptr) HelperThreads::instance().let_go(this);
  stop_ = {};
}

void Run::work(Role role) noexcept {
  const DefaultFpEnvironment environment;
  workers_.note_worker(role == Role::caller ? 0 : tbb::this_task_arena::current_thread_index());
  TraceStretch stretch(trace_, graph_.labels, traced_run_);
  Worker me{.role = role};
  for (std::int32_t rank = take(me); rank != none;) {
    run_step(rank, stretch);
    rank = pass_on(rank, me);
    if (rank == none) rank = take(me);
  }
}

void Run::help() noexcept {
  if (!enter()) return;
  HelperThreads::instance().came();
  work(Role::helper);
  HelperThreads::instance().left();
  leave();
}

bool Run::enter() noexcept {
  const std::lock_guard lock(lock_);
  invited_ = std::max(0, invited_ - 1);
  if (over_ || active_ == workers_.threads) return false;
  ++active_;
  // relaxed: the caller can't leave before it has seen, under the lock, that this helper is no longer active.
  present_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Run::leave() noexcept {
  // release: the caller sees what this helper did.
  if (present_.fetch_sub(1, std::memory_order_release) == 1) present_.notify_one();
}

void Run::run_step(std::int32_t rank, TraceStretch& stretch) noexcept {
  const Step& step = graph_.steps[static_cast<std::size_t>(rank)];
  if (!stretch.on()) {
    execute_body(step);
    return;
  }
  const std::int64_t begin = trace_clock();
  if (execute_body(step)) stretch.add(step.task, begin, trace_clock());
}

/// Whether the task ran, rather than being skipped.
bool Run::execute_body(const Step& step) noexcept {
  if (step.task_class == TaskClass::normal) {
    // relaxed: which tasks a cancelled run still starts is nobody's concern; what they wrote is seen at its end.
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

/// Tells the successors of a task that has ended. Returns what the calling worker runs next, or none where it has to
/// look for itself.
std::int32_t Run::pass_on(std::int32_t rank, Worker& me) noexcept {
  const Step* step = &graph_.steps[static_cast<std::size_t>(rank)];
  for (std::int32_t i = step[0].first_successor; i < step[1].first_successor; ++i) {
    const std::int32_t after = graph_.successors[static_cast<std::size_t>(i)];
    // acq_rel: the last predecessor to arrive has seen the writes of all the others, and passes them on.
    if (pending_[static_cast<std::size_t>(after)].fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    if (me.woken_count == me.woken.size()) publish(me);
    me.woken[me.woken_count++] = after;
  }
  ++me.ran;
  return next_of(me);
}

std::int32_t Run::next_of(Worker& me) noexcept {
  // relaxed, here and below: what others add, take or lack in this moment may be seen a little later.
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

/// Under the lock.
void Run::insert_woken(Worker& me) noexcept {
  for (std::size_t i = 0; i < me.woken_count; ++i) ready_.insert(me.woken[i]);
  me.woken_count = 0;
}

/// Adds what the worker has made ready, gives back the scratch of its last task and takes the first one of all.
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

/// Adds all that the worker has, but the task that runs.
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

/// How long tasks have taken lately decides how many are taken at once.
void Run::measure(Worker& me) noexcept {
  constexpr int enough = 16;
  constexpr std::int64_t short_task = 1000;  // nanoseconds, what passes between two tasks included
  if (me.ran < enough) return;
  const std::int64_t now = trace_clock();
  me.together = me.since != 0 && now - me.since < short_task * me.ran ? Worker::most : 1;
  me.since = now;
  me.ran = 0;
}

/// Under the lock: the first task that is ready, and some that follow it where tasks are short and there are many.
std::int32_t Run::take_some(Worker& me) noexcept {
  const std::int32_t first = ready_.first();
  me.next = me.count = 0;
  if (first != none) {
    ready_.erase(first);
    if (ready_.holds(first)) me.holding = first;
    const std::size_t fair = ready_.size() / static_cast<std::size_t>(2 * workers_.threads);
    const std::size_t more = idle_ > 0 || me.holding != none ? 0 : std::min(me.together - 1, fair);
    for (; me.count < more && !ready_.holds(ready_.first()); ++me.count) {
      me.tasks[me.count] = ready_.first();
      ready_.erase(me.tasks[me.count]);
    }
  }
  // relaxed: a hint for those who read it without the lock.
  first_ready_.store(ready_.first(), std::memory_order_relaxed);
  return first;
}

/// The next task, waiting for it for a while; none where the worker's part in the run is over.
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
      break;
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
  const Call call{.caller = over_ && std::exchange(caller_sleeps_, false)};
  lock.unlock();
  make(call);
  return none;
}

/// Under the lock, by an idle worker that found nothing. The first one who sees that nobody else has a task ends the
/// run.
bool Run::out_of_work() noexcept {
  if (over_) return true;
  if (idle_ < active_) return false;
  over_ = true;
  first_ready_.store(0, std::memory_order_relaxed);
  return true;
}

void Run::sleep() noexcept {
  // acquire and release are the lock's; this is only about when.
  wake_up_.wait(0, std::memory_order_relaxed);
  wake_up_.store(0, std::memory_order_relaxed);
}

/// Returns what is left of `patience`, in turns, when there is something to see.
int Run::spin(int patience) const noexcept {
  while (patience > 0 && first_ready_.load(std::memory_order_relaxed) == none) {
    pause();
    --patience;
  }
  return patience;
}

/// Under the lock: whom the tasks in the ready set need, but `own` of them, which the asking worker takes.
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
  wanted -= invited_;  // behind the caller, who comes for certain
  if (!can_invite_) return call;
  call.helpers = std::clamp(wanted, 0, std::max(0, workers_.threads - active_ - invited_));
  invited_ += call.helpers;
  return call;
}

void Run::make(Call call) noexcept {
  if (call.caller) {
    wake_up_.store(1, std::memory_order_relaxed);  // relaxed: see sleep()
    wake_up_.notify_one();
  }
  if (call.helpers > 0) invite(call.helpers);
}

/// Without memory or a thread for them the run goes on with the workers that it has. (TBB does not ask again for a
/// thread that the system has refused.)
void Run::invite(int helpers) noexcept {
  HelperThreads::instance().keep_off_caller(this);
  int sent = 0;
  try {
    tsan_release(this);
    const TsanIgnore ignore;
    for (; sent < helpers; ++sent) {
      workers_.arena->enqueue([self = shared_from_this()] {
        const TsanWatch watch;
        tsan_acquire(self.get());
        self->help();
      });
    }
  } catch (...) {
    const std::lock_guard lock(lock_);
    can_invite_ = false;
    invited_ = std::max(0, invited_ - (helpers - sent));
  }
}

}  // namespace convolume::scheduler
