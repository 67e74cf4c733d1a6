// Aligned memory for planning and measuring. Plans execute in memory that the caller passes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace convolume::fft {

/// Holds `bytes` bytes, at least 64, aligned to 64 bytes. The constructor throws std::bad_alloc.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(std::size_t bytes)
      : bytes_(std::max<std::size_t>(bytes, 64)), memory_(::operator new (bytes_, std::align_val_t{64})) {}
  void* get() const { return memory_.get(); }
  void clear() const { std::memset(memory_.get(), 0, bytes_); }

 private:
  struct Delete {
    void operator()(void* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  std::size_t bytes_;
  std::unique_ptr<void, Delete> memory_;
};

}  // namespace convolume::fft
