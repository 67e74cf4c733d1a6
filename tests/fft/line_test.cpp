// Tests transforms of lines as volumes and tiles use them: several at once, strided, pruned at both ends, in place,
// backward. Every algorithm for primes is tested as one factor among others, too.
#include "fft/line.hpp"

#include "testing/sanitizers.hpp"
#include "testing/simd_targets.hpp"
#include <catch2/catch.hpp>

#include "tests/fft/fft_harness.hpp"

using namespace convolume;
using namespace convolume::test;
using fft::Line;
using fft::Points;
using fft::PrimeAlgorithm;

namespace {

/// Positions of the points of several lines. A point is a vector; its imaginary part follows `im` elements later.
struct Place {
  index_t step, im, line, elements;
};

/// Lines are contiguous, with real and imaginary parts side by side.
Place dense(index_t n, index_t lines, index_t lanes) {
  return {2 * lanes, lanes, 2 * lanes * n, 2 * lanes * n * lines};
}
/// Points of all lines are side by side. All imaginary parts follow the real parts, with odd gaps.
Place interleaved(index_t n, index_t lines, index_t lanes) {
  const index_t line = lanes + 1, step = line * lines + 3, im = step * n + 5;
  return {step, im, line, im + step * n};
}

/// Returns `count` random values, which callers read as [line][lane][point].
template <class T>
std::vector<std::complex<T>> random_values(index_t count, std::uint64_t seed) {
  std::vector<std::complex<T>> values;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
    values.emplace_back(static_cast<T>(normal({.seed = seed}, 2 * i)),
                        static_cast<T>(normal({.seed = seed}, 2 * i + 1)));
  }
  return values;
}

/// Calls visit(i, point, element) for all points of [line][lane][point]. i counts the points; `element` is the position
/// of the real part.
template <class Visit>
void for_values(index_t lines, index_t lanes, index_t n, const Place& place, const Visit& visit) {
  std::size_t i = 0;
  for (index_t line = 0; line < lines; ++line) {
    for (index_t lane = 0; lane < lanes; ++lane) {
      for (index_t point = 0; point < n; ++point) visit(i++, point, line * place.line + point * place.step + lane);
    }
  }
}

struct Case {
  index_t lines, in_points, out_points;
  bool in_place, backward, gaps;
};

template <class T>
std::size_t bytes(index_t elements) {
  return static_cast<std::size_t>(elements) * sizeof(T);
}

/// Transforms lines whose input holds NaN outside its points, and whose output holds sentinels wherever it must not be
/// written. Returns a complaint or an empty text.
template <class T>
std::string run_complex(const Line<T>& line, const Case& c, std::vector<std::complex<T>>& values) {
  const index_t n = line.length(), lanes = line.lanes();
  const Place in = c.gaps ? interleaved(n, c.lines, lanes) : dense(n, c.lines, lanes);
  const Place out = c.gaps || c.in_place ? in : interleaved(n, c.lines, lanes);
  const Buffer<T> input(bytes<T>(in.elements)), other(bytes<T>(out.elements));
  const Buffer<T>& output = c.in_place ? input : other;
  std::vector<bool> wanted(static_cast<std::size_t>(output.size()));
  for (index_t i = 0; i < output.size(); ++i) output[i] = harness::sentinel<T>;
  for_values(c.lines, lanes, n, out, [&](std::size_t, index_t point, index_t at) {
    if (point >= c.out_points) return;
    for (const index_t part : {at, at + out.im}) {
      wanted[static_cast<std::size_t>(part)] = true;
      output[part] = std::numeric_limits<T>::quiet_NaN();
    }
  });
  for_values(c.lines, lanes, n, in, [&](std::size_t i, index_t point, index_t at) {
    // In place, points that are neither read nor written keep their sentinels.
    if (point >= c.in_points) return;
    for (const index_t part : {at, at + in.im}) {
      if (c.in_place && point >= c.out_points) wanted[static_cast<std::size_t>(part)] = true;
    }
    input[at] = values[i].real();
    input[at + in.im] = values[i].imag();
  });
  const Buffer<T> scratch(bytes<T>(line.scratch_elements()));
  Points<const T> from{input.data(), in.step, in.im};
  Points<T> to{output.data(), out.step, out.im};
  if (c.backward) {
    from = from.swapped();
    to = to.swapped();
  }
  line.complex_lines(from, to, scratch.data(), c.in_points, c.out_points, c.lines, in.line, out.line);
  for_values(c.lines, lanes, n, out, [&](std::size_t i, index_t point, index_t at) {
    values[i] = point < c.out_points ? std::complex<T>(output[at], output[at + out.im]) : T{0};
  });
  return harness::look_at_gaps(output, wanted, std::vector<bool>(wanted.size()));
}

