// The sizes that blocks come in. Small ones: multiples of 64 bytes up to 1 KiB, then eight steps per doubling. Above 32
// KiB whole pages, so that a block is at most 12.5 % larger than what was asked from 1 KiB on.
#pragma once

#include <bit>
#include <cstddef>

namespace convolume::allocator {

constexpr std::size_t alignment = 64;
constexpr std::size_t page = 4096;
constexpr std::size_t linear_limit = 1024;  // bytes; below, classes are multiples of `alignment`
constexpr int linear_classes = 16;
constexpr int steps_per_doubling = 8;
constexpr int doublings = 24;  // up to 16 GiB
constexpr int class_count = linear_classes + steps_per_doubling * doublings;

/// Bytes of a block of class `index`.
constexpr std::size_t block_bytes(int index) {
  if (index < linear_classes) return alignment * static_cast<std::size_t>(index + 1);
  const int step = index - linear_classes;
  const std::size_t base = linear_limit << (step / steps_per_doubling);
  return base + base / steps_per_doubling * static_cast<std::size_t>(step % steps_per_doubling + 1);
}

constexpr std::size_t largest_block = block_bytes(class_count - 1);

/// The smallest class whose blocks hold `bytes`; `bytes` must not exceed `largest_block`.
constexpr int class_of(std::size_t bytes) {
  if (bytes <= linear_limit) return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / alignment);
  const int doubling = static_cast<int>(std::bit_width(bytes - 1)) - static_cast<int>(std::bit_width(linear_limit));
  const std::size_t base = linear_limit << doubling;
  const std::size_t step = base / steps_per_doubling;
  return linear_classes + doubling * steps_per_doubling + static_cast<int>((bytes - base - 1) / step);
}

/// Classes up to here are carved from slabs and cached by threads. The others only group blocks for statistics: each of
/// these is a run of pages of its own.
constexpr std::size_t largest_small = std::size_t{32} << 10;
constexpr int small_classes = class_of(largest_small) + 1;

/// What a request gets.
struct Fit {
  int size_class = 0;
  std::size_t bytes = 0;

  bool small() const noexcept { return size_class < small_classes; }
};

/// The smallest block that holds `bytes` and lies on multiples of `boundary`, a power of two up to a page: slabs begin
/// on a page, so blocks lie on multiples of their size.
constexpr Fit fit_of(std::size_t bytes, std::size_t boundary) {
  int index = class_of(bytes);
  if (index >= small_classes) return {index, (bytes + page - 1) / page * page};
  while (block_bytes(index) % boundary != 0) ++index;  // the last of them is a multiple of the page
  return {index, block_bytes(index)};
}

}  // namespace convolume::allocator
