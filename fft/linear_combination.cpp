#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fft/linear_combination.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "fft/linear_combination-inl.hpp"

#if HWY_ONCE
#include "fft/pruned_transform.hpp"

namespace convolume::fft {

HWY_EXPORT(LinearCombinationF32);
HWY_EXPORT(LinearCombinationF64);

template <>
void linear_combination<float>(const float* const* x, const float* c, index_t terms, index_t count, bool add,
                               float* sum) noexcept {
  HWY_DYNAMIC_DISPATCH(LinearCombinationF32)(x, c, terms, count, add, sum);
}

template <>
void linear_combination<double>(const double* const* x, const double* c, index_t terms, index_t count, bool add,
                                double* sum) noexcept {
  HWY_DYNAMIC_DISPATCH(LinearCombinationF64)(x, c, terms, count, add, sum);
}

}  // namespace convolume::fft
#endif  // HWY_ONCE
