#include "allocator/central.hpp"

#include <algorithm>
#include <new>

namespace convolume::allocator {
namespace {

/// Returns the pages of a slab: at least 64 KiB and at least eight blocks, and then so many that less than 1/64 of the
/// slab is left behind the last block.
constexpr std::uint32_t slab_pages(int size_class) {
  const std::size_t block = block_bytes(size_class);
  std::size_t pages = (std::max(std::size_t{64} << 10, 8 * block) + page - 1) / page;
  while (pages * page % block > pages * page / 64) ++pages;
  return static_cast<std::uint32_t>(pages);
}

/// Computed at compile time, because divisions and searches are too slow where blocks are taken and freed.
struct SlabShape {
  std::uint32_t pages, blocks;
};
constexpr auto slab_shapes = [] {
  std::array<SlabShape, small_classes> shapes{};
  for (int index = 0; index < small_classes; ++index) {
    const std::uint32_t pages = slab_pages(index);
    shapes[static_cast<std::size_t>(index)] = {pages, static_cast<std::uint32_t>(pages * page / block_bytes(index))};
  }
  return shapes;
}();
std::uint32_t slab_blocks(int size_class) { return slab_shapes[static_cast<std::size_t>(size_class)].blocks; }

}  // namespace

// -- Batches of small blocks ------------------------------------------------------------------------------------------

std::uint32_t Central::index_of(int size_class, const std::byte* block) noexcept {
  const Span& slab = heap_.spans()[heap_.find(block)];
  const auto position = static_cast<std::size_t>(block - slab.begin) / block_bytes(size_class);
  return slab.slot * slab_blocks(size_class) + static_cast<std::uint32_t>(position);
}

std::size_t Central::unpack(SizeClass& c, std::uint32_t batch, std::span<std::byte*> out) noexcept {
  std::size_t count = 0;
  for (std::uint32_t i = batch; i != none; i = (*c.table)[i].chain) out[count++] = (*c.table)[i].begin;
  return count;
}

std::size_t Central::take_batch(int size_class, std::span<std::byte*> out) {
  SizeClass& c = of(size_class);
  // A class without blocks may have no table yet. acquire: pairs with the release in carve_slab(), so that a thread
  // that sees blocks also sees the table.
  if (c.blocks.load(std::memory_order_acquire) != 0) {
    const std::uint32_t batch = c.free.pop(*c.table);
    if (batch != none) return unpack(c, batch, out);
  }
  const std::lock_guard lock(mutex_);
  return carve_slab(size_class, out);
}

void Central::give_batch(int size_class, std::span<std::byte* const> blocks) noexcept {
  SizeClass& c = of(size_class);
  std::uint32_t chain = none;
  for (std::byte* block : blocks) {
    const std::uint32_t index = index_of(size_class, block);
    (*c.table)[index].chain = chain;
    chain = index;
  }
  if (chain != none) c.free.push(*c.table, chain);
}

std::byte* Central::take_small(int size_class) {
  std::array<std::byte*, most_cached / 2> batch;
  const std::size_t count = take_batch(size_class, batch);
  give_batch(size_class, std::span(batch).subspan(1, count - 1));
  return batch[0];
}

/// Pushes a batch of the `count` blocks from index `first` on to the free list.
void Central::push_chain(int size_class, std::uint32_t first, std::uint32_t count) noexcept {
  SizeClass& c = of(size_class);
  for (std::uint32_t i = 0; i < count; ++i) (*c.table)[first + i].chain = i + 1 < count ? first + i + 1 : none;
  c.free.push(*c.table, first);
}

/// Returns the number of a new slab. The table and `slabs` then have room for it, but it has no pages yet.
std::uint32_t Central::new_slab(int size_class) {
  SizeClass& c = of(size_class);
  if (c.table == nullptr) c.table = std::make_unique<SmallBlocks>();
  if (!c.numbers_to_reuse.empty()) return c.numbers_to_reuse.back();
  const auto number = static_cast<std::uint32_t>(c.slabs.size());
  if (number >= none / slab_blocks(size_class)) throw std::bad_alloc();
  c.table->grow((number + 1) * slab_blocks(size_class));
  c.slabs.push_back(none);
  // All numbers may have to wait for reuse, and drain_class() adds them where it must not fail.
  c.numbers_to_reuse.reserve(c.slabs.capacity());
  c.numbers_to_reuse.push_back(number);
  return number;
}

std::size_t Central::carve_slab(int size_class, std::span<std::byte*> out) {
  SizeClass& c = of(size_class);
  const std::uint32_t number = new_slab(size_class);
  // Another thread may have carved a slab, or freed blocks, while this one waited for the lock.
  if (const std::uint32_t batch = c.free.pop(*c.table); batch != none) return unpack(c, batch, out);
  const std::uint32_t span = run_of(slab_shapes[static_cast<std::size_t>(size_class)].pages, Zone::slabs);
  Span& slab = heap_.spans()[span];
  slab.size_class = static_cast<std::int16_t>(size_class);
  slab.slot = number;
  heap_.map_all_pages(span);
  slab.state.store(Span::State::slab, std::memory_order_relaxed);
  for (auto& note : heap_.notes(span)) note.store(0, std::memory_order_relaxed);
  // `number` may not be the last entry any more: run_of() may have drained slabs and added their numbers.
  std::erase(c.numbers_to_reuse, number);
  c.slabs[number] = span;
  slab_bytes_ += slab.pages * page;

  const std::uint32_t total = slab_blocks(size_class), first = number * total;
  for (std::uint32_t i = 0; i < total; ++i) {
    SmallBlock& block = (*c.table)[first + i];
    block.begin = slab.begin + i * block_bytes(size_class);
    block.guard.store(0, std::memory_order_relaxed);
  }
  // release: pairs with the acquire in take_batch(), which then sees the table.
  c.blocks.fetch_add(total, std::memory_order_release);
  const auto batch = static_cast<std::uint32_t>(batch_blocks(size_class));
  const std::uint32_t mine = std::min(batch, total);
  for (std::uint32_t i = mine; i < total; i += batch) push_chain(size_class, first + i, std::min(batch, total - i));
  for (std::uint32_t i = 0; i < mine; ++i) out[i] = slab.begin + i * block_bytes(size_class);
  return mine;
}

// -- Large blocks -----------------------------------------------------------------------------------------------------

std::byte* Central::take_large(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Span& s = heap_.spans()[run_of(static_cast<std::uint32_t>(bytes / page), Zone::blocks)];
  s.guard.store(0, std::memory_order_relaxed);
  s.state.store(Span::State::block, std::memory_order_relaxed);
  return s.begin;
}

void Central::give_large(std::byte* block) noexcept {
  const std::lock_guard lock(mutex_);
  heap_.give(heap_.find(block));
}

// -- Pages ------------------------------------------------------------------------------------------------------------

/// Returns whether never used pages may be used while free small blocks keep their pages. This holds if all slabs
/// together, or all used pages beyond the peak of live bytes, are at most 1/16 of that peak, or 8 MiB. Work that
/// repeats itself then finds its blocks at the same addresses.
bool Central::may_touch(std::uint32_t pages, Zone zone) const noexcept {
  const auto peak = static_cast<std::size_t>(live_.peak());
  const std::size_t little = std::max(peak / 16, std::size_t{8} << 20), more = pages * page;
  return slab_bytes_ + (zone == Zone::slabs ? more : 0) <= little || heap_.touched_bytes() + more <= peak + little;
}

/// Returns a run of pages that were used before, or `none`.
std::uint32_t Central::used_run_of(std::uint32_t pages, Zone zone) {
  const std::uint32_t run = heap_.take(pages, zone);
  return run != none ? run : heap_.extend(pages, zone, false);
}

/// Returns a run of pages that may never have been used. If no chunk has room, it takes a new chunk, and throws what
/// upstream throws.
std::uint32_t Central::untouched_run_of(std::uint32_t pages, Zone zone) {
  const std::uint32_t run = heap_.extend(pages, zone, true);
  if (run != none) return run;
  heap_.grow(pages, zone);
  return heap_.extend(pages, zone, true);
}

/// Returns a run of pages. It tries, in this order: free pages of the zone; never used pages of the zone, if
/// may_touch() allows them; pages of slabs without a live block; free pages of the other zone; never used pages without
/// a limit, of the other zone if upstream has no more.
std::uint32_t Central::run_of(std::uint32_t pages, Zone zone) {
  std::uint32_t run = used_run_of(pages, zone);
  if (run != none) return run;
  if (may_touch(pages, zone)) {
    try {
      return untouched_run_of(pages, zone);
    } catch (...) {
      // Upstream has no more memory, whatever its exception says. The sources below may still have enough.
    }
  }
  drain_small();
  if ((run = used_run_of(pages, zone)) != none) return run;
  if ((run = used_run_of(pages, other(zone))) != none) return run;
  try {
    return untouched_run_of(pages, zone);
  } catch (...) {
    if ((run = heap_.extend(pages, other(zone), true)) == none) throw;
    return run;
  }
}

void Central::drain_small() noexcept {
  for (int index = 0; index < small_classes; ++index) drain_class(index);
}

/// Returns the pages of those slabs of a small class whose blocks are all in the free list. The other blocks go back to
/// the list.
void Central::drain_class(int size_class) noexcept {
  SizeClass& c = of(size_class);
  if (c.table == nullptr) return;
  bool whole = false;
  const std::uint32_t chain = gather(size_class, whole);
  scatter(size_class, chain);
  if (!whole) return;
  for (std::uint32_t number = 0; number < c.slabs.size(); ++number) {
    const std::uint32_t span = c.slabs[number];
    if (span == none || heap_.spans()[span].gathered != slab_blocks(size_class)) continue;
    c.slabs[number] = none;
    slab_bytes_ -= heap_.spans()[span].pages * page;
    c.numbers_to_reuse.push_back(number);
    c.blocks.fetch_sub(slab_blocks(size_class), std::memory_order_relaxed);
    heap_.give(span);
  }
}

/// Takes every batch out of the free list, chains all their blocks, and counts them per slab. Sets `whole` if any slab
/// is complete.
std::uint32_t Central::gather(int size_class, bool& whole) noexcept {
  SizeClass& c = of(size_class);
  for (const std::uint32_t span : c.slabs) {
    if (span != none) heap_.spans()[span].gathered = 0;
  }
  std::uint32_t all = none;
  for (std::uint32_t batch; (batch = c.free.pop(*c.table)) != none;) {
    while (batch != none) {
      const std::uint32_t following = (*c.table)[batch].chain;
      (*c.table)[batch].chain = all;
      all = batch;
      Span& slab = heap_.spans()[c.slabs[batch / slab_blocks(size_class)]];
      whole = ++slab.gathered == slab_blocks(size_class) || whole;
      batch = following;
    }
  }
  return all;
}

/// Puts the blocks of a chain back into the free list, except blocks of slabs that are complete.
void Central::scatter(int size_class, std::uint32_t chain) noexcept {
  SizeClass& c = of(size_class);
  std::uint32_t batch = none;
  std::size_t count = 0;
  while (chain != none) {
    const std::uint32_t index = chain;
    chain = (*c.table)[index].chain;
    if (heap_.spans()[c.slabs[index / slab_blocks(size_class)]].gathered == slab_blocks(size_class)) continue;
    (*c.table)[index].chain = batch;
    batch = index;
    if (++count == batch_blocks(size_class)) {
      c.free.push(*c.table, batch);
      batch = none;
      count = 0;
    }
  }
  if (batch != none) c.free.push(*c.table, batch);
}

std::size_t Central::trim() noexcept {
  const std::lock_guard lock(mutex_);
  drain_small();
  return heap_.release_pages();
}

Located Central::locate(const void* address) noexcept {
  // The lock is needed because the address may belong to another owner, whose span may change meanwhile.
  const std::lock_guard lock(mutex_);
  const std::uint32_t span = heap_.find(address);
  if (span == none) return {.notes = heap_.note_at(address)};
  Span& s = heap_.spans()[span];
  const auto offset = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(s.begin);
  const Span::State state = s.state.load(std::memory_order_relaxed);
  if (state == Span::State::block && offset == 0) return {s.begin, s.pages * page, &s.guard, heap_.notes(span)};
  if (state != Span::State::slab || offset >= s.pages * page) return {.notes = heap_.note_at(address)};
  const std::size_t bytes = block_bytes(s.size_class), position = offset / bytes;
  if (offset % bytes != 0 || position >= slab_blocks(s.size_class)) return {};
  SmallBlock& block =
      (*of(s.size_class).table)[s.slot * slab_blocks(s.size_class) + static_cast<std::uint32_t>(position)];
  return {block.begin, bytes, &block.guard};
}

}  // namespace convolume::allocator
