#include "tools/jemalloc_resource.hpp"

#include "convolume/memory.hpp"

#ifdef CONVOLUME_JEMALLOC
#include <new>

#include <jemalloc/jemalloc.h>
#include <sys/mman.h>
#endif

namespace convolume::tools {

#ifdef CONVOLUME_JEMALLOC
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

class JemallocResource final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    // Large slabs lie on huge pages, as with mmap_resource.
    if (bytes >= huge_page && alignment < huge_page) alignment = huge_page;
    void* memory = ::mallocx(bytes, MALLOCX_ALIGN(alignment));
    if (memory == nullptr) throw std::bad_alloc();
    if (bytes >= huge_page) static_cast<void>(::madvise(memory, bytes / huge_page * huge_page, MADV_HUGEPAGE));
    return memory;
  }
  void do_deallocate(void* memory, std::size_t, std::size_t) override { ::dallocx(memory, 0); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace

std::pmr::memory_resource* slab_upstream() noexcept {
  static JemallocResource resource;
  return &resource;
}
#else
std::pmr::memory_resource* slab_upstream() noexcept { return mmap_resource(); }
#endif

}  // namespace convolume::tools
