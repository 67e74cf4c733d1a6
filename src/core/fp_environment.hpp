// The floating-point environment in which every result is computed.
#pragma once

#include <cfenv>

namespace convolume {

/// Sets round-to-nearest and keeps denormals for the lifetime of the object, then restores the caller's environment.
/// On x86 this concerns vectors only: the older x87 unit computes nothing but tables of plans, and it takes ten times
/// as long to set.
class DefaultFpEnvironment {
 public:
  DefaultFpEnvironment() noexcept;
  ~DefaultFpEnvironment();
  DefaultFpEnvironment(const DefaultFpEnvironment&) = delete;
  DefaultFpEnvironment& operator=(const DefaultFpEnvironment&) = delete;

 private:
#ifdef __SSE2__
  unsigned saved_;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace convolume
