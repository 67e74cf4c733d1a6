// Slow, simple transforms of higher precision, the data for them, and the accuracy that we promise.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <type_traits>
#include <vector>

#include "testing/reference_dft.hpp"

#include "convolume/fft.hpp"
#include "core/random.hpp"

namespace convolume::test {

/// The type of the reference for results of type T.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;

/// Transforms dense volumes that stand one behind the other in `data`, with exp(sign * 2 pi i ...).
template <class R>
void ref_transform(std::vector<std::complex<R>>& data, const Extent3& extent, int sign) {
  ReferenceDft3<R> transform(extent);
  const auto conjugate = [&] {
    if (sign < 0) return;
    for (auto& value : data) value = std::conj(value);
  };
  conjugate();
  for (auto* volume = data.data(); volume != data.data() + data.size(); volume += extent.volume()) {
    transform.forward(volume);
  }
  conjugate();
}

enum class Data { normal, small_integers };

/// An input and its expected transform, as dense volumes [batch][z][y][x]; x < X* on the spectrum side. Points outside
/// the support are zero. Real numbers have imaginary part zero.
template <class T>
struct Sample {
  std::vector<std::complex<T>> in;
  std::vector<std::complex<Wide<T>>> out;
  long double norm = 0;  // squared norm to which errors are relative
};

inline bool is_real(const fft::Problem& p) { return p.kind == fft::Kind::r2c || p.kind == fft::Kind::c2r; }
inline bool is_forward(const fft::Problem& p) { return p.kind == fft::Kind::r2c || p.kind == fft::Kind::c2c_forward; }
inline Extent3 spectrum_extent(const fft::Problem& p) {
  return {p.extent.z, p.extent.y, is_real(p) ? p.extent.x / 2 + 1 : p.extent.x};
}
inline bool in_support(const fft::Problem& p, index_t z, index_t y, index_t x) {
  const index_t at[3] = {z, y, x};
  for (int axis = 0; axis < 3; ++axis) {
    if (p.support[axis] != 0 && at[axis] >= p.support[axis]) return false;
  }
  return true;
}

/// Calls visit(i, b, z, y, x) for all points of dense volumes; i counts the points.
template <class Visit>
void for_points(index_t batch, const Extent3& e, const Visit& visit) {
  std::size_t i = 0;
  for (index_t b = 0; b < batch; ++b) {
    for (index_t z = 0; z < e.z; ++z) {
      for (index_t y = 0; y < e.y; ++y) {
        for (index_t x = 0; x < e.x; ++x) visit(i++, b, z, y, x);
      }
    }
  }
}

/// Makes half a spectrum Hermitian, as for real numbers: in planes that both halves share, opposite points are
/// conjugates.
template <class T>
void make_hermitian(std::vector<std::complex<T>>& half, const fft::Problem& p) {
  const Extent3 e = spectrum_extent(p);
  for_points(p.batch, e, [&](std::size_t i, index_t b, index_t z, index_t y, index_t x) {
    if (x != 0 && 2 * x != p.extent.x) return;
    const auto other = static_cast<std::size_t>((((b * e.z + (e.z - z) % e.z) * e.y + (e.y - y) % e.y) * e.x) + x);
    if (other == i) half[i] = half[i].real();
    if (other > i) half[other] = std::conj(half[i]);
  });
}

template <class T>
Sample<T> make_sample(const fft::Problem& p, Data data, std::uint64_t seed) {
  using Out = std::complex<Wide<T>>;
  auto next = [&, count = std::uint64_t{0}]() mutable {
    const RandomKey key{.seed = seed};
    if (data == Data::normal) return static_cast<T>(normal(key, count++));
    return static_cast<T>(static_cast<double>(uniform_below(key, count++, 17)) - 8.0);
  };
  const Extent3 half = spectrum_extent(p);
  const bool forward = is_forward(p), real = is_real(p);
  Sample<T> sample;
  sample.in.resize(static_cast<std::size_t>(p.batch * (forward ? p.extent : half).volume()));
  std::vector<Out> work(static_cast<std::size_t>(p.batch * p.extent.volume()));
  if (forward) {
    for_points(p.batch, p.extent, [&](std::size_t i, index_t, index_t z, index_t y, index_t x) {
      if (!in_support(p, z, y, x)) return;
      const T re = next();
      sample.in[i] = {re, real ? T{0} : next()};
      work[i] = Out(sample.in[i]);
    });
  } else {
    for (auto& value : sample.in) {
      const T re = next();
      value = {re, next()};
    }
    if (real) make_hermitian(sample.in, p);
    for_points(p.batch, p.extent, [&](std::size_t i, index_t b, index_t z, index_t y, index_t x) {
      const bool mirrored = x >= half.x;
      const index_t from_z = mirrored ? (half.z - z) % half.z : z, from_y = mirrored ? (half.y - y) % half.y : y;
      const index_t from_x = mirrored ? p.extent.x - x : x;
      const Out value(sample.in[static_cast<std::size_t>(((b * half.z + from_z) * half.y + from_y) * half.x + from_x)]);
      work[i] = mirrored ? std::conj(value) : value;
    });
  }
  ref_transform(work, p.extent, forward ? -1 : 1);
  sample.out.reserve(work.size());
  index_t wanted = 0;
  for_points(p.batch, p.extent, [&](std::size_t i, index_t, index_t z, index_t y, index_t x) {
    if (forward && x >= half.x) return;
    sample.norm += std::norm(work[i]);
    const bool in_box = forward || in_support(p, z, y, x);
    wanted += in_box ? 1 : 0;
    sample.out.push_back(!in_box ? Out(0) : !forward && real ? Out(work[i].real()) : work[i]);
  });
  // The rounding errors of a point come from all points, and the point itself may be small compared with them. Errors
  // are therefore relative to the wanted points' share in the norm of all points.
  sample.norm *= static_cast<long double>(wanted) / static_cast<long double>(sample.out.size());
  return sample;
}

/// Relative L2 error over all added results.
class ErrorSum {
 public:
  template <class A, class B>
  void add(const std::vector<std::complex<A>>& got, const std::vector<std::complex<B>>& want) {
    long double norm = 0;
    for (const auto& value : want) norm += std::norm(std::complex<long double>(value));
    add(got, want, norm);
  }
  template <class T>
  void add(const std::vector<std::complex<T>>& got, const Sample<T>& sample) {
    add(got, sample.out, sample.norm);
  }
  /// Returns infinity if sizes differ or a value is NaN.
  double relative() const {
    if (!comparable_ || std::isnan(error_)) return std::numeric_limits<double>::infinity();
    if (error_ == 0) return 0;
    return norm_ == 0 ? std::numeric_limits<double>::infinity() : static_cast<double>(std::sqrt(error_ / norm_));
  }

