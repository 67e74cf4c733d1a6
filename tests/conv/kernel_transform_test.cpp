// Tests that all ways to compute the spectra of kernels give the same numbers.
#include "conv/volume/kernel_transform.hpp"

#include <complex>

#include "testing/conv_case.hpp"
#include <catch2/catch.hpp>

using namespace convolume;
using conv::KernelTransform;
using test::ConvCase;

namespace {

bool both_pruned(const KernelTransform<float>& transform) { return transform.describe() == "pruned and back pruned"; }

template <class T>
struct KernelCase {
  Extent3 kernel;
  fft::Plan volume;
  KernelTransform<T> transform;
  Tensor<T> spectrum, scratch;

  KernelCase(const Extent3& extent, fft::Order order, const Extent3& k, const Extent3& dilation,
             const fft::Options& options)
      : kernel(k),
        volume(fft::Plan::make({.type = data_type_of<T>(), .extent = extent, .order = order}, options)),
        transform(volume, k, dilation, options),
        spectrum({1, 1, {1, 1, 2 * volume.spectrum_elements()}}),
        scratch({1, 1, {1, 1, static_cast<index_t>(transform.scratch_bytes() / sizeof(T)) + 1}}) {
    // NaN shows whether a transform depends on earlier contents of the memory.
    spectrum.fill(std::numeric_limits<T>::quiet_NaN());
    scratch.fill(std::numeric_limits<T>::quiet_NaN());
  }
  void forward(const Tensor<T>& voxels) { transform.forward(voxels.data(), spectrum.data(), scratch.data()); }
  std::complex<T> at(index_t z, index_t y, index_t x) const {
    const Extent3 stride = volume.spectrum_stride();
    const index_t i = 2 * (z * stride.z + y * stride.y + x * stride.x);
    return {spectrum.data()[i], spectrum.data()[i + 1]};
  }
};

}  // namespace

TEMPLATE_TEST_CASE("kernels have the same spectra by both backends, pruned or not, dilated or not", "", float, double) {
  using T = TestType;
  struct Shape {
    Extent3 extent, kernel, dilation;
  };
  const double tolerance = sizeof(T) == 4 ? 2e-6 : 1e-14;
  for (const Shape& s : {Shape{{16, 15, 14}, {3, 3, 3}, {1, 1, 1}}, Shape{{16, 16, 18}, {5, 5, 5}, {1, 1, 1}},
                         Shape{{24, 20, 20}, {7, 9, 8}, {1, 1, 1}}, Shape{{1, 30, 32}, {1, 3, 4}, {1, 1, 1}},
                         Shape{{12, 14, 15}, {3, 2, 4}, {2, 3, 1}}, Shape{{9, 9, 9}, {9, 9, 9}, {1, 1, 1}},
                         Shape{{8, 8, 8}, {1, 1, 1}, {1, 1, 1}}}) {
    for (const fft::Order order : {fft::Order::natural, fft::Order::rotated}) {
      CAPTURE(to_string(s.extent), to_string(s.kernel), order == fft::Order::rotated);
      const auto voxels = test::random_tensor<T>({1, 1, s.kernel}, 1);
      KernelCase<T> native(s.extent, order, s.kernel, s.dilation, {});
      KernelCase<T> fftw(s.extent, order, s.kernel, s.dilation, {.backend = fft::Backend::fftw});
      native.forward(voxels);
      fftw.forward(voxels);
      double difference = 0, norm = 0;
      for (index_t z = 0; z < s.extent.z; ++z) {
        for (index_t y = 0; y < s.extent.y; ++y) {
          for (index_t x = 0; x < s.extent.x / 2 + 1; ++x) {
            difference += static_cast<double>(std::norm(native.at(z, y, x) - fftw.at(z, y, x)));
            norm += static_cast<double>(std::norm(fftw.at(z, y, x)));
          }
        }
      }
      CHECK(std::sqrt(difference / norm) < tolerance);
      for (auto* one : {&native, &fftw}) {
        auto back = test::poisoned<T>({1, 1, s.kernel});
        one->transform.inverse(one->spectrum.data(), back.data(), one->scratch.data());
        for (index_t i = 0; i < back.elements(); ++i) back.data()[i] /= static_cast<T>(s.extent.volume());
        CHECK(test::relative_error(back, voxels) < tolerance);
      }
    }
  }
}

TEST_CASE("FFTW's kernels are FFTW's, native ones take the faster way") {
  const Extent3 n = Extent3::all(32), k3 = Extent3::all(3), k8 = Extent3::all(8), one = Extent3::all(1);
  const fft::Options fftw{.backend = fft::Backend::fftw};
  const auto rotated = fft::Order::rotated, natural = fft::Order::natural;
  CHECK(both_pruned(KernelCase<float>(n, rotated, k3, one, {}).transform));
  CHECK_THAT(KernelCase<float>(n, rotated, k8, one, {}).transform.describe(), Catch::StartsWith("native"));
  CHECK_THAT(KernelCase<float>(n, rotated, Extent3::all(5), one, {}).transform.describe(),
             Catch::StartsWith("pruned and back native"));
  CHECK_THAT(KernelCase<float>(n, natural, k3, one, {}).transform.describe(), !Catch::Contains("pruned"));
  CHECK(both_pruned(KernelCase<float>(n, natural, k3, Extent3::all(2), {}).transform));
  CHECK_THAT(KernelCase<float>(n, rotated, k3, one, fftw).transform.describe(),
             Catch::Contains("fftw") && !Catch::Contains("pruned") && !Catch::Contains("native"));
}
