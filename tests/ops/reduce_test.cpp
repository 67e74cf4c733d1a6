#include "ops/reduce.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {

TEMPLATE_TEST_CASE("sums match an extended reference", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(11);
    for (const index_t n : {0, 1, 2, 3, 7, 31, 64, 97, 1000, 40009}) {
      INFO("n " << n);
      const auto a = random.uniform<T>(n, -1, 1), b = random.uniform<T>(n, 99, 101);
      long double total = 0, squares = 0, products = 0, magnitude = 1e-300L;
      for (std::size_t i = 0; i < a.size(); ++i) {
        const auto u = static_cast<long double>(a[i]), v = static_cast<long double>(b[i]);
        total += u;
        magnitude += std::abs(u);
        squares += (v - 100) * (v - 100);
        products += u * (v - 100);
      }
      const auto scale = static_cast<double>(magnitude);
      REQUIRE(close(sum(a.data(), n), static_cast<double>(total), 1e-14, scale));
      REQUIRE(close(sum_of_squares(b.data(), n, 100), static_cast<double>(squares), 1e-13, scale));
      REQUIRE(close(sum_of_products(a.data(), b.data(), n, 100), static_cast<double>(products), 1e-13, scale));
    }
    // Sums of small integers are exact.
    std::vector<T> counted(12345);
    index_t expected = 0;
    for (T& value : counted) {
      const index_t number = random.integer(-9, 9);
      value = static_cast<T>(number);
      expected += number * number;
    }
    REQUIRE(sum_of_squares(counted.data(), 12345) == static_cast<double>(expected));
  });
}

TEMPLATE_TEST_CASE("a sum does not depend on alignment", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(12);
    const auto x = random.uniform<T>(1009, -1, 1);
    std::vector<T> shifted(1040);
    for (index_t shift = 0; shift < 16; ++shift) {
      std::copy(x.begin(), x.end(), shifted.begin() + shift);
      REQUIRE(sum(shifted.data() + shift, 1009) == sum(x.data(), 1009));
    }
  });
}

TEMPLATE_TEST_CASE("one infinity or NaN is found anywhere", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    for (const index_t n : {1, 2, 5, 17, 100, 2500}) {
      std::vector<T> x(static_cast<std::size_t>(n), std::numeric_limits<T>::max());
      REQUIRE(all_finite(x.data(), n));
      for (index_t i = 0; i < n; i += 1 + n / 40) {
        for (const T bad : {nan<T>, std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity()}) {
          x[static_cast<std::size_t>(i)] = bad;
          REQUIRE_FALSE(all_finite(x.data(), n));
          REQUIRE(all_finite(x.data(), i));
        }
        x[static_cast<std::size_t>(i)] = 0;
      }
    }
  });
}

}  // namespace convolume::ops::test
