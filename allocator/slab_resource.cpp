#include <algorithm>
#include <new>
#include <optional>

#include <fmt/format.h>

#include "allocator/central.hpp"
#include "allocator/hardening.hpp"
#include "allocator/live_bytes.hpp"
#include "allocator/poison.hpp"
#include "allocator/size_classes.hpp"
#include "allocator/thread_cache.hpp"
#include "convolume/error.hpp"
#include "convolume/memory.hpp"

namespace convolume {

using namespace allocator;

namespace {

/// Numbers of blocks. All accesses are relaxed: nothing is read through these numbers.
struct Counts {
  std::atomic<std::uint64_t> taken{0}, given{0};
};

std::pmr::memory_resource* checked(std::pmr::memory_resource* upstream) {
  if (upstream == nullptr) throw InvalidArgument("SlabOptions.upstream: null; pass a memory resource");
  return upstream;
}

}  // namespace

struct SlabResource::Impl final : CacheOwner {
  explicit Impl(const SlabOptions& o) : live(o.budget), central(checked(o.upstream), live) {
    if (o.hardened.value_or(hardened_by_environment())) {
      hardening.emplace(central, o.on_fault != nullptr ? o.on_fault : abort_on_memory_fault);
    }
    remember();
  }
  ~Impl() { forget_threads(); }

  bool served(std::size_t bytes, std::size_t alignment) const noexcept;
  Fit fit_for(std::size_t bytes, std::size_t alignment) const;
  std::byte* take(Fit fit);
  std::byte* take_cached(int size_class, ThreadCache& cache);
  void give(Fit fit, std::byte* block) noexcept;
  void give_cached(int size_class, std::byte* block, ThreadCache& cache) noexcept;
  void count_bytes(ThreadCache& cache, std::int64_t bytes) noexcept;
  void lock_heap() noexcept override { central.heap_lock().lock(); }
  void unlock_heap() noexcept override { central.heap_lock().unlock(); }
  void retire(ThreadCache& cache) noexcept override;
  using CacheOwner::retire_own;
  Counts& counts_of(int size_class) { return counts[static_cast<std::size_t>(size_class)]; }

  LiveBytes live;
  Central central;
  std::array<Counts, class_count> counts;  // of large blocks, of threads that ended, and of threads without a cache
  std::optional<Hardening> hardening;
};

/// Returns whether any class can serve such a request.
bool SlabResource::Impl::served(std::size_t bytes, std::size_t alignment) const noexcept {
  return bytes <= largest_block - (hardening ? canary : 0) && alignment <= page;
}

/// Returns the block that serves a request. Throws std::bad_alloc or InvalidArgument if no block can.
Fit SlabResource::Impl::fit_for(std::size_t bytes, std::size_t alignment) const {
  const std::size_t extra = hardening ? canary : 0;
  if (bytes > largest_block - extra) throw std::bad_alloc();
  if (alignment > page) {
    throw InvalidArgument(fmt::format("SlabResource: alignment {} requested; use at most {}", alignment, page));
  }
  return fit_of(bytes + extra, alignment);
}

/// Counts bytes if there is no budget. With a budget, charge() has counted them already.
void SlabResource::Impl::count_bytes(ThreadCache& cache, std::int64_t bytes) noexcept {
  const std::int64_t pending = cache.pending.get() + bytes;
  const bool much = pending > LiveBytes::most_pending || pending < -LiveBytes::most_pending;
  if (much) live.add(pending);
  cache.pending.set(much ? 0 : pending);
}

std::byte* SlabResource::Impl::take_cached(int size_class, ThreadCache& cache) {
  Magazine& magazine = cache.magazines[static_cast<std::size_t>(size_class)];
  if (magazine.count == 0) {
    magazine.count = static_cast<std::uint32_t>(central.take_batch(size_class, magazine.blocks));
  }
  magazine.taken.add(1);
  if (!live.budgeted()) count_bytes(cache, static_cast<std::int64_t>(block_bytes(size_class)));
  return magazine.blocks[--magazine.count];
}

std::byte* SlabResource::Impl::take(Fit fit) {
  if (fit.small()) {
    if (ThreadCache* own = cache()) return take_cached(fit.size_class, *own);
  }
  std::byte* block = fit.small() ? central.take_small(fit.size_class) : central.take_large(fit.bytes);
  counts_of(fit.size_class).taken.fetch_add(1, std::memory_order_relaxed);
  if (!live.budgeted()) live.add(static_cast<std::int64_t>(fit.bytes));
  return block;
}

void SlabResource::Impl::give_cached(int size_class, std::byte* block, ThreadCache& cache) noexcept {
  Magazine& magazine = cache.magazines[static_cast<std::size_t>(size_class)];
  if (magazine.count == cached_blocks(size_class)) {
    // Return the older half. The blocks that were freed last are still in the CPU caches.
    const std::size_t batch = batch_blocks(size_class);
    central.give_batch(size_class, std::span(magazine.blocks).first(batch));
    std::copy(magazine.blocks.begin() + static_cast<std::ptrdiff_t>(batch), magazine.blocks.begin() + magazine.count,
              magazine.blocks.begin());
    magazine.count -= static_cast<std::uint32_t>(batch);
  }
  magazine.blocks[magazine.count++] = block;
  magazine.given.add(1);
  if (!live.budgeted()) count_bytes(cache, -static_cast<std::int64_t>(block_bytes(size_class)));
}

void SlabResource::Impl::give(Fit fit, std::byte* block) noexcept {
  if (live.budgeted()) live.add(-static_cast<std::int64_t>(fit.bytes));
  if (fit.small()) {
    if (ThreadCache* own = cache()) return give_cached(fit.size_class, block, *own);
    central.give_batch(fit.size_class, std::array{block});
  } else {
    central.give_large(block);
  }
  counts_of(fit.size_class).given.fetch_add(1, std::memory_order_relaxed);
  if (!live.budgeted()) live.add(-static_cast<std::int64_t>(fit.bytes));
}

void SlabResource::Impl::retire(ThreadCache& cache) noexcept {
  for (int index = 0; index < small_classes; ++index) {
    Magazine& magazine = cache.magazines[static_cast<std::size_t>(index)];
    for (std::span<std::byte*> left(magazine.blocks.data(), magazine.count); !left.empty();) {
      const std::size_t batch = std::min(batch_blocks(index), left.size());
      central.give_batch(index, left.first(batch));
      left = left.subspan(batch);
    }
    magazine.count = 0;
    counts_of(index).taken.fetch_add(magazine.taken.get(), std::memory_order_relaxed);
    counts_of(index).given.fetch_add(magazine.given.get(), std::memory_order_relaxed);
    magazine.taken.set(0);
    magazine.given.set(0);
  }
  live.add(cache.pending.get());
  cache.pending.set(0);
}

SlabResource::SlabResource(SlabOptions options) : impl_(std::make_unique<Impl>(options)) {}

SlabResource::~SlabResource() = default;

void* SlabResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  const Fit fit = impl_->fit_for(bytes, alignment);
  const std::int64_t held = impl_->live.budgeted() ? impl_->live.charge(fit.bytes) : 0;
  std::byte* block = nullptr;
  try {
    block = impl_->take(fit);
  } catch (...) {
    if (impl_->live.budgeted()) impl_->live.add(-static_cast<std::int64_t>(fit.bytes));
    throw;
  }
  impl_->live.raise_peak(held);
  if (impl_->hardening) impl_->hardening->check_in(block, bytes);
  poison(block, fit.bytes);
  unpoison(block, bytes);
  return block;
}

