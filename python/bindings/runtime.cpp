#include "python/bindings/runtime.hpp"

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"

namespace convolume::python {
namespace {

constexpr int most_threads = 1024;

thread_local int threads_here = 0;

void require_threads(int threads) {
  if (threads >= 0 && threads <= most_threads) return;
  throw InvalidArgument("threads: " + std::to_string(threads) + " is not from 1 to " + std::to_string(most_threads) +
                        "; 0 means one per physical core");
}

/// Schedulers by number of threads. They are made once, and live until the process ends. There is no lock, because a
/// child of fork() may find any lock held.
using Schedulers = std::array<std::atomic<Scheduler*>, most_threads + 1>;
constinit Schedulers schedulers{}, team_schedulers{};

Scheduler& made_once(std::atomic<Scheduler*>& place, int threads, const SchedulerOptions& options) {
  Scheduler* there = place.load(std::memory_order_acquire);
  if (there != nullptr) return *there;
  auto made = std::make_unique<Scheduler>(threads, options);
  if (!place.compare_exchange_strong(there, made.get(), std::memory_order_acq_rel)) return *there;
  return *made.release();
}

std::atomic<int> running{0};
std::atomic<bool> closed{false};

}  // namespace

Computation::Computation() {
  if (closed.load()) throw std::runtime_error("convolume computes nothing any more: the interpreter is ending");
  running.fetch_add(1);
  released_.emplace();
}

Computation::~Computation() {
  released_.reset();
  if (running.fetch_sub(1) == 1) running.notify_all();
}

void Computation::forget() noexcept { running.store(0); }

bool Computation::refused() noexcept { return closed.load(); }

void Computation::refuse_and_wait() {
  closed.store(true);
  const nb::gil_scoped_release release;
  for (int left; (left = running.load()) != 0;) running.wait(left);
}

Runtime& Runtime::get() {
  static Runtime* const runtime = new Runtime;
  return *runtime;
}

int Runtime::threads() const {
  if (threads_here > 0) return threads_here;
  const int chosen = threads_.load(std::memory_order_relaxed);
  if (chosen > 0) return chosen;
  int usual = default_.load(std::memory_order_relaxed);
  if (usual == 0) default_.store(usual = default_threads(), std::memory_order_relaxed);
  return usual;
}

void Runtime::set_threads(int threads) {
  require_threads(threads);
  threads_.store(threads, std::memory_order_relaxed);
}

int Runtime::exchange_thread_local(int threads) {
  require_threads(threads);
  return std::exchange(threads_here, threads);
}

int Runtime::checked(int threads) const {
  require_threads(threads);
  return threads > 0 ? threads : this->threads();
}

Scheduler& Runtime::scheduler(int threads) {
  const int count = checked(threads);
  return made_once(schedulers[static_cast<std::size_t>(count)], count, {.change_affinity = false});
}

Scheduler& Runtime::team_scheduler(int threads) {
  const int count = checked(threads);
  return made_once(team_schedulers[static_cast<std::size_t>(count)], count, {.helpers = &OpenMpTeam::instance()});
}

CallThreads::CallThreads(int threads)
    : team_(Runtime::get().checked(threads)),
      scheduler_(team_ ? Runtime::get().team_scheduler(threads) : Runtime::get().scheduler(threads)) {
  if (team_) Runtime::get().counters().team_calls.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace convolume::python
