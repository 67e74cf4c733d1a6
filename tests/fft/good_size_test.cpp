#include <limits>

#include <catch2/catch.hpp>

#include "convolume/fft.hpp"

using namespace convolume;

TEST_CASE("good sizes have no factor above 7 and are the smallest such") {
  CHECK(fft::good_size(1) == 1);
  CHECK(fft::good_size(11) == 12);
  CHECK(fft::good_size(127) == 128);
  CHECK(fft::good_size(211) == 216);
  for (index_t n = 1; n < 3000; ++n) {
    const index_t size = fft::good_size(n);
    const auto smooth = [](index_t m) {
      for (const index_t factor : {2, 3, 5, 7}) {
        while (m % factor == 0) m /= factor;
      }
      return m == 1;
    };
    REQUIRE(smooth(size));
    for (index_t m = n; m < size; ++m) REQUIRE_FALSE(smooth(m));
  }
  CHECK(fft::good_size((index_t{1} << 61) - 1) == index_t{1} << 61);
  CHECK_THROWS_AS(fft::good_size(std::numeric_limits<index_t>::max()), OverflowError);
  CHECK_THROWS_AS(fft::good_size(0), InvalidArgument);
}

TEST_CASE("a plan counts the operations of its transform") {
  CHECK(fft::Plan::make({.kind = fft::Kind::c2c_forward, .extent = {4, 8, 16}}).flops() == 5.0 * 512 * 9);
  CHECK(fft::Plan::make({.kind = fft::Kind::c2r, .extent = {1, 1, 64}, .batch = 7}).flops() == 2.5 * 64 * 6);
  CHECK(fft::Plan::make({.extent = {1, 1, 1}}).flops() == 0);
}
