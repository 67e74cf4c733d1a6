// Counts what a program takes from the heap, and who asked for it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convolume::test {

/// Whether this build counts: sanitizers bring their own heap.
bool counts_allocations();
/// Calls of malloc and its relatives, operator new included, by this thread until now.
std::size_t allocations() noexcept;

/// Such calls by all threads until now.
struct HeapCalls {
  std::size_t ours = 0;       ///< also on our behalf, inside the C++ library
  std::size_t libraries = 0;  ///< by TBB, FFTW, and the C library and loader where they start threads
};
HeapCalls heap_calls() noexcept;

/// From now on the `nth` operator new (from 1) that code of ours calls, in whatever thread, finds no memory; 0: none.
/// heap_calls() has to be called before.
void fail_allocation(std::int64_t nth) noexcept;
/// Whether an allocation has failed since then.
bool allocation_failed() noexcept;
/// Blocks of operator new, whoever called it, that were not deleted yet.
std::int64_t live_blocks() noexcept;

}  // namespace convolume::test
