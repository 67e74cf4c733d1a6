// Counts what the calling thread takes from the heap.
#pragma once

#include <cstddef>

namespace convolume::test {

/// Whether this build counts: sanitizers bring their own heap.
bool counts_allocations();
/// Calls of malloc and its relatives, operator new included, by this thread until now.
std::size_t allocations() noexcept;

}  // namespace convolume::test
