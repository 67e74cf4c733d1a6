// A slow, obvious transform to which every other transform is compared.
#pragma once

#include <array>
#include <complex>
#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::test {

/// Computes unnormalised forward transforms of one length, in numbers of type R (double or long double). It uses the
/// definition for a prime length, and the factorisation of Cooley and Tukey for a product of primes. Not thread-safe,
/// because it owns the scratch.
template <class R>
class ReferenceDft {
 public:
  using Complex = std::complex<R>;

  explicit ReferenceDft(index_t n);
  index_t length() const { return n_; }
  /// Returns exp(-2 pi i k / n) for 0 <= k < n.
  const Complex& root(index_t k) const { return roots_[static_cast<std::size_t>(k)]; }
  /// Transforms in place; points are `stride` apart.
  void forward(Complex* points, index_t stride);

 private:
  void recurse(const Complex* in, index_t stride, Complex* out, index_t length);
  void small(Complex* points, index_t stride, index_t p);

  index_t n_;
  std::vector<Complex> roots_, line_, terms_;
  std::vector<Complex> sums_, differences_;
};

/// Computes forward transforms of dense volumes, axis by axis.
template <class R>
class ReferenceDft3 {
 public:
  using Complex = std::complex<R>;

  explicit ReferenceDft3(const Extent3& extent);
  /// Transforms in place, dense.
  void forward(Complex* volume);
  /// Returns exp(-2 pi i (a.z b.z / n.z + a.y b.y / n.y + a.x b.x / n.x)).
  Complex phase(const Extent3& a, const Extent3& b) const;

 private:
  Extent3 extent_;
  std::array<ReferenceDft<R>, 3> axes_;
};

}  // namespace convolume::test
