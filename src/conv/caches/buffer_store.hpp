// Equal buffers that are allocated when they are first written.
#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <vector>

#include "conv/caches/cache_lines.hpp"

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

inline std::shared_ptr<BufferStore> make_store(std::pmr::memory_resource* memory, std::size_t buffers,
                                               std::size_t bytes_each) {
  auto store = std::make_shared<BufferStore>();
  store->init(memory, buffers, bytes_each);
  return store;
}

}  // namespace convolume::conv
