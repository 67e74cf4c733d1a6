#include "fft/line.hpp"

#include <algorithm>
#include <complex>

#include <fmt/format.h>

#include "core/checked.hpp"
#include "fft/factors.hpp"
#include "fft/root_of_unity.hpp"

namespace convolume::fft {
namespace {

using Exact = std::complex<long double>;

Exact root(index_t k, index_t n) {
  const RootOfUnity w = root_of_unity(k % n, n);
  return {w.re, w.im};
}

template <class T>
void push(std::vector<T>& table, Exact value) {
  table.push_back(static_cast<T>(value.real()));
  table.push_back(static_cast<T>(value.imag()));
}

/// Returns the transform of x[offset + stride * j], j < n, in long double. It serves to compute tables.
std::vector<Exact> precise_dft(const std::vector<Exact>& x, index_t offset, index_t stride, index_t n) {
  if (n == 1) return {x[static_cast<std::size_t>(offset)]};
  index_t p = 2;
  while (n % p != 0) ++p;
  const index_t m = n / p;
  std::vector<std::vector<Exact>> parts;
  for (index_t j = 0; j < p; ++j) parts.push_back(precise_dft(x, offset + stride * j, stride * p, m));
  std::vector<Exact> out(static_cast<std::size_t>(n));
  std::vector<Exact> roots;
  for (index_t k = 0; k < n; ++k) roots.push_back(root(k, n));
  for (index_t k = 0; k < n; ++k) {
    Exact sum = 0;
    for (index_t j = 0; j < p; ++j) {
      sum += roots[static_cast<std::size_t>(j * k % n)] *
             parts[static_cast<std::size_t>(j)][static_cast<std::size_t>(k % m)];
    }
    out[static_cast<std::size_t>(k)] = sum;
  }
  return out;
}

index_t power_modulo(index_t base, index_t exponent, index_t p) {
  index_t result = 1;
  for (; exponent > 0; exponent /= 2, base = base * base % p) {
    if (exponent % 2 == 1) result = result * base % p;
  }
  return result;
}

/// Returns a number whose powers modulo the prime p are all of 1 .. p-1.
index_t generator(index_t p) {
  for (index_t g = 2;; ++g) {
    bool generates = true;
    index_t rest = p - 1;
    for (index_t q = 2; q * q <= rest && generates; ++q) {
      if (rest % q != 0) continue;
      while (rest % q == 0) rest /= q;
      generates = power_modulo(g, (p - 1) / q, p) != 1;
    }
    if (rest > 1 && generates) generates = power_modulo(g, (p - 1) / rest, p) != 1;
    if (generates) return g;
  }
}

const char* name_of(PrimeAlgorithm algorithm) {
  switch (algorithm) {
    case PrimeAlgorithm::rader:
      return "rader";
    case PrimeAlgorithm::rader_padded:
      return "rader_padded";
    case PrimeAlgorithm::bluestein:
      return "bluestein";
    default:
      return "generic";
  }
}

}  // namespace

/// A prime radix p that does not fit into registers. The algorithms that use a convolution copy the points (Rader: all
/// but x[0]) in the order `from`, convolve them by transforms of `line`, and copy the result in the order `to`.
template <class T>
struct Line<T>::Prime {
  Prime(index_t p, PrimeAlgorithm requested, index_t before, const LineKernels<T>& kernels);

  index_t scratch_points() const { return choice.algorithm == PrimeAlgorithm::generic ? p : choice.convolution + 1; }
  index_t scratch_elements() const {
    return scratch_points() * 2 * kernels.lanes + (line ? line->scratch_elements() : 0);
  }
  std::string describe() const {
    const char* name = name_of(choice.algorithm);
    return line ? fmt::format("{}{}({})", name, p, line->describe()) : fmt::format("{}{}", name, p);
  }
  void run(Points<const T> in, Points<T> out, index_t k, T* scratch) const;

  index_t p;
  PrimeChoice choice;
  LineKernels<T> kernels;
  std::vector<T> table;                    // generic: cos and sin; otherwise: the constant spectrum of the convolution
  std::vector<T> twiddles;                 // generic: [k >= 1][1 <= j < p]
  std::vector<std::int32_t> from, to;      // Rader
  std::vector<std::vector<T>> weights_in;  // by k; an entry is empty if all its weights are 1
  std::vector<T> weights_out;
  std::unique_ptr<Line<T>> line;

