// Declares the scratch of one task.
#pragma once

#include <cstddef>
#include <memory_resource>

#include "conv/caches/cache_lines.hpp"

namespace convolume::conv {

/// Scratch from a memory resource. It is freed at the end of the scope.
class Scratch {
 public:
  Scratch(std::pmr::memory_resource* memory, std::size_t bytes)
      : memory_(memory), bytes_(bytes), data_(static_cast<std::byte*>(memory->allocate(bytes, 64))) {}
  ~Scratch() { memory_->deallocate(data_, bytes_, 64); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  /// Returns the next `bytes` bytes of the scratch, rounded up to 64.
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

}  // namespace convolume::conv
