// Declares equal buffers that are allocated when they are first written.
#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <vector>

#include "conv/caches/cache_lines.hpp"

namespace convolume::conv {

/// Equal-sized buffers, aligned to 64 bytes, that are allocated when they are first written. Several threads may
/// acquire different buffers concurrently.
class BufferStore {
 public:
  BufferStore() = default;
  ~BufferStore() { release(); }
  BufferStore(const BufferStore&) = delete;
  BufferStore& operator=(const BufferStore&) = delete;

  void init(std::pmr::memory_resource* memory, std::size_t buffers, std::size_t bytes_each);
  void* acquire(std::size_t index);  ///< allocates on first use
  /// Returns a buffer that was acquired before. Throws StaleCache if nothing was written into it: it was never filled,
  /// it was released, or a failed run left it empty. Buffers behind a slot are not checked, because their memory always
  /// exists while tasks run.
  const void* get(std::size_t index) const {
    if (slot_ != nullptr) return at_slot(index);
    if (buffers_[index] == nullptr) throw_never_filled();
    return buffers_[index];
  }
  /// Frees the memory that the store allocated itself. Placed memory stays.
  void release() noexcept;
  std::size_t bytes() const noexcept;  ///< bytes that are allocated or placed now
  std::size_t size() const noexcept { return buffers_.size(); }
  /// Returns the bytes of all buffers, each rounded up to 64 bytes.
  std::size_t capacity() const noexcept { return buffers_.size() * stride(); }
  /// Puts the buffers into `memory`, which holds capacity() bytes, is aligned to 64 bytes, and stays the caller's.
  void place(std::byte* memory) noexcept;
  /// Does the same with the memory that `*slot` points to at the time when a buffer is used.
  void place_in(void* const* slot) noexcept;

 private:
  [[noreturn]] static void throw_never_filled();
  std::size_t stride() const noexcept { return whole_lines(bytes_each_); }
  void* at_slot(std::size_t index) const noexcept { return static_cast<std::byte*>(*slot_) + index * stride(); }

  std::pmr::memory_resource* memory_ = nullptr;  // null if the buffers were placed
  void* const* slot_ = nullptr;                  // argument of place_in(), or null
  std::size_t bytes_each_ = 0;
  std::vector<void*> buffers_;
};

inline std::shared_ptr<BufferStore> make_store(std::pmr::memory_resource* memory, std::size_t buffers,
                                               std::size_t bytes_each) {
  auto store = std::make_shared<BufferStore>();
  store->init(memory, buffers, bytes_each);
  return store;
}

}  // namespace convolume::conv
