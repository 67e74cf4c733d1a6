#include <cstdint>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

#include "convolume/memory.hpp"
#include "core/lazy.hpp"

namespace convolume {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

std::size_t page_size() {
  static constinit Lazy<const std::size_t> size;
  return size.get([] { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); });
}

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Maps whole pages from the kernel. Requests of 2 MiB and more are aligned to huge pages, and the kernel is advised to
/// use huge pages.
class MmapResource final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    const std::size_t size = round_up(bytes == 0 ? 1 : bytes, page_size());
    if (size < bytes) throw std::bad_alloc();
    if (bytes >= huge_page && alignment < huge_page) alignment = huge_page;
    const std::size_t slack = alignment > page_size() ? alignment : 0;
    void* mapped = ::mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    auto* begin = static_cast<std::byte*>(mapped);
    if (slack != 0) {
      const auto address = reinterpret_cast<std::uintptr_t>(begin);
      const std::size_t before = round_up(address, alignment) - address;
      if (before != 0) ::munmap(begin, before);
      if (slack != before) ::munmap(begin + before + size, slack - before);
      begin += before;
    }
    // The call is only a hint. If it fails, the memory still works.
    if (bytes >= huge_page) static_cast<void>(::madvise(begin, size, MADV_HUGEPAGE));
    return begin;
  }

  void do_deallocate(void* block, std::size_t bytes, std::size_t) override {
    ::munmap(block, round_up(bytes == 0 ? 1 : bytes, page_size()));
  }

  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace

std::pmr::memory_resource* mmap_resource() noexcept {
  static constinit Lazy<MmapResource> resource;
  return &resource.get([] { return MmapResource(); });
}

}  // namespace convolume
