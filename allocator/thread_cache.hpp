// The per-thread part of a resource: a magazine of free blocks for every small class.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/central.hpp"

namespace convolume::allocator {

/// A counter that one thread writes and any thread reads. An increment is a load and a store, not a locked operation.
/// relaxed: nothing is read through these numbers.
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

/// The magazines of one thread for one resource. Only this thread uses them. ForkLock::memory guards `owner`.
struct ThreadCache {
  std::uint64_t owner_id = 0;
  CacheOwner* owner = nullptr;  ///< null after the end of the resource
  /// Bytes taken minus bytes given that are not yet in the resource's own count.
  OwnCounter<std::int64_t> pending;
  std::array<Magazine, small_classes> magazines;
};

/// The owner of thread caches: a resource. A thread and a resource may end in either order. When the thread ends,
/// retire() takes its blocks. When the resource ends, the caches of all threads are detached from it; their threads
/// delete them later. ForkLock::memory guards the lists of owners and of caches. It is held when a thread or a resource
/// begins or ends, and for statistics. fork() then also takes the lock of each owner's heap.
class CacheOwner {
 public:
  CacheOwner();
  CacheOwner(const CacheOwner&) = delete;
  CacheOwner& operator=(const CacheOwner&) = delete;

  /// Returns the cache of the calling thread. Returns null while the thread ends, or if there is no memory for a cache.
  ThreadCache* cache() noexcept {
    const Current& now = current_;
    return now.owner_id == id_ ? now.cache : find_cache();
  }

  /// Calls begin(), and then visit(const ThreadCache&) for each thread that has a cache. Those threads keep running. No
  /// thread's cache is retired in between, so that the counts that it hands over are seen exactly once.
  template <class Begin, class Visit>
  void for_each_cache(const Begin& begin, const Visit& visit) const {
    const Lock lock;
    begin();
    for (const ThreadCache* cache : caches_) visit(*cache);
  }

 protected:
  ~CacheOwner() = default;
  /// Must be called last in the constructor of the resource: from then on fork() takes the lock of its heap.
  void remember() noexcept;
  /// Must be called first in the destructor of the resource.
  void forget_threads() noexcept;
  /// Take and release the lock of the resource's heap, for fork().
  virtual void lock_heap() noexcept = 0;
  virtual void unlock_heap() noexcept = 0;
  /// Takes over what a thread that ends holds. ForkLock::memory is held, so that nobody reads the caches meanwhile.
  virtual void retire(ThreadCache& cache) noexcept = 0;
  /// Retires the cache of the calling thread, which continues to run.
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
  /// The cache that the thread used last. It needs no constructor and no destructor, so it is valid in a thread that
  /// ends.
  struct Current {
    std::uint64_t owner_id = 0;  // 0 belongs to no resource
    ThreadCache* cache = nullptr;
    bool ended = false;
  };

  ThreadCache* find_cache() noexcept;
  static void lock_heaps() noexcept;
  static void unlock_heaps() noexcept;

  static constinit thread_local Current current_;
  static constinit CacheOwner* owners_;  // all of them, linked by next_
  const std::uint64_t id_;  // never used twice, so that a cache is never taken for the cache of another resource
  std::vector<ThreadCache*> caches_;
  CacheOwner* next_ = nullptr;
};

}  // namespace convolume::allocator
