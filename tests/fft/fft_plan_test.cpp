#include <cmath>
#include <complex>
#include <limits>
#include <memory_resource>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "convolume/fft.hpp"
#include "core/random.hpp"

using namespace convolume;

namespace {

using Complex = std::complex<double>;

/// 64-byte aligned elements that start as NaN.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : tensor_({.n = 1, .c = 1, .extent = {1, 1, size(bytes)}}) {
    tensor_.fill(std::numeric_limits<T>::quiet_NaN());
  }
  T* data() { return tensor_.data(); }
  T& operator[](index_t i) { return tensor_.data()[i]; }

 private:
  static index_t size(std::size_t bytes) { return static_cast<index_t>(std::max<std::size_t>(1, bytes / sizeof(T))); }
  Tensor<T> tensor_;
};

/// The transform along each axis in turn, by definition.
std::vector<Complex> ref_dft(std::vector<Complex> data, const Extent3& e, int sign) {
  const double tau = 6.283185307179586476925286766559;
  std::vector<Complex> out(data.size());
  const index_t strides[3] = {e.y * e.x, e.x, 1};
  for (int axis = 0; axis < 3; ++axis) {
    const index_t n = e[axis], stride = strides[axis];
    for (index_t base = 0; base < static_cast<index_t>(data.size()); ++base) {
      const index_t k = base / stride % n;
      Complex sum = 0;
      for (index_t j = 0; j < n; ++j) {
        const double angle = sign * tau * static_cast<double>(j * k % n) / static_cast<double>(n);
        sum += data[static_cast<std::size_t>(base + (j - k) * stride)] * Complex(std::cos(angle), std::sin(angle));
      }
      out[static_cast<std::size_t>(base)] = sum;
    }
    std::swap(data, out);
  }
  return data;
}

template <class T>
double tolerance() {
  return sizeof(T) == 4 ? 2e-6 : 4e-15;
}

index_t spectrum_index(const fft::Plan& plan, index_t z, index_t y, index_t x) {
  const Extent3 s = plan.spectrum_stride();
  return z * s.z + y * s.y + x * s.x;
}

/// r2c against the definition, and c2r back to the input.
template <class T>
void check_real(const Extent3& e, fft::Order order, index_t planes) {
  CAPTURE(to_string(e), order == fft::Order::rotated, planes, sizeof(T));
  fft::Problem problem{
      .type = data_type_of<T>(), .kind = fft::Kind::r2c, .extent = e, .order = order, .planes = planes};
  const auto forward = fft::Plan::make(problem);
  Buffer<T> space(forward.space_bytes()), spectrum(forward.spectrum_bytes()), scratch(forward.scratch_bytes());
  std::vector<Complex> input(static_cast<std::size_t>(e.volume()), 0.0);
  const index_t used = (planes == 0 ? e.z : planes) * e.y * e.x;
  for (index_t i = 0; i < used; ++i) {
    space[i] = static_cast<T>(normal({.seed = 5}, static_cast<std::uint64_t>(i)));
    input[static_cast<std::size_t>(i)] = static_cast<double>(space[i]);
  }
  forward.execute(space.data(), spectrum.data(), scratch.data());
  const auto expected = ref_dft(input, e, -1);
  double error = 0, norm = 0;
  for (index_t z = 0; z < e.z; ++z) {
    for (index_t y = 0; y < e.y; ++y) {
      for (index_t x = 0; x < e.x / 2 + 1; ++x) {
        const index_t at = spectrum_index(forward, z, y, x);
        const Complex got(static_cast<double>(spectrum[2 * at]), static_cast<double>(spectrum[2 * at + 1]));
        const Complex want = expected[static_cast<std::size_t>((z * e.y + y) * e.x + x)];
        error += std::norm(got - want);
        norm += std::norm(want);
      }
    }
  }
  REQUIRE(std::sqrt(error) <= tolerance<T>() * std::sqrt(norm));

  problem.kind = fft::Kind::c2r;
  const auto backward = fft::Plan::make(problem);
  Buffer<T> again(backward.space_bytes()), more(backward.scratch_bytes());
  Buffer<T> before(forward.spectrum_bytes());
  std::copy_n(spectrum.data(), forward.spectrum_bytes() / sizeof(T), before.data());
  backward.execute(spectrum.data(), again.data(), more.data());
  for (std::size_t i = 0; i < forward.spectrum_bytes() / sizeof(T); ++i) {
    REQUIRE(spectrum[static_cast<index_t>(i)] == before[static_cast<index_t>(i)]);
  }
  const auto points = static_cast<double>(e.volume());
  error = norm = 0;
  for (index_t i = 0; i < used; ++i) {
    const double got = static_cast<double>(again[i]) / points;
    error += (got - static_cast<double>(space[i])) * (got - static_cast<double>(space[i]));
    norm += static_cast<double>(space[i] * space[i]);
  }
  REQUIRE(std::sqrt(error) <= tolerance<T>() * std::sqrt(norm));
}

