#include "nets/data/padded_rows.hpp"

#include <algorithm>

#include "nets/data/mirror.hpp"

namespace convolume::nets {

void PaddedRows::read(index_t c, const Extent3& at, index_t n, float* to) const {
  const auto outside = [&](index_t i, index_t all) { return i < -repeated || i >= all + repeated; };
  const auto inside = [&](index_t i, index_t all) {
    return zero ? std::clamp<index_t>(i, 0, all - 1) : mirrored_index(i, all);
  };
  if (zero && (outside(at.z, volume.z) || outside(at.y, volume.y))) {
    std::fill_n(to, n, 0.0f);
    return;
  }
  const Extent3 extent = stored.extent;
  const index_t row =
      ((c * extent.z + inside(at.z, volume.z) - stored.begin.z) * extent.y + inside(at.y, volume.y) - stored.begin.y) *
          extent.x -
      stored.begin.x;
  const index_t first = std::clamp<index_t>(-at.x, 0, n);
  const index_t end = std::clamp<index_t>(volume.x - at.x, first, n);
  from.gather(row + at.x + first, end - first, to + first);
  for (index_t x = 0; x < n; ++x) {
    if (x == first) x = end;
    if (x >= n) break;
    if (zero && outside(at.x + x, volume.x)) {
      to[x] = 0;
    } else {
      from.gather(row + inside(at.x + x, volume.x), 1, to + x);
    }
  }
}

}  // namespace convolume::nets
