#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/spectra/frequency_product.cpp"
// Highway's header includes this file once per SIMD target. This must come before everything that the header guards.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "conv/spectra/frequency_product-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {

SpectrumKernels<float> SpectrumKernelsF32() { return {SumProducts<float>, ScaleShift<float>}; }
SpectrumKernels<double> SpectrumKernelsF64() { return {SumProducts<double>, ScaleShift<double>}; }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(SpectrumKernelsF32);
HWY_EXPORT(SpectrumKernelsF64);

template <>
SpectrumKernels<float> spectrum_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(SpectrumKernelsF32)();
}
template <>
SpectrumKernels<double> spectrum_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(SpectrumKernelsF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
