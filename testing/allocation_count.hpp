// Counts the heap allocations of a program, and attributes them to our code or to libraries.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convolume::test {

/// Returns whether this build counts. Sanitizer builds do not, because sanitizers bring their own heap.
bool counts_allocations();
/// Returns how often this thread has called malloc and its relatives, operator new included.
std::size_t allocations() noexcept;

/// Allocations by all threads so far.
struct HeapCalls {
  std::size_t ours = 0;       ///< by our code, and by the C++ library for it
  std::size_t libraries = 0;  ///< by TBB, FFTW, and by the C library and loader, for example when they start threads
};
HeapCalls heap_calls() noexcept;

/// Makes the `nth` call of operator new from now on (1 is the next) throw bad_alloc. Only calls from our code count, on
/// any thread. 0 switches failures off. Call heap_calls() first.
void fail_allocation(std::int64_t nth) noexcept;
/// Returns whether an allocation has failed after the last call of fail_allocation().
bool allocation_failed() noexcept;
/// Returns the number of live blocks of operator new, from all callers.
std::int64_t live_blocks() noexcept;

}  // namespace convolume::test
