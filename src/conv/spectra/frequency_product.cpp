#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/spectra/frequency_product.cpp"
// Highway's header includes this file once per SIMD target. This must come before everything that the header guards.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "conv/spectra/frequency_product-inl.hpp"

#if HWY_ONCE
#include <algorithm>

#include "conv/spectra/frequency_product.hpp"

namespace convolume::conv {

HWY_EXPORT(AddProductsF32);
HWY_EXPORT(AddProductsF64);
HWY_EXPORT(ScaleShiftF32);
HWY_EXPORT(ScaleShiftF64);

namespace {

// Number of frequencies per pass. The sums of so many frequencies stay in the L1 while the terms are read.
constexpr index_t chunk = 512;

template <class T>
void products(const T* const* a, const T* const* b, index_t terms, bool conjugate_b, index_t count, bool add,
              T* sum) noexcept {
  for (index_t begin = 0; begin < count; begin += chunk) {
    const index_t n = std::min(chunk, count - begin);
    for (index_t t = 0; t < terms; t += terms_per_pass) {
      const bool first = t == 0 && !add;
      const index_t pass = std::min(terms_per_pass, terms - t);
      if constexpr (std::is_same_v<T, float>) {
        HWY_DYNAMIC_DISPATCH(AddProductsF32)(a + t, b + t, pass, 2 * begin, conjugate_b, n, first, sum + 2 * begin);
      } else {
        HWY_DYNAMIC_DISPATCH(AddProductsF64)(a + t, b + t, pass, 2 * begin, conjugate_b, n, first, sum + 2 * begin);
      }
    }
  }
}

}  // namespace

template <class T>
void sum_of_products(const T* const* a, const T* const* b, index_t terms, bool conjugate_b, index_t count,
                     T* sum) noexcept {
  products(a, b, terms, conjugate_b, count, false, sum);
}

template <class T>
void add_products(const T* const* a, const T* const* b, index_t terms, bool conjugate_b, index_t count,
                  T* sum) noexcept {
  products(a, b, terms, conjugate_b, count, true, sum);
}

template <>
void scale_shift<float>(const float* x, float scale, float shift, bool add, float* y, index_t n) noexcept {
  HWY_DYNAMIC_DISPATCH(ScaleShiftF32)(x, scale, shift, add, y, n);
}

template <>
void scale_shift<double>(const double* x, double scale, double shift, bool add, double* y, index_t n) noexcept {
  HWY_DYNAMIC_DISPATCH(ScaleShiftF64)(x, scale, shift, add, y, n);
}

template void sum_of_products(const float* const*, const float* const*, index_t, bool, index_t, float*) noexcept;
template void sum_of_products(const double* const*, const double* const*, index_t, bool, index_t, double*) noexcept;
template void add_products(const float* const*, const float* const*, index_t, bool, index_t, float*) noexcept;
template void add_products(const double* const*, const double* const*, index_t, bool, index_t, double*) noexcept;

}  // namespace convolume::conv
#endif  // HWY_ONCE
