// The floating-point environment in which every result is computed.
#pragma once

#include <cfenv>

namespace convolume {

/// Sets round-to-nearest and keeps denormals for the lifetime of the object, then restores the caller's environment.
class DefaultFpEnvironment {
 public:
  DefaultFpEnvironment() noexcept;
  ~DefaultFpEnvironment();
  DefaultFpEnvironment(const DefaultFpEnvironment&) = delete;
  DefaultFpEnvironment& operator=(const DefaultFpEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace convolume
