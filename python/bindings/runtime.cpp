#include "python/bindings/runtime.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"

namespace convolume::python {
namespace {

thread_local int threads_here = 0;

void require_threads(int threads) {
  if (threads >= 0 && threads <= 1024) return;
  throw InvalidArgument("threads: " + std::to_string(threads) +
                        " is not from 1 to 1024; 0 means one per physical core");
}

struct Schedulers {
  std::mutex mutex;
  std::map<int, std::unique_ptr<Scheduler>> by_threads;
};

}  // namespace

Runtime& Runtime::get() {
  static Runtime* const runtime = new Runtime;
  return *runtime;
}

int Runtime::threads() const {
  if (threads_here > 0) return threads_here;
  const int chosen = threads_.load(std::memory_order_relaxed);
  return chosen > 0 ? chosen : default_threads();
}

void Runtime::set_threads(int threads) {
  require_threads(threads);
  threads_.store(threads, std::memory_order_relaxed);
}

int Runtime::exchange_thread_local(int threads) {
  require_threads(threads);
  return std::exchange(threads_here, threads);
}

Scheduler& Runtime::scheduler(int threads) {
  static auto* const schedulers = new Schedulers;
  require_threads(threads);
  const int count = threads > 0 ? threads : this->threads();
  const std::lock_guard lock(schedulers->mutex);
  auto& one = schedulers->by_threads[count];
  if (!one) one = std::make_unique<Scheduler>(count);
  return *one;
}

}  // namespace convolume::python
