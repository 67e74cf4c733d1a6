#include <mutex>
#include <new>

#include <fmt/format.h>

#include "allocator/free_list.hpp"
#include "allocator/size_classes.hpp"
#include "convolume/error.hpp"
#include "convolume/memory.hpp"

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

namespace convolume {
namespace {

using allocator::block_bytes;
using allocator::class_count;
using allocator::class_of;
using allocator::FreeList;
using allocator::largest_block;

constexpr std::size_t page = 4096;
constexpr std::size_t small_slab = std::size_t{64} << 10;  // holds blocks up to small_block
constexpr std::size_t small_block = std::size_t{4} << 10;
constexpr std::size_t large_slab = std::size_t{1} << 20;  // holds blocks up to large_block
constexpr std::size_t large_block = std::size_t{64} << 10;

void poison([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) {
#ifdef CONVOLUME_ASAN
  __asan_poison_memory_region(block, bytes);
#endif
}

void unpoison([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) {
#ifdef CONVOLUME_ASAN
  __asan_unpoison_memory_region(block, bytes);
#endif
}

/// How the blocks of a class lie in a slab. A slab starts with a SlabHeader; where it holds several blocks it is
/// aligned to its own size, so that a block finds its header by masking its address; where it holds one, the block
/// follows one page behind the header.
struct SlabGeometry {
  explicit SlabGeometry(std::size_t block) {
    single = block > large_block;
    offset = single ? page : allocator::alignment;
    bytes = single ? page + block : block > small_block ? large_slab : small_slab;
    alignment = single ? page : bytes;
    blocks = single ? 1 : static_cast<std::uint32_t>((bytes - offset) / block);
  }
  bool single;
  std::size_t offset, bytes, alignment;
  std::uint32_t blocks;
};

struct SlabHeader {
  std::uint32_t first_index;  // of the slab's first block in its class
};
static_assert(sizeof(SlabHeader) <= allocator::alignment);

struct SizeClass {
  FreeList free;
  std::mutex growing;             // taken only to carve a new slab
  std::vector<std::byte*> slabs;  // guarded by `growing`
  std::atomic<std::uint32_t> blocks{0};
  std::atomic<std::size_t> live{0};
};

}  // namespace

struct SlabResource::Impl {
  explicit Impl(SlabOptions o) : options(o) {}

  std::byte* take(int index, SizeClass& size_class);
  std::byte* grow(int index, SizeClass& size_class);
  void charge(std::size_t bytes);
  void* upstream_allocate(std::size_t bytes, std::size_t alignment);

  SlabOptions options;
  std::array<SizeClass, class_count> classes;
  std::atomic<std::size_t> live{0}, peak{0}, upstream_bytes{0};
  std::atomic<std::uint64_t> allocations{0}, upstream_calls{0};
};

namespace {

std::byte* header_of(std::byte* block, const SlabGeometry& geometry) {
  if (geometry.single) return block - geometry.offset;
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  return block - (address & (geometry.bytes - 1));
}

}  // namespace

void* SlabResource::Impl::upstream_allocate(std::size_t bytes, std::size_t alignment) {
  void* memory = options.upstream->allocate(bytes, alignment);
  upstream_bytes.fetch_add(bytes, std::memory_order_relaxed);
  upstream_calls.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

/// Carves a new slab, keeps its first block for the caller and lists the others.
std::byte* SlabResource::Impl::grow(int index, SizeClass& size_class) {
  const std::lock_guard lock(size_class.growing);
  const SlabGeometry geometry(block_bytes(index));
  // Another thread may have grown the class while this one waited.
  if (const auto found = size_class.free.pop(); found != FreeList::none) return size_class.free.block(found);
  const std::uint32_t first = size_class.blocks.load(std::memory_order_relaxed);
  if (first > FreeList::none - geometry.blocks) throw std::bad_alloc();
  size_class.slabs.reserve(size_class.slabs.size() + 1);
  size_class.free.grow(first + geometry.blocks);
  auto* slab = static_cast<std::byte*>(upstream_allocate(geometry.bytes, geometry.alignment));
  new (slab) SlabHeader{first};
  size_class.slabs.push_back(slab);
  poison(slab + geometry.offset, geometry.bytes - geometry.offset);
  size_class.blocks.store(first + geometry.blocks, std::memory_order_relaxed);
  for (std::uint32_t i = geometry.blocks; i-- > 0;) {
    size_class.free.block(first + i) = slab + geometry.offset + i * block_bytes(index);
    if (i > 0) size_class.free.push(first + i);
  }
  return slab + geometry.offset;
}

std::byte* SlabResource::Impl::take(int index, SizeClass& size_class) {
  const auto found = size_class.free.pop();
  return found == FreeList::none ? grow(index, size_class) : size_class.free.block(found);
}

void SlabResource::Impl::charge(std::size_t bytes) {
  const std::size_t held = live.fetch_add(bytes, std::memory_order_relaxed);
  if (options.budget != 0 && held + bytes > options.budget) {
    live.fetch_sub(bytes, std::memory_order_relaxed);
    throw MemoryBudgetExceeded(bytes, held, options.budget);
  }
  std::size_t highest = peak.load(std::memory_order_relaxed);
  while (highest < held + bytes && !peak.compare_exchange_weak(highest, held + bytes, std::memory_order_relaxed)) {
  }
}

SlabResource::SlabResource(SlabOptions options) : impl_(std::make_unique<Impl>(options)) {
  if (options.upstream == nullptr) throw InvalidArgument("SlabOptions.upstream: null; pass a memory resource");
}

SlabResource::~SlabResource() {
  for (int index = 0; index < class_count; ++index) {
    const SlabGeometry geometry(block_bytes(index));
    for (std::byte* slab : impl_->classes[static_cast<std::size_t>(index)].slabs) {
      unpoison(slab, geometry.bytes);
      impl_->options.upstream->deallocate(slab, geometry.bytes, geometry.alignment);
    }
  }
}

namespace {

/// The class that serves a request; alignments above 64 bytes need a slab of one block, which starts on a page.
int class_for(std::size_t bytes, std::size_t alignment) {
  if (alignment > page) {
    throw InvalidArgument(fmt::format("SlabResource: alignment {} asked, at most {} is possible", alignment, page));
  }
  return class_of(alignment > allocator::alignment ? std::max(bytes, large_block + 1) : bytes);
}

}  // namespace

void* SlabResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes > largest_block) throw std::bad_alloc();
  const int index = class_for(bytes, alignment);
  SizeClass& size_class = impl_->classes[static_cast<std::size_t>(index)];
  impl_->charge(block_bytes(index));
  std::byte* block = nullptr;
  try {
    block = impl_->take(index, size_class);
  } catch (...) {
    impl_->live.fetch_sub(block_bytes(index), std::memory_order_relaxed);
    throw;
  }
  size_class.live.fetch_add(1, std::memory_order_relaxed);
  impl_->allocations.fetch_add(1, std::memory_order_relaxed);
  unpoison(block, bytes);
  return block;
}

void SlabResource::do_deallocate(void* pointer, std::size_t bytes, std::size_t alignment) {
  const int index = class_for(bytes, alignment);
  SizeClass& size_class = impl_->classes[static_cast<std::size_t>(index)];
  const SlabGeometry geometry(block_bytes(index));
  auto* block = static_cast<std::byte*>(pointer);
  std::byte* slab = header_of(block, geometry);
  const auto position = static_cast<std::size_t>(block - slab - static_cast<std::ptrdiff_t>(geometry.offset));
  const auto* header = std::launder(reinterpret_cast<const SlabHeader*>(slab));
  poison(block, block_bytes(index));
  size_class.free.push(header->first_index + static_cast<std::uint32_t>(position / block_bytes(index)));
  size_class.live.fetch_sub(1, std::memory_order_relaxed);
  impl_->live.fetch_sub(block_bytes(index), std::memory_order_relaxed);
}

SlabStatistics SlabResource::statistics() const {
  SlabStatistics result;
  result.live_bytes = impl_->live.load(std::memory_order_relaxed);
  result.peak_bytes = impl_->peak.load(std::memory_order_relaxed);
  result.upstream_bytes = impl_->upstream_bytes.load(std::memory_order_relaxed);
  result.allocations = impl_->allocations.load(std::memory_order_relaxed);
  result.upstream_calls = impl_->upstream_calls.load(std::memory_order_relaxed);
  for (int index = 0; index < class_count; ++index) {
    const SizeClass& size_class = impl_->classes[static_cast<std::size_t>(index)];
    const std::uint32_t blocks = size_class.blocks.load(std::memory_order_relaxed);
    if (blocks == 0) continue;
    result.classes.push_back({block_bytes(index), blocks, size_class.live.load(std::memory_order_relaxed)});
  }
  return result;
}

}  // namespace convolume
