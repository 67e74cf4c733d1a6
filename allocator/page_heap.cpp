#include "allocator/page_heap.hpp"

#include <algorithm>
#include <bit>
#include <new>

#include <sys/mman.h>

#include "allocator/poison.hpp"
#include "convolume/memory.hpp"

namespace convolume::allocator {
namespace {

constexpr std::size_t least_step = std::size_t{64} << 20, largest_step = std::size_t{1} << 30;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

/// One piece of memory from upstream. The last run before `frontier` is in use. Pages from `frontier` on are free;
/// pages from `touched` on were never in use.
struct Chunk {
  std::byte* begin;
  std::uint32_t pages;
  Zone zone;
  std::uint32_t frontier = 0, touched = 0;
  /// Index of the span + 1, for the first and the last page of every span and for every page of a slab. Other entries
  /// are stale.
  std::unique_ptr<std::atomic<std::uint32_t>[]> span_of;
  std::unique_ptr<std::atomic<std::uint8_t>[]> notes;

  std::size_t page_of(const std::byte* address) const { return static_cast<std::size_t>(address - begin) / page; }
};

PageHeap::PageHeap(std::pmr::memory_resource* upstream) : upstream_(upstream) {}

PageHeap::~PageHeap() {
  for (const auto& chunk : chunks_) {
    const std::size_t bytes = chunk->pages * page;
    unpoison(chunk->begin, bytes);
    upstream_->deallocate(chunk->begin, bytes, huge_page);
  }
}

int PageHeap::bin_of(std::uint32_t pages) noexcept {
  if (pages < 16) return static_cast<int>(pages);
  const int doubling = static_cast<int>(std::bit_width(pages)) - 5;  // 16..31 is 0
  return 16 + 8 * doubling + static_cast<int>((pages >> (doubling + 1)) & 7);
}

/// Returns the smallest run with at least `pages` in the list that begins with `first`, or `none`.
std::uint32_t PageHeap::smallest_of(std::uint32_t first, std::uint32_t pages) noexcept {
  std::uint32_t best = none;
  for (std::uint32_t s = first; s != none; s = spans_[s].next) {
    if (spans_[s].pages < pages) continue;
    if (best == none || spans_[s].pages < spans_[best].pages ||
        (spans_[s].pages == spans_[best].pages && spans_[s].begin < spans_[best].begin)) {
      best = s;
    }
  }
  return best;
}

std::uint32_t PageHeap::best_fit(std::uint32_t pages, const Bins& among) noexcept {
  const int first = bin_of(pages);
  for (auto word = static_cast<std::size_t>(first / 64); word < among.filled.size(); ++word) {
    std::uint64_t candidates = among.filled[word];
    if (word == static_cast<std::size_t>(first / 64)) candidates &= ~std::uint64_t{0} << (first % 64);
    for (; candidates != 0; candidates &= candidates - 1) {
      const std::size_t bin = word * 64 + static_cast<std::size_t>(std::countr_zero(candidates));
      const std::uint32_t found = smallest_of(among.first[bin], pages);
      if (found != none) return found;
    }
  }
  return none;
}

void PageHeap::list(std::uint32_t span) noexcept {
  Span& s = spans_[span];
  const auto bin = static_cast<std::size_t>(bin_of(s.pages));
  s.previous = none;
  Bins& runs = bins_of(s.chunk->zone);
  s.next = runs.first[bin];
  if (s.next != none) spans_[s.next].previous = span;
  runs.first[bin] = span;
  runs.filled[bin / 64] |= std::uint64_t{1} << (bin % 64);
}

void PageHeap::unlist(std::uint32_t span) noexcept {
  Span& s = spans_[span];
  const auto bin = static_cast<std::size_t>(bin_of(s.pages));
  Bins& runs = bins_of(s.chunk->zone);
  if (s.next != none) spans_[s.next].previous = s.previous;
  if (s.previous != none) {
    spans_[s.previous].next = s.next;
  } else if ((runs.first[bin] = s.next) == none) {
    runs.filled[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
  }
}

/// Makes sure that the next new_record() cannot fail.
void PageHeap::reserve_record() {
  if (unused_records_ != none) return;
  if (records_ == none) throw std::bad_alloc();
  spans_.grow(records_ + 1);
  spans_[records_].state.store(Span::State::unused, std::memory_order_relaxed);
  spans_[records_].next = none;
  unused_records_ = records_++;
}

std::uint32_t PageHeap::new_record() noexcept {
  const std::uint32_t record = unused_records_;
  unused_records_ = spans_[record].next;
  return record;
}

void PageHeap::drop_record(std::uint32_t span) noexcept {
  spans_[span].state.store(Span::State::unused, std::memory_order_relaxed);
  spans_[span].next = unused_records_;
  unused_records_ = span;
}

std::uint32_t PageHeap::new_span(Chunk& chunk, std::uint32_t first, std::uint32_t pages) noexcept {
  const std::uint32_t span = new_record();
  Span& s = spans_[span];
  s.begin = chunk.begin + first * page;
  s.chunk = &chunk;
  s.pages = pages;
  s.guard.store(0, std::memory_order_relaxed);
  map_ends(span);
  return span;
}

// Entries of the map are relaxed. A thread that asks about its own block got the block from a thread that wrote the
// entries before. A thread that asks about another address must check the answer against the span itself.
void PageHeap::map_ends(std::uint32_t span) noexcept {
  const Span& s = spans_[span];
  const std::size_t first = s.chunk->page_of(s.begin);
  s.chunk->span_of[first].store(span + 1, std::memory_order_relaxed);
  s.chunk->span_of[first + s.pages - 1].store(span + 1, std::memory_order_relaxed);
}

void PageHeap::map_all_pages(std::uint32_t span) noexcept {
  const Span& s = spans_[span];
  const std::size_t first = s.chunk->page_of(s.begin);
  for (std::size_t i = 0; i < s.pages; ++i) s.chunk->span_of[first + i].store(span + 1, std::memory_order_relaxed);
}

std::span<std::atomic<std::uint8_t>> PageHeap::notes(std::uint32_t span) noexcept {
  const Span& s = spans_[span];
  return {s.chunk->notes.get() + s.chunk->page_of(s.begin), s.pages};
}

std::span<std::atomic<std::uint8_t>> PageHeap::note_at(const void* address) noexcept {
  Chunk* chunk = chunk_of(address);
  if (chunk == nullptr || reinterpret_cast<std::uintptr_t>(address) % page != 0) return {};
  return {chunk->notes.get() + chunk->page_of(static_cast<const std::byte*>(address)), 1};
}

std::uint32_t PageHeap::take(std::uint32_t pages, Zone zone) {
  const std::uint32_t found = best_fit(pages, bins_of(zone));
  if (found == none) return none;
  Span& s = spans_[found];
  const std::uint32_t rest = s.pages - pages;
  if (rest != 0) reserve_record();
  unlist(found);
  if (rest == 0) return found;
  s.pages = pages;
  map_ends(found);
  const auto first = static_cast<std::uint32_t>(s.chunk->page_of(s.begin));
  const std::uint32_t remainder = new_span(*s.chunk, first + pages, rest);
  spans_[remainder].state.store(Span::State::free, std::memory_order_relaxed);
  list(remainder);
  return found;
}

void PageHeap::set_touched(Chunk& chunk, std::uint32_t pages) noexcept {
  touched_bytes_.store(touched_bytes() - chunk.touched * page + pages * page, std::memory_order_relaxed);
  chunk.touched = pages;
}

std::uint32_t PageHeap::extend(std::uint32_t pages, Zone zone, bool untouched) {
  const auto room = [&](const auto& c) { return c->zone == zone && c->pages - c->frontier >= pages; };
  const auto found = std::find_if(chunks_.begin(), chunks_.end(), room);
  if (found == chunks_.end()) return none;
  Chunk& chunk = **found;
  const std::uint32_t first = chunk.frontier, behind = first + pages;
  if (behind > chunk.touched && !untouched) return none;
  reserve_record();
  if (behind > chunk.touched) {
    set_touched(chunk, behind);
  }
  chunk.frontier = behind;
  return new_span(chunk, first, pages);
}

std::size_t PageHeap::bytes_of(Zone zone) const noexcept {
  std::size_t bytes = 0;
  for (const auto& chunk : chunks_) bytes += chunk->zone == zone ? chunk->pages * page : 0;
  return bytes;
}

/// Takes `bytes` from upstream, or `least` if upstream does not have as much. Stores the size in `bytes`.
std::byte* PageHeap::ask_upstream(std::size_t& bytes, std::size_t least) {
  if (bytes > least) {
    try {
      return static_cast<std::byte*>(upstream_->allocate(bytes, huge_page));
    } catch (...) {  // some resources throw their own exception; the next call throws it again
      bytes = least;
    }
  }
  return static_cast<std::byte*>(upstream_->allocate(bytes, huge_page));
}

/// Adds a chunk. The size of chunks grows with the bytes already held, so that there are few chunks; runs are not
/// joined across chunks. Pages that are never used cost only address space.
void PageHeap::grow(std::uint32_t pages, Zone zone) {
  const std::size_t least = round_up(pages * page, huge_page);
  std::size_t bytes = least + std::clamp(bytes_of(zone), least_step, largest_step);
  auto chunk = std::make_unique<Chunk>();
  chunk->zone = zone;
  chunks_.reserve(chunks_.size() + 1);
  chunk->span_of = std::make_unique<std::atomic<std::uint32_t>[]>(bytes / page);
  chunk->notes = std::make_unique<std::atomic<std::uint8_t>[]>(bytes / page);
  chunk->begin = ask_upstream(bytes, least);
  chunk->pages = static_cast<std::uint32_t>(bytes / page);
  try {
    map_chunk(*chunk);
  } catch (...) {
    upstream_->deallocate(chunk->begin, bytes, huge_page);
    throw;
  }
  poison(chunk->begin, bytes);
  chunks_.push_back(std::move(chunk));
  upstream_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  upstream_calls_.fetch_add(1, std::memory_order_relaxed);
}

void PageHeap::map_chunk(Chunk& chunk) {
  const auto region = reinterpret_cast<std::uintptr_t>(chunk.begin) >> region_bits;
  const std::size_t regions = chunk.pages * page / huge_page;
  if ((region + regions) >> (address_bits - region_bits) != 0) throw std::bad_alloc();
  for (std::size_t r = region; r < region + regions; ++r) {
    auto& leaf = map_[r >> leaf_bits];
    if (leaf.load(std::memory_order_relaxed) == nullptr) {
      leaves_.reserve(leaves_.size() + 1);
      leaves_.push_back(std::make_unique<Leaf>());
      // release, here and below: find() may be called for any address while the map grows.
      leaf.store(leaves_.back().get(), std::memory_order_release);
    }
  }
  for (std::size_t r = region; r < region + regions; ++r) {
    (*map_[r >> leaf_bits].load(std::memory_order_relaxed))[r % std::tuple_size_v<Leaf>].store(
        &chunk, std::memory_order_release);
  }
}

Chunk* PageHeap::chunk_of(const void* address) noexcept {
  const std::uintptr_t region = reinterpret_cast<std::uintptr_t>(address) >> region_bits;
  if (region >> (address_bits - region_bits) != 0) return nullptr;
  // acquire, here and below: pairs with the releases in map_chunk().
  Leaf* leaf = map_[region >> leaf_bits].load(std::memory_order_acquire);
  if (leaf == nullptr) return nullptr;
  return (*leaf)[region % std::tuple_size_v<Leaf>].load(std::memory_order_acquire);
}

std::uint32_t PageHeap::find(const void* address) noexcept {
  Chunk* chunk = chunk_of(address);
  if (chunk == nullptr) return none;
  return chunk->span_of[chunk->page_of(static_cast<const std::byte*>(address))].load(std::memory_order_relaxed) - 1;
}

/// Joins a free neighbour, directly before or behind, with `span`.
void PageHeap::swallow(std::uint32_t span, std::uint32_t neighbour) noexcept {
  unlist(neighbour);
  spans_[span].begin = std::min(spans_[span].begin, spans_[neighbour].begin);
  spans_[span].pages += spans_[neighbour].pages;
  drop_record(neighbour);
}

void PageHeap::give(std::uint32_t span) noexcept {
  Span& s = spans_[span];
  s.state.store(Span::State::free, std::memory_order_relaxed);
  Chunk& chunk = *s.chunk;
  const std::size_t first = chunk.page_of(s.begin);
  const std::size_t behind = first + s.pages;
  const auto free_at = [&](std::size_t index) {
    const std::uint32_t other = chunk.span_of[index].load(std::memory_order_relaxed) - 1;
    return spans_[other].state.load(std::memory_order_relaxed) == Span::State::free ? other : none;
  };
  const std::uint32_t left = first > 0 ? free_at(first - 1) : none;
  const std::uint32_t right = behind < chunk.frontier ? free_at(behind) : none;
  if (left != none) swallow(span, left);
  if (right != none) swallow(span, right);
  if (behind == chunk.frontier) {
    chunk.frontier = static_cast<std::uint32_t>(chunk.page_of(s.begin));
    drop_record(span);
    return;
  }
  map_ends(span);
  list(span);
}

std::size_t PageHeap::release(Chunk& chunk, std::size_t first, std::size_t pages) noexcept {
  if (pages == 0 || ::madvise(chunk.begin + first * page, pages * page, MADV_DONTNEED) != 0) return 0;
  for (std::size_t i = first; i < first + pages; ++i) chunk.notes[i].store(0, std::memory_order_relaxed);
  return pages * page;
}

std::size_t PageHeap::release_pages() noexcept {
  if (!upstream_->is_equal(*mmap_resource())) return 0;
  std::size_t released = 0;
  for (const Bins& runs : bins_) {
    for (const std::uint32_t first : runs.first) {
      for (std::uint32_t s = first; s != none; s = spans_[s].next) {
        released += release(*spans_[s].chunk, spans_[s].chunk->page_of(spans_[s].begin), spans_[s].pages);
      }
    }
  }
  for (const auto& chunk : chunks_) {
    const std::size_t behind = release(*chunk, chunk->frontier, chunk->touched - chunk->frontier);
    if (behind == 0) continue;
    released += behind;
    set_touched(*chunk, chunk->frontier);
  }
  return released;
}

}  // namespace convolume::allocator
