#include "convolume/scheduler.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <sched.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/version.h>
#include <unistd.h>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"
#include "core/fork.hpp"
#include "core/processors.hpp"
#include "scheduler/helper_threads.hpp"
#include "scheduler/workers.hpp"

namespace convolume {
namespace {

/// Lets the calling thread and the main thread use all processors of the process, for the lifetime of this object.
class OnAllProcessors {
 public:
  OnAllProcessors() {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (const int processor : process_processors()) CPU_SET(static_cast<unsigned>(processor), &all);
    for (Thread& thread : threads_) {
      cpu_set_t wanted;
      if (::sched_getaffinity(thread.number, sizeof thread.before, &thread.before) != 0) continue;
      CPU_OR(&wanted, &all, &thread.before);
      if (CPU_EQUAL(&wanted, &thread.before)) continue;
      thread.changed = ::sched_setaffinity(thread.number, sizeof wanted, &wanted) == 0;
    }
  }
  ~OnAllProcessors() {
    for (const Thread& thread : threads_) {
      if (thread.changed) ::sched_setaffinity(thread.number, sizeof thread.before, &thread.before);
    }
  }
  OnAllProcessors(const OnAllProcessors&) = delete;
  OnAllProcessors& operator=(const OnAllProcessors&) = delete;

 private:
  struct Thread {
    pid_t number;
    cpu_set_t before{};
    bool changed = false;
  };
  std::array<Thread, 2> threads_{{{.number = ::gettid()}, {.number = ::getpid()}}};
};

/// The arenas, one for each number of threads, shared by all schedulers until the process ends. An arena must
/// outlive its schedulers: it may not send requested helpers before a scheduler ends, and the invitations that still
/// wait in it would never be freed. TBB never runs more threads than its global limit, which starts at the number of
/// CPUs. So the limit is raised for the largest arena.
class Arenas {
 public:
  static Arenas& instance() {
    static auto& arenas = *new Arenas;  // never destroyed: static schedulers may outlive it
    return arenas;
  }
  scheduler::HelperArena& of(int threads) {
    const std::lock_guard lock(mutex_);
    raise_limit(threads);
    const auto [at, made] = arenas_.try_emplace(threads, threads);
    if (made) scheduler::HelperThreads::instance().expect(threads);
    return at->second;
  }

 private:
  /// TBB reads the affinity mask of the main thread when it is first used, and gives it to all threads that it starts.
  /// That thread may be bound to one processor.
  Arenas() {
    note_helper_library();
    const OnAllProcessors everywhere;
    limit_ = tbb::info::default_concurrency();
  }

  void raise_limit(int threads) {
    if (threads <= limit_) return;
    // TBB takes the minimum of all controls, so only one may exist.
    control_ = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism,
                                                     static_cast<std::size_t>(threads));
    limit_ = threads;
  }

  std::mutex mutex_;
  std::map<int, scheduler::HelperArena> arenas_;
  int limit_;
  std::unique_ptr<tbb::global_control> control_;
};

int checked_threads(int threads) {
  constexpr int most = Scheduler::Impl::most_threads;
  if (threads < 1 || threads > most) {
    throw InvalidArgument(fmt::format("scheduler: {} threads requested; use 1 to {}", threads, most));
  }
  return threads;
}

/// Checks that the system can start `count` threads. TBB starts most of its threads from its own threads. If the system
/// refuses one there, nobody can catch the exception, and the process ends. So the first scheduler with this many
/// threads tries first.
void try_threads(int count) {
  static std::mutex mutex;
  static int proven = 0;
  const std::lock_guard lock(mutex);
  if (count <= proven) return;
  std::atomic<bool> end{false};
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  const auto join = [&] {
    end = true;
    end.notify_all();
    for (std::thread& thread : threads) thread.join();
  };
  try {
    while (static_cast<int>(threads.size()) < count) threads.emplace_back([&] { end.wait(false); });
  } catch (const std::system_error& error) {
    join();
    throw Unsupported(
        fmt::format("scheduler: {} threads requested, but the system starts only {} besides the caller ({}); "
                    "request fewer, or raise the limit (ulimit -u, pids.max of the cgroup)",
                    count + 1, threads.size(), error.what()));
  } catch (...) {
    join();  // there is no memory for another thread
    throw;
  }
  join();
  proven = count;
}

/// Returns how many turns of waiting take so many microseconds, on Zen 4, where a turn takes about 25 ns. If threads
/// share CPUs, they do not wait, because waiting would keep others from working.
int turns_of(int microseconds, int threads) {
  return threads > 1 && threads <= available_cpus() ? 40 * microseconds : 0;
}

/// How long an idle worker of a run waits, in microseconds. This is longer than TBB takes to wake one of its workers.
constexpr int patience_us = 50;

int checked_linger(int linger_us) {
  constexpr int most = 1'000'000;
  if (linger_us >= 0 && linger_us <= most) return linger_us;
  throw InvalidArgument(fmt::format("SchedulerOptions.linger_us: {}; use 0 to {} microseconds", linger_us, most));
}

}  // namespace

Scheduler::Impl::Impl(int thread_count, const SchedulerOptions& scheduler_options)
    : threads(checked_threads(thread_count)),
      options(scheduler_options),
      patience(turns_of(patience_us, threads)),
      linger(turns_of(checked_linger(options.linger_us), threads)) {
  if (threads == 1 || is_forked_child() || options.helpers != nullptr) return;
  process_processors(true);  // helper threads would count later
  try_threads(threads - 1);
  arena = &Arenas::instance().of(threads);
}

void Scheduler::Impl::note_worker(int place) noexcept {
  const auto index = static_cast<std::size_t>(place);
  worked[index / 64].fetch_or(std::uint64_t{1} << index % 64, std::memory_order_relaxed);
}

std::string tasking_version() { return fmt::format("oneTBB {}", TBB_runtime_version()); }

Scheduler::Scheduler(int threads, const SchedulerOptions& options) : impl_(std::make_unique<Impl>(threads, options)) {}
Scheduler::~Scheduler() = default;
Scheduler::Scheduler(Scheduler&&) noexcept = default;
Scheduler& Scheduler::operator=(Scheduler&&) noexcept = default;

int Scheduler::threads() const noexcept { return impl_ ? impl_->threads : 0; }

void Scheduler::record(Trace* trace) noexcept { impl_->trace = trace; }

int Scheduler::distinct_workers() const {
  if (!impl_) return 0;
  int count = 0;
  for (const auto& places : impl_->worked) count += std::popcount(places.load(std::memory_order_relaxed));
  return count;
}

}  // namespace convolume
