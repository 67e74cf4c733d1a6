// What each thread keeps to itself: a magazine of free blocks for every small class of a resource.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/central.hpp"

namespace convolume::allocator {

/// Written by one thread, read by any: an increment is a load and a store, not a locked operation. relaxed: nothing is
/// read through these numbers.
template <class T>
class OwnCounter {
 public:
  T get() const noexcept { return value_.load(std::memory_order_relaxed); }
  void add(T amount) noexcept { value_.store(get() + amount, std::memory_order_relaxed); }
  void set(T value) noexcept { value_.store(value, std::memory_order_relaxed); }

 private:
  std::atomic<T> value_{0};
};

struct Magazine {
  std::uint32_t count = 0;
  OwnCounter<std::uint64_t> taken, given;  ///< blocks that this thread has allocated and freed
  std::array<std::byte*, most_cached> blocks;
};

class CacheOwner;

/// The magazines of one thread for one resource. Its thread alone uses it; `owner` is guarded by the registry's mutex.
struct ThreadCache {
  std::uint64_t owner_id = 0;
  CacheOwner* owner = nullptr;  ///< null once the resource is gone
  /// Bytes taken less bytes given that the resource's own count does not hold yet.
  OwnCounter<std::int64_t> pending;
  std::array<Magazine, small_classes> magazines;
};

/// A resource as threads know it. A thread and a resource may end in either order: when the thread ends, retire() takes
/// its blocks; when the resource ends, the caches of all threads forget it, and are deleted by their threads later.
class CacheOwner {
 public:
  CacheOwner();
  CacheOwner(const CacheOwner&) = delete;
  CacheOwner& operator=(const CacheOwner&) = delete;

  /// The cache of the calling thread; null while the thread ends or where memory for one lacks.
  ThreadCache* cache() noexcept {
    const Current& now = current_;
    return now.owner_id == id_ ? now.cache : find_cache();
  }

  /// Calls begin(), and visit(const ThreadCache&) for each thread that has one, which goes on meanwhile. None ends in
  /// between, so that what threads hand over when they end is seen once.
  template <class Begin, class Visit>
  void for_each_cache(const Begin& begin, const Visit& visit) const {
    const Lock lock;
    begin();
    for (const ThreadCache* cache : caches_) visit(*cache);
  }

 protected:
  ~CacheOwner() = default;
  /// To be called first in the destructor of the resource.
  void forget_threads() noexcept;
  /// Takes over what a thread that ends holds. While no cache is looked at.
  virtual void retire(ThreadCache& cache) noexcept = 0;
  /// The same of a thread that goes on: the calling one.
  void retire_own(ThreadCache& cache) noexcept {
    const Lock lock;
    retire(cache);
  }

 private:
  friend struct ThreadCaches;
  struct Lock {
    Lock();
    ~Lock();
  };
  /// The cache that the thread used last. Needs no constructor and no destructor, and so is valid in a thread that
  /// ends.
  struct Current {
    std::uint64_t owner_id = 0;  // 0 is no resource's
    ThreadCache* cache = nullptr;
    bool ended = false;
  };

  ThreadCache* find_cache() noexcept;

  static constinit thread_local Current current_;
  const std::uint64_t id_;  // never used twice, so that a cache is never taken for that of another resource
  std::vector<ThreadCache*> caches_;
};

}  // namespace convolume::allocator
