// The floating-point environment in which every result is computed.
#pragma once

#include <cfenv>
#include <cstdint>

namespace convolume {

/// Sets round-to-nearest and keeps denormals for the lifetime of the object, then restores the caller's environment.
/// Takes some cycles if the caller's environment is the default.
class DefaultFpEnvironment {
 public:
  DefaultFpEnvironment() noexcept;
  ~DefaultFpEnvironment();
  DefaultFpEnvironment(const DefaultFpEnvironment&) = delete;
  DefaultFpEnvironment& operator=(const DefaultFpEnvironment&) = delete;

 private:
  bool is_changed_;
  std::uint32_t flags_ = 0;  // the caller's exception flags, if nothing is changed
  std::fenv_t saved_;
};

}  // namespace convolume
