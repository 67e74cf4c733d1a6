// Runs of pages, cut from large chunks and joined again when they are free.
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

/// What a chunk is for. Slabs come to stay, at a moment that depends on what threads cache; among large blocks they
/// would keep apart what is to be joined, and let blocks that come again in the same order find another place.
enum class Zone : std::uint8_t { blocks, slabs };
constexpr Zone other(Zone zone) { return zone == Zone::blocks ? Zone::slabs : Zone::blocks; }

/// A run of pages of one chunk: a large block, a slab of small ones, or free.
struct Span {
  enum class State : std::uint8_t { unused, free, block, slab };

  std::byte* begin;
  Chunk* chunk;
  std::uint32_t pages;
  std::uint32_t previous, next;  ///< in the heap's list of free runs; `next` also in the list of unused records
  std::uint32_t slot;            ///< of a slab: its number in its class
  std::uint32_t gathered;        ///< of a slab, while its class is being searched: its free blocks
  std::int16_t size_class;       ///< of a slab
  std::atomic<State> state;
  std::atomic<std::uint8_t> guard;  ///< of a block: see hardening.hpp
};

using Spans = BlockTable<StdAtomics, Span>;

/// Free runs in bins by size, eight per doubling; the smallest run that fits is taken, the lowest one of these. What is
/// free behind the last run of a chunk is no run but room, taken where none fits, in the oldest chunk that has enough:
/// where a run lies follows from what is live, and not from which pages were used before.
///
/// Only find() is thread-safe; everything else has one caller at a time. Memory comes from upstream in chunks of whole,
/// aligned huge pages and goes back at destruction.
class PageHeap {
 public:
  explicit PageHeap(std::pmr::memory_resource* upstream);
  ~PageHeap();
  PageHeap(const PageHeap&) = delete;
  PageHeap& operator=(const PageHeap&) = delete;

  Spans& spans() noexcept { return spans_; }

  /// A run of `pages` between others; or `none`. Throws std::bad_alloc where the table of spans cannot grow.
  std::uint32_t take(std::uint32_t pages, Zone zone);
  /// The same behind the last run of a chunk, from pages that were in use before, or that were never where allowed.
  std::uint32_t extend(std::uint32_t pages, Zone zone, bool untouched);
  /// A new chunk with at least `pages`. Throws what upstream throws, and then has changed nothing.
  void grow(std::uint32_t pages, Zone zone);
  /// Takes a run back and joins it with its free neighbours.
  void give(std::uint32_t span) noexcept;
  /// find() answers with this span for every page of it, not for its first one only.
  void map_all_pages(std::uint32_t span) noexcept;
  /// A byte for each page of a span, 0 at first and after the page was given back to the system, whose meaning is the
  /// caller's: hardening.hpp. They stay when runs are cut and joined.
  std::span<std::atomic<std::uint8_t>> notes(std::uint32_t span) noexcept;
  /// That of the page that begins at `address`; empty where none of this heap does.
  std::span<std::atomic<std::uint8_t>> note_at(const void* address) noexcept;
  /// Gives the pages of free runs back to the system, where upstream is mmap_resource(); returns how many bytes.
  std::size_t release_pages() noexcept;

  /// The span that holds `address`, or `none`: of a block the first page counts, of a slab every one. Any thread may
  /// ask about any address at any time.
  std::uint32_t find(const void* address) noexcept;

  /// Bytes of pages that were ever in use, but for those behind the last run of a chunk that release_pages() gave back.
  std::size_t touched_bytes() const noexcept { return touched_bytes_.load(std::memory_order_relaxed); }
  std::size_t upstream_bytes() const noexcept { return upstream_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t upstream_calls() const noexcept { return upstream_calls_.load(std::memory_order_relaxed); }

 private:
  // Bits 21-46 of an address: the user's half of an address space of four levels, which the kernel stays in unless it
  // is asked for more.
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
