// The insides of Spectra and PreparedWeights.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "convolume/conv.hpp"

namespace convolume::conv {

/// `bytes`, rounded up to lines of the cache.
constexpr std::size_t whole_lines(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

/// Equal-sized 64-byte aligned buffers that are allocated when they are first written. Distinct buffers may be
/// acquired by distinct threads at once.
class BufferStore {
 public:
  BufferStore() = default;
  ~BufferStore() { release(); }
  BufferStore(const BufferStore&) = delete;
  BufferStore& operator=(const BufferStore&) = delete;

  void init(std::pmr::memory_resource* memory, std::size_t buffers, std::size_t bytes_each);
  void* acquire(std::size_t index);  ///< allocates on first use
  /// Throws StaleCache where nothing was written: never filled, released, or left by a run that failed; but for
  /// buffers behind a slot, whose memory is there while tasks run.
  const void* get(std::size_t index) const {
    if (slot_ != nullptr) return at_slot(index);
    if (buffers_[index] == nullptr) throw_never_filled();
    return buffers_[index];
  }
  /// Frees what it has taken itself.
  void release() noexcept;
  std::size_t bytes() const noexcept;  ///< held now
  std::size_t size() const noexcept { return buffers_.size(); }
  /// Of all buffers, each rounded up to 64 bytes.
  std::size_t capacity() const noexcept { return buffers_.size() * stride(); }
  /// Puts the buffers into `memory`, which holds capacity() bytes, aligned to 64, and stays the caller's.
  void place(std::byte* memory) noexcept;
  /// The same for memory that `*slot` points to whenever a buffer is used.
  void place_in(void* const* slot) noexcept;

 private:
  [[noreturn]] static void throw_never_filled();
  std::size_t stride() const noexcept { return whole_lines(bytes_each_); }
  void* at_slot(std::size_t index) const noexcept { return static_cast<std::byte*>(*slot_) + index * stride(); }

  std::pmr::memory_resource* memory_ = nullptr;  // null where the buffers were placed
  void* const* slot_ = nullptr;                  // where they were placed by place_in()
  std::size_t bytes_each_ = 0;
  std::vector<void*> buffers_;
};

/// Buffers that the tasks of a run pass on to each other: in the caller's workspace, where there is one; else allocated
/// as they are first written, and given back by a task.
class RunBuffers {
 public:
  /// `store` says how many and how large.
  RunBuffers(TaskGraph& graph, Workspace* workspace, std::shared_ptr<BufferStore> store);
  /// What all tasks that use them have to wait for.
  const std::vector<TaskId>& ready() const { return place_.ready; }
  /// Behind `last`, which all other tasks that use them come before. `name` is that of the task that gives them back.
  void end(TaskGraph& graph, const char* name, std::span<const TaskId> last) const;

 private:
  Workspace* workspace_;
  std::shared_ptr<BufferStore> store_;
  Workspace::Buffer place_{};
};

inline std::shared_ptr<BufferStore> make_store(std::pmr::memory_resource* memory, std::size_t buffers,
                                               std::size_t bytes_each) {
  auto store = std::make_shared<BufferStore>();
  store->init(memory, buffers, bytes_each);
  return store;
}

/// A stretch of scratch from a memory resource, freed at the end of the scope.
class Scratch {
 public:
  Scratch(std::pmr::memory_resource* memory, std::size_t bytes)
      : memory_(memory), bytes_(bytes), data_(static_cast<std::byte*>(memory->allocate(bytes, 64))) {}
  ~Scratch() { memory_->deallocate(data_, bytes_, 64); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  /// The next `bytes` of it, rounded up to 64.
  template <class T>
  T* take(std::size_t bytes) {
    auto* part = reinterpret_cast<T*>(data_ + used_);
    used_ += whole_lines(bytes);
    return part;
  }

 private:
  std::pmr::memory_resource* memory_;
  std::size_t bytes_, used_ = 0;
  std::byte* data_;
};

/// Stores that lie behind each other, and those of groups behind them: what Spectra and PreparedWeights are made of.
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
template <class Cache>
std::byte* place_cache(Cache& cache, std::byte* memory) noexcept {
  for (BufferStore* store : cache.stores()) {
    store->place(memory);
    memory += store->capacity();
  }
  for (const auto& group : cache.groups) memory = place_cache(*group, memory);
  cache.version.store(0, std::memory_order_relaxed);  // what is there, nobody knows
  return memory;
}
template <class Cache>
void release_cache(Cache& cache) noexcept {
  for (BufferStore* store : cache.stores()) store->release();
  for (const auto& group : cache.groups) release_cache(*group);
}

/// Hash of the voxels of one feature map, or, of a blocked tensor, of one channel block.
std::uint64_t hash_map(const ConstTensorView& tensor, index_t n, index_t c);
/// Hash of all of them.
std::uint64_t hash_tensor(const ConstTensorView& tensor);

}  // namespace convolume::conv

namespace convolume {

struct Spectra::Impl {
  std::pmr::memory_resource* memory = nullptr;
  std::string geometry;  ///< whose plans may read it
  conv::BufferStore maps;
  std::vector<std::uint64_t> source_hash;     ///< of each feature map when it was filled; kept in debug builds
  std::vector<std::unique_ptr<Impl>> groups;  ///< of an engine that treats groups of channels one by one
  std::atomic<std::uint64_t> version{0};

  std::array<conv::BufferStore*, 1> stores() noexcept { return {&maps}; }
  std::array<const conv::BufferStore*, 1> stores() const noexcept { return {&maps}; }
};

struct PreparedWeights::Impl {
  std::pmr::memory_resource* memory = nullptr;
  std::string geometry;
  conv::BufferStore spectra;  ///< per (coarse, fine) pair of channels; empty where spectra are recomputed
  conv::BufferStore packed;   ///< the weights themselves, dense; one buffer
  std::vector<std::unique_ptr<Impl>> groups;  ///< of an engine that treats groups of channels one by one

  std::atomic<std::uint64_t> version{0};

  std::array<conv::BufferStore*, 2> stores() noexcept { return {&spectra, &packed}; }
  std::array<const conv::BufferStore*, 2> stores() const noexcept { return {&spectra, &packed}; }
};

}  // namespace convolume