 private:
  void init_generic(index_t before);
  void init_rader(index_t before);
  void init_bluestein(index_t before);
  void init_spectrum(std::vector<Exact> terms);
};

template <class T>
Line<T>::Prime::Prime(index_t prime, PrimeAlgorithm requested, index_t before, const LineKernels<T>& of_line)
    : p(prime), choice(choose_prime(prime, requested)), kernels(of_line) {
  if (choice.algorithm == PrimeAlgorithm::generic) {
    init_generic(before);
    return;
  }
  line = std::make_unique<Line<T>>(choice.convolution, PrimeAlgorithm::automatic, kernels);
  choice.algorithm == PrimeAlgorithm::bluestein ? init_bluestein(before) : init_rader(before);
}

template <class T>
void Line<T>::Prime::init_generic(index_t before) {
  const index_t h = (p - 1) / 2;
  for (index_t k = 1; k <= h; ++k) {
    for (index_t j = 1; j <= h; ++j) push(table, std::conj(root(j * k, p)));
  }
  for (index_t k = 1; k < before; ++k) {
    for (index_t j = 1; j < p; ++j) push(twiddles, root(j * k, p * before));
  }
}

/// Prepares equation 2 of Rader (1968): X[g^-q] - x[0] is the cyclic convolution of x[g^r] and exp(-2 pi i g^-q / p).
template <class T>
void Line<T>::Prime::init_rader(index_t before) {
  const index_t m = p - 1, length = choice.convolution, g = generator(p), inverse = power_modulo(g, p - 2, p);
  std::vector<Exact> terms(static_cast<std::size_t>(length));
  index_t up = 1, down = 1;
  for (index_t q = 0; q < m; ++q, up = up * g % p, down = down * inverse % p) {
    from.push_back(static_cast<std::int32_t>(up));
    to.push_back(static_cast<std::int32_t>(down));
    terms[static_cast<std::size_t>(q)] = root(down, p);
    // A padded convolution is linear. Its negative lags wrap around to the end.
    if (length > m && q > 0) terms[static_cast<std::size_t>(length - m + q)] = root(down, p);
  }
  for (index_t k = 0; k < before; ++k) {
    weights_in.emplace_back();
    for (index_t q = 0; q < m && k > 0; ++q)
      push(weights_in.back(), root(from[static_cast<std::size_t>(q)] * k, p * before));
  }
  init_spectrum(std::move(terms));
}

/// Prepares the algorithm of Bluestein (1970): j k = (j^2 + k^2 - (k-j)^2) / 2 makes the transform a convolution with a
/// chirp.
template <class T>
void Line<T>::Prime::init_bluestein(index_t before) {
  const index_t length = choice.convolution;
  const auto chirp = [this](index_t j) { return root(j * j % (2 * p), 2 * p); };
  std::vector<Exact> terms(static_cast<std::size_t>(length));
  for (index_t j = 0; j < p; ++j) {
    terms[static_cast<std::size_t>(j)] = std::conj(chirp(j));
    if (j > 0) terms[static_cast<std::size_t>(length - j)] = std::conj(chirp(j));
    push(weights_out, chirp(j));
  }
  for (index_t k = 0; k < before; ++k) {
    weights_in.emplace_back();
    for (index_t j = 0; j < p; ++j) push(weights_in.back(), chirp(j) * root(j * k, p * before));
  }
  init_spectrum(std::move(terms));
}

template <class T>
void Line<T>::Prime::init_spectrum(std::vector<Exact> terms) {
  const auto length = static_cast<index_t>(terms.size());
  for (const Exact& value : precise_dft(terms, 0, 1, length)) push(table, value / static_cast<long double>(length));
}

template <class T>
void Line<T>::Prime::run(Points<const T> in, Points<T> out, index_t k, T* scratch) const {
  const auto row = static_cast<std::size_t>(k);
  if (!line) {
    const T* twiddle = k == 0 ? nullptr : twiddles.data() + 2 * (k - 1) * (p - 1);
    kernels.generic({in.data, out.data, in.step, out.step, in.im, out.im, twiddle, table.data(), p, scratch});
    return;
  }
  const bool rader = choice.algorithm != PrimeAlgorithm::bluestein;
  const index_t points = rader ? p - 1 : p, step = 2 * kernels.lanes;
  const T* weights = weights_in[row].empty() ? nullptr : weights_in[row].data();
  const Points<T> inner{scratch, step, kernels.lanes};
  const Points<const T> inner_in{scratch, step, kernels.lanes};
  // Keep x[0], because `out` may be the same memory as `in`.
  T* origin = scratch + choice.convolution * step;
  T* line_scratch = origin + step;
  if (rader) kernels.copy({in.data, origin, in.step, step, in.im, kernels.lanes, nullptr, nullptr, nullptr, 1});
  kernels.copy(
      {in.data, scratch, in.step, step, in.im, kernels.lanes, rader ? from.data() : nullptr, nullptr, weights, points});
  line->complex(inner_in, inner, line_scratch, points, choice.convolution);
  kernels.convolve(
      {scratch, table.data(), choice.convolution, rader ? origin : nullptr, kernels.lanes, out.data, out.im});
  line->complex(inner_in, inner, line_scratch, choice.convolution, points);
  kernels.copy({scratch + kernels.lanes, out.data, step, out.step, -kernels.lanes, out.im, nullptr,
                rader ? to.data() : nullptr, rader ? nullptr : weights_out.data(), points});
}

template <class T>
Line<T>::Line(index_t n, PrimeAlgorithm prime, const LineKernels<T>& kernels) : n_(n), kernels_(kernels) {
  Factorization factors = factorize(n);
  if (factors.radices.empty()) factors.radices.push_back(1);
  index_t before = 1;
  for (const index_t radix : factors.radices) {
    Step step{.before = before, .after = n / (before * radix), .twiddles = {}, .prime = nullptr};
    if (radix > largest_codelet) {
      step.prime = std::make_shared<Prime>(radix, prime, before, kernels_);
      prime_scratch_ = std::max(prime_scratch_, step.prime->scratch_elements());
      has_real_ = false;
    } else {
      step.radix = static_cast<int>(radix);
      for (index_t k = 1; k < before; ++k) {
        for (index_t j = 1; j < radix; ++j) push(step.twiddles, root(j * k, radix * before));
      }
    }
    before *= radix;
    steps_.push_back(std::move(step));
  }
  // A call costs more than the transform of a short line. So several lines, as many as fit into a third of the L1,
  // share each call of a pass.
  constexpr index_t buffer_bytes = 10 * 1024;
  const index_t line_bytes = checked_mul(2 * lanes() * static_cast<index_t>(sizeof(T)), n + 1, "fft line scratch");
  together_ = std::clamp<index_t>(buffer_bytes / line_bytes, 1, 8);
  // The passes alternate between two buffers. The passes of real lines need one more point.
  const index_t buffer = together_ * (line_bytes / static_cast<index_t>(sizeof(T)));
  scratch_ = checked_add(checked_mul(2, buffer, "fft line scratch"), prime_scratch_, "fft line scratch");
}

template <class T>
Line<T>::~Line() = default;
template <class T>
Line<T>::Line(Line&&) noexcept = default;

template <class T>
std::string Line<T>::describe() const {
  std::string text;
  for (const Step& step : steps_) {
    if (!text.empty()) text += 'x';
    text += step.prime ? step.prime->describe() : fmt::format("{}", step.radix);
  }
  return text;
}

template <class T>
PassArguments<T> Line<T>::pass(const Step& step, Points<const T> in, Points<T> out) const {
  return {.in = in.data,
          .out = out.data,
          .in_step = in.step,
          .out_step = out.step,
          .in_im = in.im,
          .out_im = out.im,
          .before = step.before,
          .after = step.after,
          .twiddles = step.twiddles.data(),
          .in_points = n_,
          .out_points = n_,
          .ahead = in.ahead};
}

template <class T>
void Line<T>::run_step(const Step& step, const PassArguments<T>& a, T* scratch) const {
  if (!step.prime) {
    const bool pruned = a.in_points < n_ || a.out_points < n_;
    const auto& passes = pruned ? kernels_.complex_pruned : kernels_.complex;
    passes[static_cast<std::size_t>(step.radix)](a);
    return;
  }
  const index_t p = step.prime->p;
  for (index_t line = 0; line < a.lines; ++line) {
    const T* in = a.in + line * a.in_line;
    T* out = a.out + line * a.out_line;
    for (index_t k = 0; k < step.before; ++k) {
      for (index_t q = 0; q < step.after; ++q) {
        step.prime->run({in + (k * p * step.after + q) * a.in_step, step.after * a.in_step, a.in_im},
                        {out + (k * step.after + q) * a.out_step, step.before * step.after * a.out_step, a.out_im}, k,
                        scratch);
      }
    }
  }
}

template <class T>
void Line<T>::complex_lines(Points<const T> in, Points<T> out, T* scratch, index_t in_points, index_t out_points,
                            index_t lines, std::ptrdiff_t in_line, std::ptrdiff_t out_line,
                            const Prefetch<T>& prefetch) const {
  // Prime radices do not support pruning. Their input is padded with zeros, and their output is cropped by a copy.
  const bool pad = steps_.front().prime && in_points < n_, crop = steps_.back().prime && out_points < n_;
  const index_t together = pad || crop ? 1 : single_pass() ? lines : together_;
  const std::ptrdiff_t point = 2 * lanes(), line_step = point * (n_ + 1), buffer = line_step * together_;
  T* prime_scratch = scratch + 2 * buffer;
  const std::size_t last = steps_.size() - 1;
  for (index_t line = 0; line < lines; line += together) {
    Points<const T> from{in.data + line * in_line, in.step, in.im, in.ahead};
    std::ptrdiff_t from_line = in_line;
    if (pad) {
      T* padded = scratch + buffer;
      kernels_.copy({from.data, padded, in.step, point, in.im, lanes(), nullptr, nullptr, nullptr, in_points});
      std::fill(padded + in_points * point, padded + n_ * point, T{0});
      from = {padded, point, lanes()};
    }
    for (std::size_t i = 0; i <= last; ++i) {
      const bool to_memory = i == last && !crop;
      const Points<T> to = to_memory ? Points<T>{out.data + line * out_line, out.step, out.im}
                                     : Points<T>{scratch + static_cast<index_t>(i % 2) * buffer, point, lanes()};
      PassArguments<T> arguments = pass(steps_[i], from, to);
      arguments.in_points = i == 0 && !pad ? in_points : n_;
      arguments.out_points = to_memory ? out_points : n_;
      arguments.lines = std::min(together, lines - line);
      arguments.in_line = from_line;
      arguments.out_line = to_memory ? out_line : line_step;
      if (to_memory) arguments.out_ahead = out.ahead;
      if (i == 0) arguments.prefetch = prefetch.from(line);
      run_step(steps_[i], arguments, prime_scratch);
      from = {to.data, to.step, to.im};
      from_line = line_step;
    }
    if (crop) {
      kernels_.copy({from.data, out.data + line * out_line, point, out.step, lanes(), out.im, nullptr, nullptr, nullptr,
                     out_points});
    }
  }
}

/// Runs the passes of real lines, or with `backward` their inverses in the opposite order. The real side has no
/// imaginary part.
template <class T>
void Line<T>::real_lines(bool backward, Points<const T> in, Points<T> out, T* scratch, index_t lines,
                         std::ptrdiff_t in_line, std::ptrdiff_t out_line, const Prefetch<T>& prefetch,
                         index_t in_points) const {
  const std::ptrdiff_t point = 2 * lanes(), line_step = point * (n_ + 1);
  const index_t together = single_pass() ? lines : together_;
  const std::size_t count = steps_.size();
  for (index_t line = 0; line < lines; line += together) {
    Points<const T> from{in.data + line * in_line, in.step, in.im};
    std::ptrdiff_t from_line = in_line;
    for (std::size_t i = 0; i < count; ++i) {
      const Step& step = steps_[backward ? count - 1 - i : i];
      const bool last = i + 1 == count;
      T* buffer = scratch + static_cast<index_t>(i % 2) * line_step * together_;
      const Points<T> to =
          last ? Points<T>{out.data + line * out_line, out.step, out.im} : Points<T>{buffer, point, lanes()};
      PassArguments<T> arguments = pass(step, from, to);
      arguments.lines = std::min(together, lines - line);
      arguments.in_line = from_line;
      arguments.out_line = last ? out_line : line_step;
      if (i == 0) arguments.prefetch = prefetch.from(line);
      if (i == 0) arguments.in_points = in_points;
      const bool pruned = i == 0 && in_points < n_;
      const auto& passes = backward ? kernels_.hermitian : pruned ? kernels_.real_pruned : kernels_.real;
      passes[static_cast<std::size_t>(step.radix)](arguments);
      from = {to.data, to.step, to.im};
      from_line = line_step;
    }
  }
}

template class Line<float>;
template class Line<double>;

}  // namespace convolume::fft
