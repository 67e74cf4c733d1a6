// The tasks that wait for a worker, by rank.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace convolume::scheduler {

/// A set of numbers below `capacity`. The smallest element is found by reading a few words of 64 bits. There is one bit
/// per number, above it one bit per non-zero word, and so on up to a single word. Only the constructor allocates. Not
/// thread-safe.
class ReadySet {
 public:
  /// A value larger than every element.
  static constexpr std::int32_t none = INT32_MAX;

  explicit ReadySet(std::size_t capacity) {
    std::size_t words = capacity;
    do {
      words = (words + 63) / 64;
      levels_.emplace_back(words, 0);
    } while (words > 1);
  }

  std::size_t size() const noexcept { return size_; }

  void insert(std::int32_t element) noexcept {
    ++size_;
    auto index = static_cast<std::size_t>(element);
    for (auto& level : levels_) {
      std::uint64_t& word = level[index / 64];
      const std::uint64_t before = word;
      word |= std::uint64_t{1} << index % 64;
      if (before != 0) return;
      index /= 64;
    }
  }

  /// Returns the smallest element, or `none`.
  std::int32_t first() const noexcept { return size_ == 0 ? none : first_below(levels_.size(), 0); }

  /// Returns the smallest element that is not below `from`, or `none`.
  std::int32_t first_from(std::int32_t from) const noexcept {
    auto index = static_cast<std::size_t>(from);
    for (std::size_t i = 0; i < levels_.size(); ++i) {
      if (index / 64 >= levels_[i].size()) return none;
      const std::uint64_t left = levels_[i][index / 64] >> index % 64;
      if (left != 0) return first_below(i, index + static_cast<std::size_t>(std::countr_zero(left)));
      index = index / 64 + 1;  // at the next level: the words behind this one
    }
    return none;
  }

  void erase(std::int32_t element) noexcept {
    --size_;
    auto index = static_cast<std::size_t>(element);
    for (auto& level : levels_) {
      std::uint64_t& word = level[index / 64];
      word &= ~(std::uint64_t{1} << index % 64);
      if (word != 0) return;
      index /= 64;
    }
  }

 private:
  /// Returns the smallest element below the word, or below the bit of level `level - 1`, with this index.
  std::int32_t first_below(std::size_t level, std::size_t index) const noexcept {
    while (level-- > 0) index = index * 64 + static_cast<std::size_t>(std::countr_zero(levels_[level][index]));
    return static_cast<std::int32_t>(index);
  }

  std::vector<std::vector<std::uint64_t>> levels_;  // from the bits of the elements to the single word
  std::size_t size_ = 0;
};

}  // namespace convolume::scheduler
