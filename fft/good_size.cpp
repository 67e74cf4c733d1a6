#include <fmt/format.h>

#include "convolume/fft.hpp"

namespace convolume::fft {

index_t good_size(index_t n) {
  if (n < 1) throw InvalidArgument(fmt::format("good_size: {} points; at least 1 is needed", n));
  for (index_t m = n;; ++m) {
    index_t rest = m;
    for (const index_t factor : {2, 3, 5, 7}) {
      while (rest % factor == 0) rest /= factor;
    }
    if (rest == 1) return m;
  }
}

}  // namespace convolume::fft
