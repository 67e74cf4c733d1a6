#include "core/fp_environment.hpp"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace convolume {

#ifdef __SSE2__

namespace {

constexpr unsigned default_control = 0x1f80;  // round to nearest, keep denormals, no exception interrupts
constexpr unsigned exception_flags = 0x3f;

}  // namespace

DefaultFpEnvironment::DefaultFpEnvironment() noexcept : saved_(_mm_getcsr()) {
  if ((saved_ & ~exception_flags) != default_control) _mm_setcsr(default_control);
}

DefaultFpEnvironment::~DefaultFpEnvironment() { _mm_setcsr(saved_); }

#else

DefaultFpEnvironment::DefaultFpEnvironment() noexcept {
  std::fegetenv(&saved_);
  std::fesetenv(FE_DFL_ENV);
}

DefaultFpEnvironment::~DefaultFpEnvironment() { std::fesetenv(&saved_); }

#endif

}  // namespace convolume
