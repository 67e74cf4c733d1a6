#include "plan/overlap_order.hpp"

#include <algorithm>
#include <numeric>

namespace convolume::plan {

OverlapOrder::OverlapOrder(const Extent3& tiles, index_t group) : count(tiles) {
  if (group < count.x) {
    const index_t parts = (count.x + group - 1) / group;
    piece = {1, 1, (count.x + parts - 1) / parts};
  } else {
    const index_t rows = group / count.x, parts = (count.y + rows - 1) / rows;
    piece = {1, (count.y + parts - 1) / parts, count.x};
  }
}

Extent3 OverlapOrder::pieces() const noexcept {
  return {count.z, (count.y + piece.y - 1) / piece.y, (count.x + piece.x - 1) / piece.x};
}

bool OverlapOrder::goes_before(int axis, index_t a, index_t b) const noexcept {
  const auto key = [&](index_t i) { return axis == 0 ? std::min(i, count.z - 1 - i) : i / piece[axis] % 2; };
  return key(a) != key(b) ? key(a) < key(b) : a < b;
}

std::vector<index_t> OverlapOrder::layers() const {
  std::vector<index_t> all(static_cast<std::size_t>(count.z));
  std::iota(all.begin(), all.end(), index_t{0});
  std::sort(all.begin(), all.end(), [&](index_t a, index_t b) { return goes_before(0, a, b); });
  return all;
}

}  // namespace convolume::plan