/// Returns the reference, with pruned points as zeros, and the norm to which errors are relative.
template <class T>
Sample<T> complex_sample(index_t n, index_t lanes, const Case& c, std::uint64_t seed) {
  Sample<T> sample;
  sample.in = random_values<T>(c.lines * lanes * n, seed);
  for (std::size_t i = 0; i < sample.in.size(); ++i) {
    if (static_cast<index_t>(i) % n >= c.in_points) sample.in[i] = 0;
  }
  sample.out.assign(sample.in.begin(), sample.in.end());
  ref_transform(sample.out, {1, 1, n}, c.backward ? 1 : -1);
  for (std::size_t i = 0; i < sample.out.size(); ++i) {
    sample.norm += std::norm(sample.out[i]);
    if (static_cast<index_t>(i) % n >= c.out_points) sample.out[i] = 0;
  }
  sample.norm *= static_cast<long double>(c.out_points) / static_cast<long double>(n);
  return sample;
}

template <class T>
void check_complex(index_t n, PrimeAlgorithm algorithm, const Case& c) {
  for (const auto& name : available_simd_targets()) {
    const SimdScope scope(name);
    const Line<T> line(n, algorithm);
    INFO(name << ' ' << line.describe() << ", " << sizeof(T) << " bytes, " << c.lines << " lines, " << c.in_points
              << " points in, " << c.out_points << " out" << (c.in_place ? ", in place" : "")
              << (c.backward ? ", backward" : "") << (c.gaps ? ", gaps" : ""));
    const auto sample = complex_sample<T>(n, line.lanes(), c, static_cast<std::uint64_t>(n));
    auto values = sample.in;
    REQUIRE(run_complex(line, c, values) == "");
    ErrorSum error;
    error.add(values, sample);
    // A tolerance for few points; the promise is for many.
    REQUIRE(error.relative() / epsilon<T> <= 1.2 * slack_of(name) * accuracy({1, 1, n}));
  }
}

/// Checks different shares of a line that are given or wanted. Numbers of lines, layouts and directions alternate.
void check_length(index_t n, PrimeAlgorithm algorithm, int turn) {
  const std::pair<index_t, index_t> points[] = {
      {n, n}, {(n + 1) / 2, n}, {n, (n + 2) / 3}, {n - n / 4, (2 * n + 2) / 3}, {1, 1}};
  for (const auto& [in, out] : points) {
    ++turn;
    const Case c{.lines = index_t{1} + turn % 3 * 5,
                 .in_points = in,
                 .out_points = out,
                 .in_place = turn % 2 == 0,
                 .backward = turn / 2 % 2 == 0,
                 .gaps = turn / 3 % 2 == 0};
    check_complex<float>(n, algorithm, c);
    check_complex<double>(n, algorithm, c);
  }
}

