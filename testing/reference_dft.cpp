#include "testing/reference_dft.hpp"

#include <cmath>

namespace convolume::test {
namespace {

template <class R>
using Complex = std::complex<R>;

/// Returns a product. std::complex's own operator first checks for infinities, which takes longer than multiplying.
template <class R>
Complex<R> product(const Complex<R>& a, const Complex<R>& b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

index_t smallest_prime_factor(index_t n) {
  for (index_t p = 2; p * p <= n; ++p) {
    if (n % p == 0) return p;
  }
  return n;
}

}  // namespace

template <class R>
ReferenceDft<R>::ReferenceDft(index_t n) : n_(n), roots_(static_cast<std::size_t>(n)), line_(roots_.size()) {
  constexpr long double pi = 3.14159265358979323846264338327950288L;
  for (index_t k = 0; k < n; ++k) {
    const long double angle = 2 * pi * static_cast<long double>(k) / static_cast<long double>(n);
    roots_[static_cast<std::size_t>(k)] = {static_cast<R>(std::cos(angle)), static_cast<R>(-std::sin(angle))};
  }
  terms_.resize(roots_.size());
  sums_.resize(roots_.size());
  differences_.resize(roots_.size());
}

template <class R>
void ReferenceDft<R>::forward(Complex* points, index_t stride) {
  recurse(points, stride, line_.data(), n_);
  for (index_t k = 0; k < n_; ++k) points[k * stride] = line_[static_cast<std::size_t>(k)];
}

template <class R>
void ReferenceDft<R>::recurse(const Complex* in, index_t stride, Complex* out, index_t length) {
  if (length == 1) {
    *out = *in;
    return;
  }
  const index_t p = smallest_prime_factor(length), m = length / p;
  for (index_t j = 0; j < p; ++j) recurse(in + j * stride, stride * p, out + j * m, m);
  for (index_t k = 0; k < m; ++k) {
    for (index_t j = 1; j < p; ++j) out[j * m + k] = product<R>(out[j * m + k], root(j * k * (n_ / length)));
    small(out + k, m, p);
  }
}

/// Transforms a prime length by the definition, in place. Terms j and p - j have equal cosines and opposite sines, so
/// they are combined.
template <class R>
void ReferenceDft<R>::small(Complex* points, index_t stride, index_t p) {
  const index_t half = (p - 1) / 2, step = n_ / p;
  if (p == 2) {
    const Complex a = points[0], b = points[stride];
    points[0] = a + b;
    points[stride] = a - b;
    return;
  }
  const Complex first = points[0];
  Complex total = first;
  for (index_t j = 1; j <= half; ++j) {
    const auto at = static_cast<std::size_t>(j);
    sums_[at] = points[j * stride] + points[(p - j) * stride];
    differences_[at] = points[j * stride] - points[(p - j) * stride];
    total += sums_[at];
  }
  for (index_t k = 1; k <= half; ++k) {
    R even_re = first.real(), even_im = first.imag(), odd_re = 0, odd_im = 0;
    index_t turn = 0;
    for (index_t j = 1; j <= half; ++j) {
      turn += k;
      if (turn >= p) turn -= p;
      const Complex& w = root(turn * step);
      const auto at = static_cast<std::size_t>(j);
      even_re += w.real() * sums_[at].real();
      even_im += w.real() * sums_[at].imag();
      odd_re -= w.imag() * differences_[at].imag();
      odd_im += w.imag() * differences_[at].real();
    }
    terms_[static_cast<std::size_t>(k)] = {even_re + odd_re, even_im + odd_im};
    terms_[static_cast<std::size_t>(p - k)] = {even_re - odd_re, even_im - odd_im};
  }
  points[0] = total;
  for (index_t k = 1; k < p; ++k) points[k * stride] = terms_[static_cast<std::size_t>(k)];
}

template <class R>
ReferenceDft3<R>::ReferenceDft3(const Extent3& extent)
    : extent_(extent), axes_{ReferenceDft<R>(extent.z), ReferenceDft<R>(extent.y), ReferenceDft<R>(extent.x)} {}

template <class R>
void ReferenceDft3<R>::forward(Complex* volume) {
  const auto [nz, ny, nx] = extent_;
  if (nx > 1) {
    for (index_t line = 0; line < nz * ny; ++line) axes_[2].forward(volume + line * nx, 1);
  }
  if (ny > 1) {
    for (index_t z = 0; z < nz; ++z) {
      for (index_t x = 0; x < nx; ++x) axes_[1].forward(volume + z * ny * nx + x, nx);
    }
  }
  if (nz > 1) {
    for (index_t line = 0; line < ny * nx; ++line) axes_[0].forward(volume + line, ny * nx);
  }
}

template <class R>
std::complex<R> ReferenceDft3<R>::phase(const Extent3& a, const Extent3& b) const {
  Complex result = axes_[2].root(a.x * b.x % extent_.x);
  if (extent_.y > 1) result = product<R>(result, axes_[1].root(a.y * b.y % extent_.y));
  if (extent_.z > 1) result = product<R>(result, axes_[0].root(a.z * b.z % extent_.z));
  return result;
}

template class ReferenceDft<double>;
template class ReferenceDft<long double>;
template class ReferenceDft3<double>;
template class ReferenceDft3<long double>;

}  // namespace convolume::test
