// Tells AddressSanitizer about free memory. The functions do nothing in other builds.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define CONVOLUME_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CONVOLUME_ASAN 1
#endif
#endif
#ifdef CONVOLUME_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace convolume::allocator {

inline void poison([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) {
#ifdef CONVOLUME_ASAN
  __asan_poison_memory_region(block, bytes);
#endif
}

inline void unpoison([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) {
#ifdef CONVOLUME_ASAN
  __asan_unpoison_memory_region(block, bytes);
#endif
}

}  // namespace convolume::allocator
