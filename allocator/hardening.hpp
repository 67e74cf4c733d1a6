// The hardened mode: finds and reports mistakes in the use of memory.
#pragma once

#include <cstddef>

#include "allocator/central.hpp"
#include "convolume/memory.hpp"

namespace convolume::allocator {

/// The canary: bytes behind the requested ones that must not change while a block is live. Its length is at least
/// `canary`, and up to `most_canary` if the block is larger.
constexpr std::size_t canary = 8, most_canary = 64;

/// Freed blocks are overwritten: all bytes, or the first and last `poisoned_ends` bytes of a larger block.
constexpr std::size_t poisoned_ends = 1024;

/// Checks the blocks of one resource. Thread-safe. If two threads free the same block at the same time, only one
/// succeeds.
class Hardening {
 public:
  Hardening(Central& central, MemoryFaultHandler handler) : central_(central), handler_(handler) {}

  /// Called before `block` is given to the user. The block holds `bytes` bytes and a canary.
  void check_in(std::byte* block, std::size_t bytes) noexcept;
  /// Called before a block is taken back. Returns false if it must not be taken back, because it is not a live block of
  /// this size or the user may still write to it.
  bool check_out(void* block, std::size_t bytes, std::size_t block_bytes) noexcept;

 private:
  void report(const void* block, std::size_t bytes, const char* what) const noexcept;

  Central& central_;
  MemoryFaultHandler handler_;
};

/// Returns whether CONVOLUME_HARDENED_MEMORY is 1. Throws InvalidArgument if it is set to anything but 0, 1 or nothing.
bool hardened_by_environment();

}  // namespace convolume::allocator
