// Counts what a program takes from the heap, and who asked for it.
#pragma once

#include <cstddef>

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

}  // namespace convolume::test
