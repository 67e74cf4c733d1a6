#include "core/fork.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include <pthread.h>
#include <unistd.h>

namespace convolume {
namespace {

constinit std::array<std::mutex, static_cast<std::size_t>(ForkLock::memory) + 1> locks;
constinit const MemoryLocks* memory_locks = nullptr;  // guarded by ForkLock::memory
constinit std::atomic<bool> child{false}, helper_library{false};
constinit int exit_status = 0;  // of a child that has called exit()

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
  ::on_exit([](int status, void*) { exit_status = status; }, nullptr);
  after_fork();
}

/// Destructors of a file run before those of the libraries that it uses, and after all handlers of exit().
[[gnu::destructor]] void end_child() noexcept {
  if (!child.load(std::memory_order_relaxed) || !helper_library.load(std::memory_order_relaxed)) return;
  std::fflush(nullptr);
  ::_exit(exit_status);
}

/// A system without memory for three pointers would refuse. Then a child must not compute, and nobody else notices.
[[maybe_unused]] const int registered = ::pthread_atfork(before_fork, after_fork, after_fork_in_child);

}  // namespace

std::mutex& fork_lock(ForkLock lock) noexcept { return locks[static_cast<std::size_t>(lock)]; }

void set_memory_locks(const MemoryLocks& locks_of_memory) noexcept { memory_locks = &locks_of_memory; }

void note_helper_library() noexcept { helper_library.store(true, std::memory_order_relaxed); }

bool is_forked_child() noexcept { return child.load(std::memory_order_relaxed); }

}  // namespace convolume
