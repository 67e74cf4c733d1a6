// Tests lengths with large prime factors, with each of the algorithms for them.
#include "testing/sanitizers.hpp"
#include <catch2/catch.hpp>

#include "tests/fft/fft_harness.hpp"

using namespace convolume;
using namespace convolume::test;
using fft::PrimeAlgorithm;

namespace {

const char* name_of_algorithm(PrimeAlgorithm algorithm) {
  constexpr const char* names[] = {"automatic", "generic", "rader", "rader_padded", "bluestein"};
  return names[static_cast<int>(algorithm)];
}

/// Checks every algorithm on every instruction set against the reference.
template <class T>
void check(const fft::Problem& shape, std::uint64_t seed) {
  fft::Problem problem = shape;
  problem.type = data_type_of<T>();
  const auto sample = make_sample<T>(problem, Data::normal, seed);
  for (const auto& target : available_simd_targets()) {
    const SimdScope scope(target);
    for (const auto algorithm : all_prime_algorithms) {
      INFO(target << ' ' << name_of_algorithm(algorithm) << ": " << to_text(problem));
      const auto plan = fft::Plan::make(problem, {.prime = algorithm});
      const auto outcome = run(plan, sample.in);
      REQUIRE(outcome.complaint == "");
      ErrorSum error;
      error.add(outcome.out, sample);
      REQUIRE(error.relative() / epsilon<T> <= slack(plan) * accuracy(problem.extent));
    }
  }
}

/// Checks <Fx, y> = <x, F'y>: the backward transform F' is the adjoint of the forward transform F.
template <class T>
void check_adjoint(index_t n, PrimeAlgorithm algorithm) {
  CAPTURE(n, name_of_algorithm(algorithm), sizeof(T));
  const fft::Problem problem{
      .type = data_type_of<T>(), .kind = fft::Kind::c2c_forward, .extent = {1, 1, n}, .batch = 3};
  fft::Problem adjoint = problem;
  adjoint.kind = fft::Kind::c2c_backward;
  std::vector<std::complex<T>> x, y;
  for (std::uint64_t i = 0; i < 3 * static_cast<std::uint64_t>(n); ++i) {
    x.emplace_back(static_cast<T>(normal({.seed = 3}, 2 * i)), static_cast<T>(normal({.seed = 3}, 2 * i + 1)));
    y.emplace_back(static_cast<T>(normal({.seed = 4}, 2 * i)), static_cast<T>(normal({.seed = 4}, 2 * i + 1)));
  }
  const auto plan = fft::Plan::make(problem, {.prime = algorithm});
  const auto fx = run(plan, x).out;
  const auto fy = run(fft::Plan::make(adjoint, {.prime = algorithm}), y).out;
  const double norm = std::sqrt(static_cast<double>(inner_product(fx, fx).real() * inner_product(y, y).real()));
  const double difference = static_cast<double>(std::abs(inner_product(fx, y) - inner_product(x, fy)));
  REQUIRE(difference / epsilon<T> <= 2 * slack(plan) * accuracy(problem.extent) * norm);
}

bool is_prime(index_t n) { return n > 1 && largest_prime_factor(n) == n; }

}  // namespace

TEST_CASE("every prime to 300 is accurate by every algorithm on every instruction set") {
  constexpr index_t batches[3] = {19, 5, 33};
  std::size_t count = 0;
  for (index_t p = 17; p < 300; ++p) {
    if (!is_prime(p)) continue;
    ++count;
    if (sanitized && count % 6 != 1) continue;
    fft::Problem problem{.kind = fft::Kind::c2c_forward, .extent = {1, 1, p}, .batch = batches[count % 3]};
    check<float>(problem, static_cast<std::uint64_t>(p));
    check<double>(problem, static_cast<std::uint64_t>(p));
    // The other kinds use the same kernels through other code paths.
    problem.kind = count % 3 == 0 ? fft::Kind::r2c : count % 3 == 1 ? fft::Kind::c2r : fft::Kind::c2c_backward;
    check<float>(problem, static_cast<std::uint64_t>(p));
    check<double>(problem, static_cast<std::uint64_t>(p));
  }
  CHECK(count == 56);
}

TEST_CASE("a large prime among other factors is accurate by every algorithm") {
  constexpr index_t lengths[] = {2 * 17,  2 * 113, 2 * 293, 3 * 19,  3 * 97,  4 * 23,         5 * 29,  11 * 31,
                                 13 * 17, 16 * 61, 17 * 17, 17 * 19, 19 * 19, 2 * 2 * 3 * 37, 43 * 43, 23 * 29};
  std::size_t i = 0;
  for (const index_t n : lengths) {
    for (const auto kind : all_kinds) {
      if (++i % 5 != 0 && (sanitized || n > 600)) continue;
      const fft::Problem problem{.kind = kind, .extent = {1, 1, n}, .batch = i % 2 == 0 ? 5 : 9};
      check<float>(problem, static_cast<std::uint64_t>(n));
      check<double>(problem, static_cast<std::uint64_t>(n));
    }
  }
}

TEST_CASE("primes along each axis of a volume are accurate by every algorithm") {
  for (const Extent3& e : {Extent3{17, 4, 6}, Extent3{4, 23, 5}, Extent3{3, 4, 31}, Extent3{17, 19, 23}}) {
    for (const auto kind : {fft::Kind::r2c, fft::Kind::c2r, fft::Kind::c2c_forward}) {
      for (const auto order : {fft::Order::natural, fft::Order::rotated}) {
        const fft::Problem problem{.kind = kind, .extent = e, .order = order};
        check<float>(problem, 11);
        check<double>(problem, 12);
      }
    }
  }
}

TEST_CASE("the backward transform is the adjoint of the forward one for every prime and algorithm") {
  for (index_t n = 2; n < 300; n += sanitized && n > 60 ? 17 : 1) {
    if (!is_prime(n) && n % 34 != 0) continue;
    for (const auto algorithm : all_prime_algorithms) {
      check_adjoint<float>(n, algorithm);
      check_adjoint<double>(n, algorithm);
    }
  }
}

TEST_CASE("lengths without a prime above 13 give the same bits whatever the algorithm for primes") {
  for (const index_t n : {1, 2, 7, 11, 13, 16, 60, 121, 143, 169, 240}) {
    CAPTURE(n);
    const fft::Problem problem{.kind = fft::Kind::r2c, .extent = {1, 1, n}, .batch = 7};
    const auto sample = make_sample<float>(problem, Data::normal, 5);
    const auto expected = run(fft::Plan::make(problem), sample.in).out;
    for (const auto algorithm : all_prime_algorithms) {
      CAPTURE(name_of_algorithm(algorithm));
      REQUIRE(same_bits(run(fft::Plan::make(problem, {.prime = algorithm}), sample.in).out, expected));
    }
  }
}
