// Makes the library usable in a child of fork(): none of its locks is held there, and a child knows that it is one.
#pragma once

#include <mutex>

namespace convolume {

/// The locks that belong to the process and that a call may need. A thread that holds one of them takes only later
/// ones, or locks of memory resources.
///
/// Locks of single objects are not among them. A child may use an object whose lock is free: an object that no other
/// thread was using. Locks for helper threads are not among them either, because a child has no helpers.
enum class ForkLock { hdf5, arrays, machine, topology, wisdom, fft_plans, fftw_planner, calls, traces, memory };

/// Returns the lock. fork() takes all of them in the order of the enumeration, and then those of memory resources.
std::mutex& fork_lock(ForkLock lock) noexcept;

/// Takes and releases the locks of memory resources, which are objects that each have one. `ForkLock::memory` is held.
struct MemoryLocks {
  void (*lock)() noexcept = nullptr;
  void (*unlock)() noexcept = nullptr;
};
/// Sets how fork() takes the locks of memory resources. `locks` has static storage. The caller holds ForkLock::memory.
void set_memory_locks(const MemoryLocks& locks) noexcept;

/// Returns whether this process is a child of fork(), in which the library was loaded before. Such a child has no
/// helper threads: each call computes everything in its own thread. The bits of results are the same.
bool is_forked_child() noexcept;

/// Says that this process has helper threads of another library, TBB. The destructor of that library takes locks that
/// are not in the list. So a child that ends by exit() ends before that destructor runs, after everything that the
/// program itself does at its end.
void note_helper_library() noexcept;

}  // namespace convolume
