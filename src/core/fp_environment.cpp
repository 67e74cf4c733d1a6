#include "core/fp_environment.hpp"

namespace convolume {

DefaultFpEnvironment::DefaultFpEnvironment() noexcept {
  std::fegetenv(&saved_);
  std::fesetenv(FE_DFL_ENV);
}

DefaultFpEnvironment::~DefaultFpEnvironment() { std::fesetenv(&saved_); }

}  // namespace convolume
