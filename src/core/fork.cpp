#include "core/fork.hpp"

#include <array>
#include <atomic>

#include <pthread.h>

namespace convolume {
namespace {

constinit std::array<std::mutex, static_cast<std::size_t>(ForkLock::memory) + 1> locks;
constinit const MemoryLocks* memory_locks = nullptr;  // guarded by ForkLock::memory
constinit std::atomic<bool> child{false};

void before_fork() noexcept {
  for (std::mutex& lock : locks) lock.lock();
  if (memory_locks != nullptr) memory_locks->lock();
}

void after_fork() noexcept {
  if (memory_locks != nullptr) memory_locks->unlock();
  for (auto lock = locks.rbegin(); lock != locks.rend(); ++lock) lock->unlock();
}

void after_fork_in_child() noexcept {
  child.store(true, std::memory_order_relaxed);  // relaxed: a child begins with one thread
  after_fork();
}

/// A system without memory for three pointers would refuse. Then a child must not compute, and nobody else notices.
[[maybe_unused]] const int registered = ::pthread_atfork(before_fork, after_fork, after_fork_in_child);

}  // namespace

std::mutex& fork_lock(ForkLock lock) noexcept { return locks[static_cast<std::size_t>(lock)]; }

void set_memory_locks(const MemoryLocks& locks_of_memory) noexcept { memory_locks = &locks_of_memory; }

bool is_forked_child() noexcept { return child.load(std::memory_order_relaxed); }

}  // namespace convolume
