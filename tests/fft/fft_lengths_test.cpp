// Tests every short length in one dimension, which reveals errors of codelets, factors and partly filled groups of
// lines.
#include "testing/sanitizers.hpp"
#include <catch2/catch.hpp>

#include "tests/fft/fft_harness.hpp"

using namespace convolume;
using namespace convolume::test;

namespace {

/// Returns the error of the reference against the definition of the transform.
double error_of_reference(index_t n) {
  std::vector<std::complex<long double>> in, want;
  for (index_t i = 0; i < n; ++i) in.emplace_back(normal({.seed = 1}, 2 * i), normal({.seed = 1}, 2 * i + 1));
  const long double tau = 6.283185307179586476925286766559005768L;
  for (index_t k = 0; k < n; ++k) {
    std::complex<long double> sum = 0;
    for (index_t i = 0; i < n; ++i) {
      sum += in[static_cast<std::size_t>(i)] *
             std::polar(1.0L, tau * static_cast<long double>(i * k % n) / static_cast<long double>(n));
    }
    want.push_back(sum);
  }
  ref_transform(in, {1, 1, n}, 1);
  ErrorSum error;
  error.add(in, want);
  return error.relative();
}

/// Checks all backends on one length and kind. Short lengths repeat with other data, so that single roundings average
/// out.
template <class T>
void check_length(index_t n, fft::Kind kind, Data data) {
  constexpr index_t batches[4] = {1, 5, 19, 33};
  fft::Problem problem{.type = data_type_of<T>(), .kind = kind, .extent = {1, 1, n}};
  problem.batch = batches[(n + n / 4 + static_cast<index_t>(kind)) % 4];
  const index_t repeats = std::max<index_t>(1, 1500 / (n * problem.batch));
  std::vector<Sample<T>> samples;
  for (index_t i = 0; i < repeats; ++i) {
    samples.push_back(make_sample<T>(problem, data, static_cast<std::uint64_t>(n * 1000 + i)));
  }
  const double bound = accuracy(problem.extent), eps = epsilon<T>;
  std::vector<std::vector<std::complex<T>>> of_first_way;
  for (const Way& way : all_ways()) {
    INFO(way.name() << ": " << to_text(problem) << (data == Data::normal ? " normal" : " small integers"));
    const SimdScope scope(way.target);
    const auto plan = fft::Plan::make(problem, {.backend = way.backend});
    ErrorSum error, difference;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto outcome = run(plan, samples[i].in);
      REQUIRE(outcome.complaint == "");
      error.add(outcome.out, samples[i]);
      if (of_first_way.size() <= i) of_first_way.push_back(outcome.out);
      difference.add(outcome.out, of_first_way[i]);
    }
    REQUIRE(error.relative() / eps <= slack(plan) * bound);
    REQUIRE(difference.relative() / eps <= 3 * bound);
  }
}

template <class T>
void check_lengths(fft::Kind kind) {
  // With a sanitizer fewer lengths still cover every factor and every remainder of a vector.
  for (index_t n = 1; n <= 300; n += sanitized && n > 34 ? 11 : 1) {
    check_length<T>(n, kind, Data::normal);
    check_length<T>(n, kind, Data::small_integers);
  }
}

}  // namespace

TEST_CASE("the reference agrees with the definition") {
  for (index_t n = 1; n <= 40; ++n) {
    CAPTURE(n);
    REQUIRE(error_of_reference(n) < 1e-17);
  }
}

TEST_CASE("every length to 300 is accurate on every instruction set: r2c") {
  check_lengths<float>(fft::Kind::r2c);
  check_lengths<double>(fft::Kind::r2c);
}

TEST_CASE("every length to 300 is accurate on every instruction set: c2r") {
  check_lengths<float>(fft::Kind::c2r);
  check_lengths<double>(fft::Kind::c2r);
}

TEST_CASE("every length to 300 is accurate on every instruction set: c2c forward") {
  check_lengths<float>(fft::Kind::c2c_forward);
  check_lengths<double>(fft::Kind::c2c_forward);
}

TEST_CASE("every length to 300 is accurate on every instruction set: c2c backward") {
  check_lengths<float>(fft::Kind::c2c_backward);
  check_lengths<double>(fft::Kind::c2c_backward);
}
