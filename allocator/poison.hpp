// Tells AddressSanitizer about free memory. The functions do nothing in other builds.
#pragma once

#include <cstddef>

#include "core/sanitizers.hpp"

#if CONVOLUME_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace convolume::allocator {

inline void poison([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) {
#if CONVOLUME_ADDRESS_SANITIZER
  __asan_poison_memory_region(block, bytes);
#endif
}

inline void unpoison([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) {
#if CONVOLUME_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(block, bytes);
#endif
}

}  // namespace convolume::allocator
