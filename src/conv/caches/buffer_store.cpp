#include "conv/caches/buffer_store.hpp"

#include "convolume/error.hpp"

namespace convolume::conv {

void BufferStore::init(std::pmr::memory_resource* memory, std::size_t buffers, std::size_t bytes_each) {
  release();
  memory_ = memory;
  slot_ = nullptr;
  bytes_each_ = bytes_each;
  buffers_.assign(buffers, nullptr);
}

void* BufferStore::acquire(std::size_t index) {
  if (slot_ != nullptr) return at_slot(index);
  void*& buffer = buffers_[index];
  if (buffer == nullptr) buffer = memory_->allocate(bytes_each_, 64);
  return buffer;
}

void BufferStore::throw_never_filled() {
  throw StaleCache(
      "convolution: a cache is read that holds nothing (never filled, released, or left by a failed run); "
      "run forward with these spectra, or prepare these weights, first");
}

void BufferStore::place(std::byte* memory) noexcept {
  release();
  memory_ = nullptr;
  slot_ = nullptr;
  for (void*& buffer : buffers_) {
    buffer = memory;
    memory += stride();
  }
}

void BufferStore::place_in(void* const* slot) noexcept {
  release();
  memory_ = nullptr;
  slot_ = slot;
}

void BufferStore::release() noexcept {
  if (memory_ == nullptr) return;
  for (void*& buffer : buffers_) {
    if (buffer != nullptr) memory_->deallocate(buffer, bytes_each_, 64);
    buffer = nullptr;
  }
}

std::size_t BufferStore::bytes() const noexcept {
  std::size_t held = 0;
  for (const void* buffer : buffers_) held += buffer != nullptr ? bytes_each_ : 0;
  return held;
}

}  // namespace convolume::conv
