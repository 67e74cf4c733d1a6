#include "allocator/thread_cache.hpp"

#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "core/fork.hpp"

namespace convolume::allocator {

constinit thread_local CacheOwner::Current CacheOwner::current_;
constinit CacheOwner* CacheOwner::owners_ = nullptr;

/// All caches of a thread.
struct ThreadCaches {
  std::vector<std::unique_ptr<ThreadCache>> caches;

  ~ThreadCaches() {
    // Destructors of other thread-local objects may still allocate and free. They then use the lists directly.
    CacheOwner::current_ = {.ended = true};
    const CacheOwner::Lock lock;
    for (const auto& cache : caches) {
      if (cache->owner == nullptr) continue;
      std::erase(cache->owner->caches_, cache.get());
      cache->owner->retire(*cache);
    }
  }

  ThreadCache* attach(CacheOwner& owner) {
    const CacheOwner::Lock lock;
    std::erase_if(caches, [](const auto& cache) { return cache->owner == nullptr; });
    auto cache = std::make_unique<ThreadCache>();
    cache->owner_id = owner.id_;
    cache->owner = &owner;
    caches.reserve(caches.size() + 1);
    owner.caches_.push_back(cache.get());
    caches.push_back(std::move(cache));
    return caches.back().get();
  }
};

namespace {

thread_local ThreadCaches caches_of_thread;

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

CacheOwner::Lock::Lock() { fork_lock(ForkLock::memory).lock(); }
CacheOwner::Lock::~Lock() { fork_lock(ForkLock::memory).unlock(); }

void CacheOwner::lock_heaps() noexcept {
  for (CacheOwner* owner = owners_; owner != nullptr; owner = owner->next_) owner->lock_heap();
}

void CacheOwner::unlock_heaps() noexcept {
  for (CacheOwner* owner = owners_; owner != nullptr; owner = owner->next_) owner->unlock_heap();
}

CacheOwner::CacheOwner() : id_(next_id()) {}

void CacheOwner::remember() noexcept {
  static constexpr MemoryLocks locks{lock_heaps, unlock_heaps};
  const Lock lock;
  set_memory_locks(locks);
  next_ = std::exchange(owners_, this);
}

void CacheOwner::forget_threads() noexcept {
  const Lock lock;
  CacheOwner** link = &owners_;
  while (*link != this) link = &(*link)->next_;
  *link = next_;
  for (ThreadCache* cache : caches_) cache->owner = nullptr;
  caches_.clear();
}

ThreadCache* CacheOwner::find_cache() noexcept {
  if (current_.ended) return nullptr;
  ThreadCache* found = nullptr;
  for (const auto& cache : caches_of_thread.caches) {
    if (cache->owner_id == id_) found = cache.get();
  }
  try {
    if (found == nullptr) found = caches_of_thread.attach(*this);
  } catch (const std::bad_alloc&) {
    return nullptr;  // the caller works without a cache, which is slower, because a free must not fail
  }
  current_ = {id_, found, false};
  return found;
}

}  // namespace convolume::allocator
