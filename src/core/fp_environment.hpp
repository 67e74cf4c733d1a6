// The floating-point environment that every result is computed in.
#pragma once

#include <cfenv>

namespace convolume {

/// Sets round-to-nearest with denormals kept for the life of the object, then restores what the caller had.
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
