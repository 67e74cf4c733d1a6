// The hardened mode: mistakes of those who use memory are found and reported where they can be.
#pragma once

#include <cstddef>

#include "allocator/central.hpp"
#include "convolume/memory.hpp"

namespace convolume::allocator {

/// Bytes behind the requested ones that must not change while a block lives; up to `most_canary` where a block is
/// larger.
constexpr std::size_t canary = 8, most_canary = 64;

/// Of a freed block all bytes are overwritten, or the first and last `poisoned_ends` of a large one.
constexpr std::size_t poisoned_ends = 1024;

/// Guards the blocks of one resource. Thread-safe; two threads that free the same block at once are told apart.
class Hardening {
 public:
  Hardening(Central& central, MemoryFaultHandler handler) : central_(central), handler_(handler) {}

  /// Before `block`, which holds `bytes` and a canary, is given to the user.
  void check_in(std::byte* block, std::size_t bytes) noexcept;
  /// Before a block is taken back; false where it must not be, since it is none or the user may still write to it.
  bool check_out(void* block, std::size_t bytes, std::size_t block_bytes) noexcept;

 private:
  void report(const void* block, std::size_t bytes, const char* what) const noexcept;

  Central& central_;
  MemoryFaultHandler handler_;
};

/// Whether CONVOLUME_HARDENED_MEMORY asks for it; throws InvalidArgument where it is neither 0 nor 1.
bool hardened_by_environment();

}  // namespace convolume::allocator
