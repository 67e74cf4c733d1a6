#include <list>
#include <mutex>

#include "fft/plan_impl.hpp"

namespace convolume::fft {
namespace {

/// Least recently used plans leave first. The lock is never held while planning.
class PlanCache {
 public:
  static PlanCache& instance() {
    static PlanCache cache;
    return cache;
  }

  std::shared_ptr<const Plan::Impl> find(const Problem& problem, const Options& options) {
    const std::lock_guard lock(mutex_);
    for (auto it = plans_.begin(); it != plans_.end(); ++it) {
      if ((*it)->problem == problem && (*it)->options == options) {
        plans_.splice(plans_.begin(), plans_, it);
        return plans_.front();
      }
    }
    return nullptr;
  }

  void insert(std::shared_ptr<const Plan::Impl> plan) {
    const std::lock_guard lock(mutex_);
    if (capacity_ == 0) return;
    plans_.push_front(std::move(plan));
    if (plans_.size() > capacity_) plans_.pop_back();
  }

  void set_capacity(std::size_t capacity) {
    const std::lock_guard lock(mutex_);
    capacity_ = capacity;
    while (plans_.size() > capacity_) plans_.pop_back();
  }

  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return plans_.size();
  }

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<const Plan::Impl>> plans_;
  std::size_t capacity_ = 256;
};

}  // namespace

std::shared_ptr<const Plan::Impl> cached_plan(const Problem& problem, const Options& options) {
  if (auto plan = PlanCache::instance().find(problem, options)) return plan;
  auto plan = make_fftw_plan(problem, options);
  PlanCache::instance().insert(plan);
  return plan;
}

void set_plan_cache_capacity(std::size_t plans) { PlanCache::instance().set_capacity(plans); }
std::size_t plan_cache_size() { return PlanCache::instance().size(); }

}  // namespace convolume::fft
