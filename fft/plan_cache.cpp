#include <iterator>
#include <list>

#include "core/fork.hpp"
#include "core/lazy.hpp"
#include "fft/plan_impl.hpp"

namespace convolume::fft {
namespace {

/// A cache of plans that evicts the least recently used plan first. Its lock,
/// ForkLock::fft_plans, is never held during planning.
class PlanCache {
 public:
  static PlanCache& instance() {
    static constinit Lazy<PlanCache> cache;
    return cache.get([] { return PlanCache(); });
  }

  std::shared_ptr<const Plan::Impl> find(const Problem& problem, const Options& options, const std::string& target) {
    const std::lock_guard lock(fork_lock(ForkLock::fft_plans));
    return find_locked(problem, options, target);
  }

  /// Inserts the plan and returns it. If another thread has inserted an equal plan meanwhile, returns that one.
  std::shared_ptr<const Plan::Impl> insert(std::shared_ptr<const Plan::Impl> plan) {
    // Evicted plans are destroyed after the lock is released, because the destructor of an FFTW plan waits for another
    // lock.
    std::list<std::shared_ptr<const Plan::Impl>> evicted;
    const std::lock_guard lock(fork_lock(ForkLock::fft_plans));
    if (auto other = find_locked(plan->problem, plan->options, plan->target)) return other;
    if (capacity_ == 0) return plan;
    plans_.push_front(plan);
    if (plans_.size() > capacity_) evicted.splice(evicted.begin(), plans_, std::prev(plans_.end()));
    return plan;
  }

  void set_capacity(std::size_t capacity) {
    const std::lock_guard lock(fork_lock(ForkLock::fft_plans));
    capacity_ = capacity;
    while (plans_.size() > capacity_) plans_.pop_back();
  }

  std::size_t size() {
    const std::lock_guard lock(fork_lock(ForkLock::fft_plans));
    return plans_.size();
  }

 private:
  std::shared_ptr<const Plan::Impl> find_locked(const Problem& problem, const Options& options,
                                                const std::string& target) {
    for (auto it = plans_.begin(); it != plans_.end(); ++it) {
      if ((*it)->problem == problem && (*it)->options == options && (*it)->target == target) {
        plans_.splice(plans_.begin(), plans_, it);
        return plans_.front();
      }
    }
    return nullptr;
  }

  std::list<std::shared_ptr<const Plan::Impl>> plans_;
  std::size_t capacity_ = 256;
};

}  // namespace

std::shared_ptr<const Plan::Impl> cached_plan(const Problem& problem, const Options& options) {
  if (auto plan = PlanCache::instance().find(problem, options, simd_target())) return plan;
  return PlanCache::instance().insert(options.backend == Backend::fftw ? make_fftw_plan(problem, options)
                                                                       : make_native_plan(problem, options));
}

void set_plan_cache_capacity(std::size_t plans) { PlanCache::instance().set_capacity(plans); }
std::size_t plan_cache_size() { return PlanCache::instance().size(); }

}  // namespace convolume::fft