const std::vector<Extent3> shapes{{1, 1, 1}, {1, 1, 2},  {1, 1, 17}, {1, 13, 1}, {7, 1, 1},  {1, 5, 6},
                                  {2, 3, 4}, {5, 7, 11}, {8, 8, 8},  {3, 17, 9}, {16, 4, 5}, {9, 10, 31}};

}  // namespace

TEST_CASE("real transforms agree with the definition and come back, natural and rotated, float and double") {
  for (const auto& e : shapes) {
    for (const auto order : {fft::Order::natural, fft::Order::rotated}) {
      check_real<float>(e, order, 0);
      check_real<double>(e, order, 0);
      if (e.z > 2) check_real<float>(e, order, 2);
      if (e.z > 2) check_real<double>(e, order, 1);
    }
  }
}

TEST_CASE("complex transforms agree with the definition in both directions and orders") {
  for (const auto& e : shapes) {
    for (const auto kind : {fft::Kind::c2c_forward, fft::Kind::c2c_backward}) {
      for (const auto order : {fft::Order::natural, fft::Order::rotated}) {
        CAPTURE(to_string(e), kind == fft::Kind::c2c_forward, order == fft::Order::rotated);
        const auto plan = fft::Plan::make({.type = DataType::f64, .kind = kind, .extent = e, .order = order});
        const bool forward = kind == fft::Kind::c2c_forward;
        Buffer<double> in(forward ? plan.space_bytes() : plan.spectrum_bytes());
        Buffer<double> out(forward ? plan.spectrum_bytes() : plan.space_bytes()), scratch(plan.scratch_bytes());
        for (std::size_t i = 0; i < (forward ? plan.space_bytes() : plan.spectrum_bytes()) / 8; ++i) {
          in[static_cast<index_t>(i)] = 0;  // padding of the rotated order
        }
        std::vector<Complex> input(static_cast<std::size_t>(e.volume()));
        const auto at = [&](bool spectrum, index_t z, index_t y, index_t x) {
          return spectrum ? spectrum_index(plan, z, y, x) : (z * e.y + y) * e.x + x;
        };
        for (index_t i = 0; i < e.volume(); ++i) {
          const Complex value(normal({.seed = 6}, static_cast<std::uint64_t>(2 * i)),
                              normal({.seed = 6}, static_cast<std::uint64_t>(2 * i + 1)));
          input[static_cast<std::size_t>(i)] = value;
          const index_t to = at(!forward, i / (e.y * e.x), i / e.x % e.y, i % e.x);
          in[2 * to] = value.real();
          in[2 * to + 1] = value.imag();
        }
        plan.execute(in.data(), out.data(), scratch.data());
        const auto expected = ref_dft(input, e, forward ? -1 : 1);
        for (index_t i = 0; i < e.volume(); ++i) {
          const index_t from = at(forward, i / (e.y * e.x), i / e.x % e.y, i % e.x);
          REQUIRE(std::abs(Complex(out[2 * from], out[2 * from + 1]) - expected[static_cast<std::size_t>(i)]) < 1e-11);
        }
      }
    }
  }
}

TEST_CASE("batches, row strides and in-place transforms give the bits of single dense ones") {
  const Extent3 e{4, 5, 6};
  const auto single = fft::Plan::make({.kind = fft::Kind::r2c, .extent = e});
  const fft::Problem strided{.kind = fft::Kind::r2c,
                             .extent = e,
                             .batch = 3,
                             .space_distance = 300,
                             .spectrum_distance = 99,
                             .row_stride = 8,
                             .plane_stride = 50};
  const auto batched = fft::Plan::make(strided);
  const auto in_place = fft::Plan::make({.kind = fft::Kind::r2c, .extent = e, .in_place = true});
  Buffer<float> volumes(batched.space_bytes()), spectra(batched.spectrum_bytes()), scratch(batched.scratch_bytes());
  for (index_t i = 0; i < static_cast<index_t>(batched.space_bytes() / 4); ++i) {
    volumes[i] = static_cast<float>(normal({.seed = 7}, static_cast<std::uint64_t>(i)));
  }
  batched.execute(volumes.data(), spectra.data(), scratch.data());
  for (index_t b = 0; b < 3; ++b) {
    Buffer<float> dense(single.space_bytes()), spectrum(single.spectrum_bytes()), place(in_place.space_bytes());
    for (index_t z = 0; z < e.z; ++z) {
      for (index_t y = 0; y < e.y; ++y) {
        for (index_t x = 0; x < e.x; ++x) {
          const float value = volumes[b * 300 + z * 50 + y * 8 + x];
          dense[(z * e.y + y) * e.x + x] = value;
          place[(z * e.y + y) * 8 + x] = value;
        }
      }
    }
    single.execute(dense.data(), spectrum.data(), nullptr);
    in_place.execute(place.data(), place.data(), nullptr);
    for (index_t i = 0; i < 2 * single.spectrum_elements(); ++i) {
      CHECK(spectra[b * 198 + i] == Approx(spectrum[i]).margin(1e-5));
      CHECK(place[i] == Approx(spectrum[i]).margin(1e-5));
    }
  }
}