/// Checks real lines to half spectra, and half spectra to real lines.
template <class T>
void check_real(index_t n, index_t lines) {
  const fft::Problem problem{.type = data_type_of<T>(), .kind = fft::Kind::r2c, .extent = {1, 1, n}};
  for (const auto& name : available_simd_targets()) {
    const SimdScope scope(name);
    const Line<T> line(n, PrimeAlgorithm::automatic);
    CAPTURE(name, line.describe(), lines, sizeof(T));
    REQUIRE(line.has_real() == (largest_prime_factor(n) <= 13));
    if (!line.has_real()) return;
    const index_t half = n / 2 + 1, lanes = line.lanes();
    fft::Problem forward = problem, inverse = problem;
    inverse.kind = fft::Kind::c2r;
    forward.batch = inverse.batch = lines * lanes;
    const Place spectrum = interleaved(half, lines, lanes);
    const index_t step = lines * lanes + 1;  // between real points
    const Buffer<T> real(bytes<T>(n * step)), points(bytes<T>(spectrum.elements));
    const Buffer<T> scratch(bytes<T>(line.scratch_elements()));
    const Place space{step, 0, lanes, n * step};
    std::vector<bool> written(static_cast<std::size_t>(points.size())),
        space_written(static_cast<std::size_t>(n * step));
    for_values(lines, lanes, half, spectrum, [&](std::size_t, index_t, index_t at) {
      written[static_cast<std::size_t>(at)] = written[static_cast<std::size_t>(at + spectrum.im)] = true;
    });
    for_values(lines, lanes, n, space,
               [&](std::size_t, index_t, index_t at) { space_written[static_cast<std::size_t>(at)] = true; });

    const auto sample = make_sample<T>(forward, Data::normal, static_cast<std::uint64_t>(n));
    for_values(lines, lanes, n, space, [&](std::size_t i, index_t, index_t at) { real[at] = sample.in[i].real(); });
    points.fill(harness::sentinel<T>);
    line.real(real.data(), step, {points.data(), spectrum.step, spectrum.im}, scratch.data(), lines, lanes,
              spectrum.line);
    REQUIRE(harness::look_at_gaps(points, written, std::vector<bool>(written.size())) == "");
    std::vector<std::complex<T>> got;
    for_values(lines, lanes, half, spectrum,
               [&](std::size_t, index_t, index_t at) { got.emplace_back(points[at], points[at + spectrum.im]); });
    const double bound = 1.2 * slack_of(name) * accuracy({1, 1, n});
    ErrorSum error;
    error.add(got, sample);
    REQUIRE(error.relative() / epsilon<T> <= bound);

    const auto back = make_sample<T>(inverse, Data::normal, static_cast<std::uint64_t>(n) + 1);
    for_values(lines, lanes, half, spectrum, [&](std::size_t i, index_t, index_t at) {
      points[at] = back.in[i].real();
      points[at + spectrum.im] = back.in[i].imag();
    });
    real.fill(harness::sentinel<T>);
    line.hermitian({points.data(), spectrum.step, spectrum.im}, real.data(), step, scratch.data(), lines, spectrum.line,
                   lanes);
    REQUIRE(harness::look_at_gaps(real, space_written, std::vector<bool>(space_written.size())) == "");
    got.clear();
    for_values(lines, lanes, n, space, [&](std::size_t, index_t, index_t at) { got.emplace_back(real[at]); });
    ErrorSum error_back;
    error_back.add(got, back);
    REQUIRE(error_back.relative() / epsilon<T> <= bound);
  }
}

}  // namespace

TEST_CASE("several lines at once are accurate at every length, pruned or not") {
  for (index_t n = 1; n <= 130; n += n <= 20 ? 1 : sanitized ? 9 : n <= 64 ? 1 : 3) {
    check_length(n, PrimeAlgorithm::automatic, static_cast<int>(n));
  }
  for (const index_t n : {144, 169, 240, 256}) {
    check_length(n, PrimeAlgorithm::automatic, static_cast<int>(n));
  }
}

TEST_CASE("pruned lines with a large prime among their factors are accurate by every algorithm") {
  int turn = 0;
  for (const index_t n : {17, 23, 34, 37, 51, 57, 68, 113, 136, 17 * 13, 17 * 19, 23 * 8}) {
    if (sanitized && n > 70) continue;
    for (const auto algorithm : all_prime_algorithms) check_length(n, algorithm, ++turn);
  }
}

TEST_CASE("several real lines at once are accurate there and back") {
  for (index_t n = 1; n <= 130; n += sanitized && n > 20 ? 9 : 1) {
    check_real<float>(n, 1 + n % 11);
    check_real<double>(n, 1 + n % 7);
  }
}

TEST_CASE("a line has the same bits alone and among others") {
  for (const index_t n : {6, 15, 17, 36, 60, 113, 120}) {
    for (const auto& name : available_simd_targets()) {
      CAPTURE(n, name);
      const SimdScope scope(name);
      const Line<float> line(n, PrimeAlgorithm::automatic);
      const index_t count = 5 * line.lanes() * n, one = line.lanes() * n;
      const auto values = random_values<float>(count, 9);
      auto together = values;
      Case c{.lines = 5, .in_points = n, .out_points = n, .in_place = false, .backward = false, .gaps = true};
      run_complex(line, c, together);
      c.lines = 1;
      for (index_t i = 0; i < 5; ++i) {
        const auto begin = values.begin() + i * one;
        std::vector<std::complex<float>> alone(begin, begin + one);
        run_complex(line, c, alone);
        REQUIRE(same_bits(alone, {together.begin() + i * one, together.begin() + (i + 1) * one}));
      }
    }
  }
}
