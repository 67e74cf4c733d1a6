// The sizes of blocks. Small sizes are multiples of 64 bytes up to 1 KiB, then eight steps per doubling. Sizes above 32
// KiB are whole pages. From 1 KiB on, a block is at most 12.5 % larger than the request.
#pragma once

#include <bit>
#include <cstddef>

namespace convolume::allocator {

constexpr std::size_t alignment = 64;
constexpr std::size_t page = 4096;
constexpr std::size_t linear_limit = 1024;  // bytes; up to here, classes are multiples of `alignment`
constexpr int linear_classes = 16;
constexpr int steps_per_doubling = 8;
constexpr int doublings = 24;  // up to 16 GiB
constexpr int class_count = linear_classes + steps_per_doubling * doublings;

/// Returns the bytes of a block of class `index`.
constexpr std::size_t block_bytes(int index) {
  if (index < linear_classes) return alignment * static_cast<std::size_t>(index + 1);
  const int step = index - linear_classes;
  const std::size_t base = linear_limit << (step / steps_per_doubling);
  return base + base / steps_per_doubling * static_cast<std::size_t>(step % steps_per_doubling + 1);
}

constexpr std::size_t largest_block = block_bytes(class_count - 1);

/// Returns the smallest class whose blocks hold `bytes`, which must not exceed `largest_block`.
constexpr int class_of(std::size_t bytes) {
  if (bytes <= linear_limit) return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / alignment);
  const int doubling = static_cast<int>(std::bit_width(bytes - 1)) - static_cast<int>(std::bit_width(linear_limit));
  const std::size_t base = linear_limit << doubling;
  const std::size_t step = base / steps_per_doubling;
  return linear_classes + doubling * steps_per_doubling + static_cast<int>((bytes - base - 1) / step);
}

/// The largest block size that is carved from slabs and cached by threads. Larger blocks are runs of pages; their
/// classes only group them for statistics.
constexpr std::size_t largest_small = std::size_t{32} << 10;
constexpr int small_classes = class_of(largest_small) + 1;

/// The class and the size of the block that serves a request.
struct Fit {
  int size_class = 0;
  std::size_t bytes = 0;

  bool small() const noexcept { return size_class < small_classes; }
};

/// Returns the smallest block that holds `bytes` and is aligned to `boundary`, a power of two up to a page. Slabs begin
/// on a page, so blocks are aligned to every power of two that divides their size.
constexpr Fit fit_of(std::size_t bytes, std::size_t boundary) {
  int index = class_of(bytes);
  if (index >= small_classes) return {index, (bytes + page - 1) / page * page};
  while (block_bytes(index) % boundary != 0) ++index;  // the last class is a multiple of the page
  return {index, block_bytes(index)};
}

}  // namespace convolume::allocator