TEST_CASE("a plan does not change after other plans were measured") {
  const fft::Problem problem{.kind = fft::Kind::r2c, .extent = {12, 14, 15}, .order = fft::Order::rotated};
  fft::set_plan_cache_capacity(0);
  const auto before = fft::Plan::make(problem).describe();
  static_cast<void>(fft::Plan::make(problem, {.rigor = fft::Rigor::measure}));
  CHECK(fft::Plan::make(problem).describe() == before);
  fft::set_plan_cache_capacity(256);
}

TEST_CASE("the plan cache is bounded and can be switched off") {
  fft::set_plan_cache_capacity(0);
  CHECK(fft::plan_cache_size() == 0);
  static_cast<void>(fft::Plan::make({.extent = {1, 1, 20}}));
  CHECK(fft::plan_cache_size() == 0);
  fft::set_plan_cache_capacity(2);
  for (index_t n = 20; n < 25; ++n) static_cast<void>(fft::Plan::make({.extent = {1, 1, n}}));
  CHECK(fft::plan_cache_size() == 2);
  fft::set_plan_cache_capacity(256);
}

TEST_CASE("plans are made and executed by many threads at once, with the same bits") {
  const fft::Problem problem{.kind = fft::Kind::r2c, .extent = {6, 9, 10}, .order = fft::Order::rotated};
  fft::set_plan_cache_capacity(1);
  std::vector<std::vector<float>> results(8);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int repeat = 0; repeat < 3; ++repeat) {
        static_cast<void>(fft::Plan::make({.extent = {1, 1, static_cast<index_t>(30 + t)}}));
        const auto plan = fft::Plan::make(problem);
        Buffer<float> in(plan.space_bytes()), out(plan.spectrum_bytes()), scratch(plan.scratch_bytes());
        for (index_t i = 0; i < 540; ++i) in[i] = static_cast<float>(i % 37);
        plan.execute(in.data(), out.data(), scratch.data());
        results[t].assign(out.data(), out.data() + plan.spectrum_bytes() / 4);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) CHECK(result == results[0]);
  fft::set_plan_cache_capacity(256);
}

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

TEST_CASE("problems and buffers that make no sense are refused by name") {
  using fft::Plan;
  CHECK_THROWS_WITH(Plan::make({.extent = {0, 1, 1}}), Catch::Contains("extent.z is 0"));
  CHECK_THROWS_WITH(Plan::make({.extent = {1, 1, -3}}), Catch::Contains("extent.x is -3"));
  CHECK_THROWS_WITH(Plan::make({.extent = {2, 2, 2}, .batch = 0}), Catch::Contains("batch is 0"));
  CHECK_THROWS_WITH(Plan::make({.extent = {2, 2, 8}, .row_stride = 5}), Catch::Contains("row_stride is 5"));
  CHECK_THROWS_WITH(Plan::make({.extent = {2, 2, 8}, .planes = 3}), Catch::Contains("planes is 3"));
  CHECK_THROWS_WITH(Plan::make({.extent = {2, 2, 8}, .batch = 2, .space_distance = 4}),
                    Catch::Contains("space_distance"));
  CHECK_THROWS_AS(Plan::make({.extent = {index_t{1} << 31, index_t{1} << 31, 4}}), OverflowError);
  const auto plan = Plan::make({.extent = {4, 4, 4}, .order = fft::Order::rotated});
  Buffer<float> in(plan.space_bytes()), out(plan.spectrum_bytes()), scratch(plan.scratch_bytes());
  for (index_t i = 0; i < 64; ++i) in[i] = 1;
  CHECK_THROWS_WITH(plan.execute(nullptr, out.data(), scratch.data()), Catch::Contains("in is null"));
  CHECK_THROWS_WITH(plan.execute(in.data() + 1, out.data(), scratch.data()), Catch::Contains("not aligned"));
  CHECK_THROWS_WITH(plan.execute(in.data(), in.data(), scratch.data()), Catch::Contains("overlap"));
  CHECK_THROWS_WITH(plan.execute(in.data(), out.data(), out.data()), Catch::Contains("overlap"));
  plan.execute(in.data(), out.data(), scratch.data());
  CHECK(out[0] == 64);
}