void SlabResource::do_deallocate(void* pointer, std::size_t bytes, std::size_t alignment) {
  auto* block = static_cast<std::byte*>(pointer);
  if (impl_->hardening && !impl_->served(bytes, alignment)) {
    impl_->hardening->check_out(pointer, bytes, 0);  // reports the mistake: no block has 0 bytes
    return;
  }
  const Fit fit = impl_->fit_for(bytes, alignment);
  if (impl_->hardening && !impl_->hardening->check_out(pointer, bytes, fit.bytes)) return;
  poison(block, fit.bytes);
  impl_->give(fit, block);
}

std::size_t SlabResource::trim() {
  // First return the own blocks, before the lists are searched. Other threads keep their cached blocks.
  if (ThreadCache* own = impl_->cache()) impl_->retire_own(*own);
  return impl_->central.trim();
}

SlabStatistics SlabResource::statistics() const {
  std::array<std::uint64_t, class_count> taken{}, given{};
  std::int64_t live = 0;
  const auto shared = [&] {
    for (std::size_t i = 0; i < class_count; ++i) {
      taken[i] = impl_->counts[i].taken.load(std::memory_order_relaxed);
      given[i] = impl_->counts[i].given.load(std::memory_order_relaxed);
    }
    live = impl_->live.get();
  };
  impl_->for_each_cache(shared, [&](const ThreadCache& cache) {
    live += cache.pending.get();
    for (std::size_t i = 0; i < small_classes; ++i) {
      taken[i] += cache.magazines[i].taken.get();
      given[i] += cache.magazines[i].given.get();
    }
  });
  impl_->live.raise_peak(live);

  SlabStatistics result;
  result.live_bytes = static_cast<std::size_t>(std::max<std::int64_t>(live, 0));
  result.peak_bytes = static_cast<std::size_t>(impl_->live.peak());
  result.upstream_bytes = impl_->central.heap().upstream_bytes();
  result.used_bytes = impl_->central.heap().touched_bytes();
  result.upstream_calls = impl_->central.heap().upstream_calls();
  for (int index = 0; index < class_count; ++index) {
    const auto i = static_cast<std::size_t>(index);
    result.allocations += taken[i];
    const auto living = static_cast<std::size_t>(taken[i] > given[i] ? taken[i] - given[i] : 0);
    const std::size_t blocks = index < small_classes ? impl_->central.blocks(index) : living;
    const std::size_t cached = blocks > living ? blocks - living : 0;
    if (blocks == 0) continue;
    result.cached_bytes += cached * block_bytes(index);
    result.classes.push_back({block_bytes(index), blocks, living, cached});
  }
  return result;
}

}  // namespace convolume
