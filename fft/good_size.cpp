#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "convolume/fft.hpp"
#include "core/checked.hpp"

namespace convolume::fft {
namespace {

/// Returns the smallest number that is at least n and is `product` times a product of powers of the primes up to
/// `factor` (7, 5, 3 or 2), or `best` if that is smaller.
index_t smallest(index_t n, index_t product, int factor, index_t best) {
  if (product >= n) return std::min(best, product);
  if (factor == 2) {
    while (product < n) {
      if (__builtin_mul_overflow(product, 2, &product)) return best;
    }
    return std::min(best, product);
  }
  for (index_t power = product; power < best;) {
    best = smallest(n, power, factor == 7 ? 5 : factor == 5 ? 3 : 2, best);
    if (__builtin_mul_overflow(power, factor, &power)) break;
  }
  return best;
}

}  // namespace

index_t good_size(index_t n) {
  if (n < 1) throw InvalidArgument(fmt::format("good_size: {} points; at least 1 is needed", n));
  constexpr index_t most = std::numeric_limits<index_t>::max();
  const index_t size = smallest(n, 1, 7, most);
  if (size == most) throw_overflow("the smallest good size");
  return size;
}

}  // namespace convolume::fft
