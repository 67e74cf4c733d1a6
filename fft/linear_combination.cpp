#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fft/linear_combination.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "fft/linear_combination-inl.hpp"

#if HWY_ONCE
namespace convolume::fft {

HWY_EXPORT(CombinationKernelsF32);
HWY_EXPORT(CombinationKernelsF64);

template <>
CombinationKernels<float> combination_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(CombinationKernelsF32)();
}
template <>
CombinationKernels<double> combination_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(CombinationKernelsF64)();
}

}  // namespace convolume::fft
#endif  // HWY_ONCE
