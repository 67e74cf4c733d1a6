// Defines the contents of Spectra and PreparedWeights.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "conv/caches/buffer_store.hpp"
#include "convolume/conv.hpp"

namespace convolume::conv {

/// The functions below serve Spectra::Impl and PreparedWeights::Impl. A cache consists of stores that lie one after the
/// other in memory, followed by the stores of its groups.
template <class Cache>
std::size_t capacity_of(const Cache& cache) noexcept {
  std::size_t bytes = 0;
  for (const BufferStore* store : cache.stores()) bytes += store->capacity();
  for (const auto& group : cache.groups) bytes += capacity_of(*group);
  return bytes;
}
template <class Cache>
std::size_t bytes_of_cache(const Cache& cache) noexcept {
  std::size_t bytes = 0;
  for (const BufferStore* store : cache.stores()) bytes += store->bytes();
  for (const auto& group : cache.groups) bytes += bytes_of_cache(*group);
  return bytes;
}
/// Places the stores of a cache. `memory_of(cache, store)` returns the pointer to the memory for a store; the pointer
/// is then moved behind it.
template <class Cache, class MemoryOf>
void place_cache(Cache& cache, const MemoryOf& memory_of) noexcept {
  for (BufferStore* store : cache.stores()) {
    std::byte*& memory = memory_of(cache, *store);
    store->place(memory);
    memory += store->capacity();
  }
  for (const auto& group : cache.groups) place_cache(*group, memory_of);
  cache.version.store(0, std::memory_order_relaxed);  // the contents of the memory are unknown
}
template <class Cache>
void release_cache(Cache& cache) noexcept {
  for (BufferStore* store : cache.stores()) store->release();
  for (const auto& group : cache.groups) release_cache(*group);
}

}  // namespace convolume::conv

namespace convolume {

struct Spectra::Impl {
  std::pmr::memory_resource* memory = nullptr;
  std::string geometry;  ///< text; plans with the same text can read this cache
  conv::BufferStore maps;
  std::vector<std::uint64_t> source_hash;     ///< of x, taken when the cache was filled; see checks_sources()
  std::vector<std::unique_ptr<Impl>> groups;  ///< one per group, if the engine handles groups of channels one by one
  std::atomic<std::uint64_t> version{0};

  std::array<conv::BufferStore*, 1> stores() noexcept { return {&maps}; }
  std::array<const conv::BufferStore*, 1> stores() const noexcept { return {&maps}; }
};

struct PreparedWeights::Impl {
  std::pmr::memory_resource* memory = nullptr;
  std::string geometry;
  conv::BufferStore spectra;                  ///< as many as the engine needs; empty if spectra are recomputed
  bool forward_only_spectra = false;          ///< whether backward passes do not read `spectra`
  conv::BufferStore packed;                   ///< the weights as the engine packs them, in one buffer
  std::vector<std::unique_ptr<Impl>> groups;  ///< one per group, if the engine handles groups of channels one by one
  /// Which passes read the weights. If it is one pass only, the tensor stays as it is until then, so the engine may
  /// keep a view of it instead of a packed copy.
  enum class Readers { all, forward, backward_data } readers = Readers::all;
  ConstTensorView tensor{};  ///< that view

  std::atomic<std::uint64_t> version{0};

  std::array<conv::BufferStore*, 2> stores() noexcept { return {&spectra, &packed}; }
  std::array<const conv::BufferStore*, 2> stores() const noexcept { return {&spectra, &packed}; }
};

}  // namespace convolume
