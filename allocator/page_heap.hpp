// Runs of pages, cut from large chunks and joined again when they are free. Terms:
//
// - A memory chunk is memory that the page heap takes from upstream in one piece, in whole huge pages.
// - A page run is consecutive pages of one chunk: a large block, a slab, or free memory. A span is its record.
// - The frontier is the page of a chunk behind its last page run. All pages from there on are free.
// - A zone is the use of a chunk: large blocks or slabs.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "allocator/free_list.hpp"
#include "allocator/size_classes.hpp"

namespace convolume::allocator {

constexpr std::size_t huge_page = std::size_t{2} << 20;

struct Chunk;

/// The use of a chunk. Slabs stay for a long time, and when they appear depends on what threads cache. Among large
/// blocks, slabs would prevent the joining of free runs, and blocks that are allocated again in the same order would
/// get other addresses.
enum class Zone : std::uint8_t { blocks, slabs };
constexpr Zone other(Zone zone) { return zone == Zone::blocks ? Zone::slabs : Zone::blocks; }

/// A run of pages of one chunk: a large block, a slab of small blocks, or free.
struct Span {
  enum class State : std::uint8_t { unused, free, block, slab };

  std::byte* begin;
  Chunk* chunk;
  std::uint32_t pages;
  std::uint32_t previous, next;  ///< in the heap's list of free runs; `next` also in the list of unused records
  std::uint32_t slot;            ///< of a slab: its number in its class
  std::uint32_t gathered;        ///< of a slab, while its class is searched: its free blocks
  std::int16_t size_class;       ///< of a slab
  std::atomic<State> state;
  std::atomic<std::uint8_t> guard;  ///< of a block: see hardening.hpp
};

using Spans = BlockTable<StdAtomics, Span>;

/// The heap of pages. Free runs are in bins by size, eight per doubling. The smallest run that fits is taken; among
/// equal sizes, the one with the lowest address. Free pages behind the last run of a chunk do not form a run. They are
/// used if no run fits, in the oldest chunk that has enough of them. Therefore, the position of a run depends on what
/// is live, and not on which pages were used before.
///
/// Only find() is thread-safe; all other functions have one caller at a time. Memory comes from upstream in chunks of
/// whole, aligned huge pages, and is returned in the destructor.
class PageHeap {
 public:
  explicit PageHeap(std::pmr::memory_resource* upstream);
  ~PageHeap();
  PageHeap(const PageHeap&) = delete;
  PageHeap& operator=(const PageHeap&) = delete;

  Spans& spans() noexcept { return spans_; }

  /// Takes a free run of `pages` pages, or returns `none`. Throws std::bad_alloc if the table of spans cannot grow.
  std::uint32_t take(std::uint32_t pages, Zone zone);
  /// Takes a run behind the last run of a chunk, or returns `none`. Never used pages are taken only if `untouched`.
  std::uint32_t extend(std::uint32_t pages, Zone zone, bool untouched);
  /// Adds a chunk with at least `pages` pages. Throws what upstream throws; the heap is unchanged then.
  void grow(std::uint32_t pages, Zone zone);
  /// Takes a run back and joins it with its free neighbours.
  void give(std::uint32_t span) noexcept;
  /// Makes find() return this span for every page of it, not only for its first and last page.
  void map_all_pages(std::uint32_t span) noexcept;
  /// Returns a byte for each page of a span. It is 0 at first and after the page was given back to the system. The
  /// caller defines its meaning: see hardening.hpp. The bytes keep their values when runs are cut and joined.
  std::span<std::atomic<std::uint8_t>> notes(std::uint32_t span) noexcept;
  /// Returns the note of the page that begins at `address`, or an empty span if no page of this heap begins there.
  std::span<std::atomic<std::uint8_t>> note_at(const void* address) noexcept;
  /// Gives the pages of free runs back to the system if upstream is mmap_resource(). Returns their bytes.
  std::size_t release_pages() noexcept;

  /// Returns the span that holds `address`, or `none`. It finds a block by an address in its first page, and a slab by
  /// any address. Any thread may call it for any address at any time.
  std::uint32_t find(const void* address) noexcept;

  /// Returns the bytes of all pages that were ever in use, except pages behind the last run of a chunk that
  /// release_pages() gave back.
  std::size_t touched_bytes() const noexcept { return touched_bytes_.load(std::memory_order_relaxed); }
  std::size_t upstream_bytes() const noexcept { return upstream_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t upstream_calls() const noexcept { return upstream_calls_.load(std::memory_order_relaxed); }

 private:
  // The map covers bits 21-46 of an address: the user half of an address space with four levels. The kernel gives no
  // other addresses unless it is asked for them.
  static constexpr int address_bits = 47, leaf_bits = 14, region_bits = 21;
  static constexpr std::size_t roots = std::size_t{1} << (address_bits - region_bits - leaf_bits);
  using Leaf = std::array<std::atomic<Chunk*>, std::size_t{1} << leaf_bits>;
  static constexpr int bins = 16 + 8 * 28;

  Chunk* chunk_of(const void* address) noexcept;
  /// The free runs of a zone, in lists by size.
  struct Bins {
    Bins() { first.fill(none); }
    std::array<std::uint32_t, bins> first;
    std::array<std::uint64_t, (bins + 63) / 64> filled{};  // a bit for each bin that is not empty
  };

  static int bin_of(std::uint32_t pages) noexcept;
  Bins& bins_of(Zone zone) noexcept { return bins_[static_cast<std::size_t>(zone)]; }
  std::uint32_t smallest_of(std::uint32_t first, std::uint32_t pages) noexcept;
  std::uint32_t best_fit(std::uint32_t pages, const Bins& among) noexcept;
  void list(std::uint32_t span) noexcept;
  void unlist(std::uint32_t span) noexcept;
  void reserve_record();
  std::uint32_t new_record() noexcept;
  void drop_record(std::uint32_t span) noexcept;
  std::uint32_t new_span(Chunk& chunk, std::uint32_t first, std::uint32_t pages) noexcept;
  void map_ends(std::uint32_t span) noexcept;
  void swallow(std::uint32_t span, std::uint32_t neighbour) noexcept;
  void map_chunk(Chunk& chunk);
  void set_touched(Chunk& chunk, std::uint32_t pages) noexcept;
  std::size_t bytes_of(Zone zone) const noexcept;
  std::size_t release(Chunk& chunk, std::size_t first, std::size_t pages) noexcept;
  std::byte* ask_upstream(std::size_t& bytes, std::size_t least);

  std::pmr::memory_resource* upstream_;
  Spans spans_;
  std::uint32_t records_ = 0, unused_records_ = none;
  std::array<Bins, 2> bins_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::array<std::atomic<Leaf*>, roots> map_{};
  std::vector<std::unique_ptr<Leaf>> leaves_;
  std::atomic<std::size_t> touched_bytes_{0};
  std::atomic<std::size_t> upstream_bytes_{0};
  std::atomic<std::uint64_t> upstream_calls_{0};
};

}  // namespace convolume::allocator