 private:
  template <class A, class B>
  void add(const std::vector<std::complex<A>>& got, const std::vector<std::complex<B>>& want, long double norm) {
    comparable_ = comparable_ && got.size() == want.size();
    for (std::size_t i = 0; comparable_ && i < got.size(); ++i) {
      error_ += std::norm(std::complex<long double>(got[i]) - std::complex<long double>(want[i]));
    }
    norm_ += norm;
  }

  bool comparable_ = true;
  long double error_ = 0, norm_ = 0;
};

inline index_t largest_prime_factor(index_t n) {
  index_t largest = 1;
  for (index_t p = 2; n > 1; ++p) {
    for (; n % p == 0; n /= p) largest = p;
  }
  return largest;
}

template <class T>
constexpr double epsilon = static_cast<double>(std::numeric_limits<T>::epsilon());

/// Returns the relative L2 error that we promise, in epsilons; at least half of one.
inline double accuracy(const Extent3& e) {
  const index_t prime = std::max({largest_prime_factor(e.z), largest_prime_factor(e.y), largest_prime_factor(e.x)});
  const double factor = prime > 13 ? 0.7 : prime == 13 ? 0.40 : 0.35;
  const double points = static_cast<double>(e.z) * static_cast<double>(e.y) * static_cast<double>(e.x);
  // The promise holds for many inputs together; the error of few points scatters around it.
  const double scatter = points < 2048 ? 1.25 : 1.05;
  return scatter * std::max(0.5, factor * std::sqrt(std::log2(points)));
}

/// Returns the sum of a[i] * conj(b[i]).
template <class T>
std::complex<long double> inner_product(const std::vector<std::complex<T>>& a, const std::vector<std::complex<T>>& b) {
  std::complex<long double> sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::complex<long double>(a[i]) * std::conj(std::complex<long double>(b[i]));
  }
  return sum;
}

}  // namespace convolume::test
