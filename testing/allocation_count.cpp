// Replaces glibc's heap functions in this program by functions that count.
#include "testing/allocation_count.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "testing/sanitizers.hpp"
#include <link.h>

namespace {

thread_local std::size_t count = 0;
std::atomic<std::size_t> calls_of_ours{0}, calls_of_libraries{0};

/// Code ranges of libraries whose allocations are not ours. The list is empty until the first call of heap_calls().
struct Code {
  std::uintptr_t begin, end;
};
std::array<Code, 32> libraries;
std::atomic<std::size_t> library_count{0};

int add_code(dl_phdr_info* image, std::size_t, void*) {
  constexpr std::array names{"libtbb", "libfftw", "libc.so", "ld-linux"};
  bool listed = false;
  for (const char* name : names) listed = listed || std::strstr(image->dlpi_name, name) != nullptr;
  for (int i = 0; listed && i < image->dlpi_phnum; ++i) {
    const auto& part = image->dlpi_phdr[i];
    const std::size_t used = library_count.load();
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0 || used == libraries.size()) continue;
    const std::uintptr_t begin = image->dlpi_addr + part.p_vaddr;
    libraries[used] = {begin, begin + part.p_memsz};
    library_count.store(used + 1);
  }
  return 0;
}

/// Counts a call. Returns whether the caller is our code.
[[maybe_unused]] bool note(const void* caller) noexcept {
  ++count;
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  for (std::size_t i = 0; i < library_count.load(std::memory_order_relaxed); ++i) {
    if (address < libraries[i].begin || address >= libraries[i].end) continue;
    calls_of_libraries.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  calls_of_ours.fetch_add(1, std::memory_order_relaxed);
  return true;
}

std::atomic<std::int64_t> until_failure{0}, live{0};
std::atomic<bool> failed{false};

/// Counts a block of operator new. If it is the block that must fail, frees it and throws bad_alloc instead.
[[maybe_unused]] void check(void* memory, bool ours) {
  if (ours && until_failure.load(std::memory_order_relaxed) > 0 && until_failure.fetch_sub(1) == 1) {
    failed = true;
    std::free(memory);
    throw std::bad_alloc();
  }
  if (memory == nullptr) throw std::bad_alloc();
  live.fetch_add(1, std::memory_order_relaxed);
}

[[maybe_unused]] void release(void* memory) noexcept {
  if (memory != nullptr) live.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

#if defined(__GLIBC__) && !CONVOLUME_ADDRESS_SANITIZER && !CONVOLUME_THREAD_SANITIZER

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t items, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

__attribute__((visibility("default"))) void* malloc(std::size_t bytes) {
  note(__builtin_return_address(0));
  return __libc_malloc(bytes);
}

__attribute__((visibility("default"))) void* calloc(std::size_t items, std::size_t bytes) {
  note(__builtin_return_address(0));
  return __libc_calloc(items, bytes);
}

__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t bytes) {
  note(__builtin_return_address(0));
  return __libc_realloc(memory, bytes);
}

__attribute__((visibility("default"))) void* memalign(std::size_t alignment, std::size_t bytes) {
  note(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}

__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  note(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}

__attribute__((visibility("default"))) int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  note(__builtin_return_address(0));
  void* found = __libc_memalign(alignment, bytes);
  if (found == nullptr) return ENOMEM;
  *memory = found;
  return 0;
}

}  // extern "C"

// Replaces operator new, because otherwise every call would look like a call of malloc by the C++ library.
__attribute__((visibility("default"))) void* operator new(std::size_t bytes) {
  const bool ours = note(__builtin_return_address(0));
  void* memory = __libc_malloc(bytes != 0 ? bytes : 1);
  check(memory, ours);
  return memory;
}

__attribute__((visibility("default"))) void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const bool ours = note(__builtin_return_address(0));
  void* memory = __libc_memalign(static_cast<std::size_t>(alignment), bytes != 0 ? bytes : 1);
  check(memory, ours);
  return memory;
}

__attribute__((visibility("default"))) void operator delete(void* memory) noexcept { release(memory); }
__attribute__((visibility("default"))) void operator delete(void* memory, std::size_t) noexcept { release(memory); }
__attribute__((visibility("default"))) void operator delete(void* memory, std::align_val_t) noexcept {
  release(memory);
}
__attribute__((visibility("default"))) void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}

bool convolume::test::counts_allocations() { return true; }

#else

bool convolume::test::counts_allocations() { return false; }

#endif

std::size_t convolume::test::allocations() noexcept { return count; }

convolume::test::HeapCalls convolume::test::heap_calls() noexcept {
  if (library_count.load() == 0) dl_iterate_phdr(add_code, nullptr);
  return {calls_of_ours.load(), calls_of_libraries.load()};
}

void convolume::test::fail_allocation(std::int64_t nth) noexcept {
  failed = false;
  until_failure = nth;
}

bool convolume::test::allocation_failed() noexcept { return failed; }

std::int64_t convolume::test::live_blocks() noexcept { return live; }
