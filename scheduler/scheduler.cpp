#include "convolume/scheduler.hpp"

#include <memory>
#include <new>

#include <fmt/format.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/version.h>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"
#include "scheduler/tsan.hpp"
#include "scheduler/workers.hpp"

namespace convolume {
namespace {

/// TBB never runs more threads than its global limit, which starts at the number of processors. A scheduler that asks
/// for more raises it; the largest request alive wins. (TBB itself takes the minimum of all controls, so only one may
/// exist.)
class ParallelismLimit {
 public:
  static ParallelismLimit& instance() {
    static auto& limit = *new ParallelismLimit;  // never destroyed: schedulers of static lifetime may outlive it
    return limit;
  }
  void add(int threads) {
    const std::lock_guard lock(mutex_);
    requests_.insert(threads);
    apply();
  }
  void remove(int threads) {
    const std::lock_guard lock(mutex_);
    requests_.erase(requests_.find(threads));
    apply();
  }

 private:
  void apply() {
    const int wanted = requests_.empty() ? 0 : *requests_.rbegin();
    if (wanted == applied_) return;
    control_.reset();
    applied_ = wanted;
    if (wanted > tbb::info::default_concurrency()) {
      control_ = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism,
                                                       static_cast<std::size_t>(wanted));
    }
  }

  std::mutex mutex_;
  std::multiset<int> requests_;
  int applied_ = 0;
  std::unique_ptr<tbb::global_control> control_;
};

int checked_threads(int threads) {
  constexpr int most = 1024;
  if (threads < 1 || threads > most) {
    throw InvalidArgument(fmt::format("scheduler: {} threads asked, 1 to {} are possible", threads, most));
  }
  return threads;
}

/// About 50 us on Zen 4, where a turn takes 27 ns: longer than TBB takes to bring back a worker that it has put to
/// sleep. Where threads share processors, waiting keeps others from working.
int patience_of(int threads) { return threads <= available_cpus() ? 2000 : 0; }

}  // namespace

Scheduler::Impl::Impl(int thread_count)
    : threads(checked_threads(thread_count)),
      patience(patience_of(threads)),
      arena(std::make_unique<tbb::task_arena>(threads)) {
  ParallelismLimit::instance().add(threads);
}

Scheduler::Impl::~Impl() {
  ParallelismLimit::instance().remove(threads);
#ifdef CONVOLUME_TSAN
  // The last worker that leaves an arena frees what others of TBB's threads have read, and none of them runs our code
  // in between, where an annotation could say that this is in order. Under TSan arenas stay.
  static_cast<void>(arena.release());
#endif
}

void Scheduler::Impl::note_worker() noexcept {
  const std::lock_guard lock(mutex);
  try {
    workers.insert(std::this_thread::get_id());
  } catch (const std::bad_alloc&) {
    // Not worth the run; the thread is counted the next time that it comes.
  }
}

std::string tasking_version() { return fmt::format("oneTBB {}", TBB_runtime_version()); }

Scheduler::Scheduler(int threads) : impl_(std::make_unique<Impl>(threads)) {}
Scheduler::~Scheduler() = default;
Scheduler::Scheduler(Scheduler&&) noexcept = default;
Scheduler& Scheduler::operator=(Scheduler&&) noexcept = default;

int Scheduler::threads() const noexcept { return impl_ ? impl_->threads : 0; }

void Scheduler::record(Trace* trace) noexcept { impl_->trace = trace; }

int Scheduler::distinct_workers() const {
  if (!impl_) return 0;
  const std::lock_guard lock(impl_->mutex);
  return static_cast<int>(impl_->workers.size());
}

}  // namespace convolume
