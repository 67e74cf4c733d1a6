// The insides of Spectra and PreparedWeights.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "convolume/conv.hpp"

namespace convolume::conv {

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
  /// Throws StaleCache where nothing was written: never filled, released, or left by a run that failed.
  const void* get(std::size_t index) const {
    if (buffers_[index] == nullptr) throw_never_filled();
    return buffers_[index];
  }
  void release() noexcept;
  std::size_t bytes() const noexcept;
  std::size_t size() const noexcept { return buffers_.size(); }

 private:
  [[noreturn]] static void throw_never_filled();

  std::pmr::memory_resource* memory_ = nullptr;
  std::size_t bytes_each_ = 0;
  std::vector<void*> buffers_;
};

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
    used_ += (bytes + 63) / 64 * 64;
    return part;
  }

 private:
  std::pmr::memory_resource* memory_;
  std::size_t bytes_, used_ = 0;
  std::byte* data_;
};

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

  std::size_t bytes() const noexcept {
    std::size_t held = maps.bytes();
    for (const auto& group : groups) held += group->bytes();
    return held;
  }
  void release() noexcept {
    maps.release();
    for (const auto& group : groups) group->release();
  }
};

struct PreparedWeights::Impl {
  std::pmr::memory_resource* memory = nullptr;
  std::string geometry;
  conv::BufferStore spectra;  ///< per (coarse, fine) pair of channels; empty where spectra are recomputed
  conv::BufferStore packed;   ///< the weights themselves, dense; one buffer
  std::vector<std::unique_ptr<Impl>> groups;  ///< of an engine that treats groups of channels one by one

  std::size_t bytes() const noexcept {
    std::size_t held = spectra.bytes() + packed.bytes();
    for (const auto& group : groups) held += group->bytes();
    return held;
  }
  std::atomic<std::uint64_t> version{0};
};

}  // namespace convolume
