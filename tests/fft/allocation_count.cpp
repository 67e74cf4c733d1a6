// Stands in front of glibc's heap in this program.
#include "tests/fft/allocation_count.hpp"

#include <cerrno>
#include <cstdlib>

#include "tests/sanitizers.hpp"

namespace {

thread_local std::size_t count = 0;

}  // namespace

#if defined(__GLIBC__) && !CONVOLUME_TEST_SANITIZED

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t items, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

__attribute__((visibility("default"))) void* malloc(std::size_t bytes) {
  ++count;
  return __libc_malloc(bytes);
}

__attribute__((visibility("default"))) void* calloc(std::size_t items, std::size_t bytes) {
  ++count;
  return __libc_calloc(items, bytes);
}

__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t bytes) {
  ++count;
  return __libc_realloc(memory, bytes);
}

__attribute__((visibility("default"))) void* memalign(std::size_t alignment, std::size_t bytes) {
  ++count;
  return __libc_memalign(alignment, bytes);
}

__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ++count;
  return __libc_memalign(alignment, bytes);
}

__attribute__((visibility("default"))) int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  ++count;
  void* found = __libc_memalign(alignment, bytes);
  if (found == nullptr) return ENOMEM;
  *memory = found;
  return 0;
}

}  // extern "C"

bool convolume::test::counts_allocations() { return true; }

#else

bool convolume::test::counts_allocations() { return false; }

#endif

std::size_t convolume::test::allocations() noexcept { return count; }
