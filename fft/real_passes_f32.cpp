#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fft/real_passes_f32.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "fft/real_passes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::fft {
namespace HWY_NAMESPACE {

void FillRealFloat(LineKernels<float>& kernels) {
  FillRealPasses(kernels, std::make_index_sequence<largest_codelet>{});
}

}  // namespace HWY_NAMESPACE
}  // namespace convolume::fft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::fft {

HWY_EXPORT(FillRealFloat);

template <>
void LineKernels<float>::add_real_passes(std::size_t target) {
  HWY_DISPATCH_TABLE(FillRealFloat)[target](*this);
}

}  // namespace convolume::fft
#endif  // HWY_ONCE
