// A slow, obvious transform in long double, to which every other one is held.
#pragma once

#include <array>
#include <complex>
#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::bench {

using Wide = std::complex<long double>;

/// Forward transforms of one length, unnormalised: by the definition for primes, and by Cooley and Tukey's
/// factorisation for products of them.
class ReferenceDft {
 public:
  explicit ReferenceDft(index_t n);
  index_t length() const { return n_; }
  /// exp(-2 pi i k / n) for 0 <= k < n.
  const Wide& root(index_t k) const { return roots_[static_cast<std::size_t>(k)]; }
  /// In place, points `stride` apart.
  void forward(Wide* points, index_t stride);

 private:
  void recurse(const Wide* in, index_t stride, Wide* out, index_t length);
  void small(Wide* points, index_t stride, index_t p);

  index_t n_;
  std::vector<Wide> roots_, line_, terms_;
  std::vector<Wide> sums_, differences_;
};

/// The same for volumes, axis by axis.
class ReferenceDft3 {
 public:
  explicit ReferenceDft3(const Extent3& extent);
  /// In place, dense.
  void forward(Wide* volume);
  /// exp(-2 pi i (a.z b.z / n.z + a.y b.y / n.y + a.x b.x / n.x)).
  Wide phase(const Extent3& a, const Extent3& b) const;

 private:
  Extent3 extent_;
  std::array<ReferenceDft, 3> axes_;
};

}  // namespace convolume::bench
