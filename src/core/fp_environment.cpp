#include "core/fp_environment.hpp"

#include "core/instruction_set.hpp"

namespace convolume {

DefaultFpEnvironment::DefaultFpEnvironment() noexcept : is_changed_(!has_default_fp_environment()) {
  if (!is_changed_) {
    flags_ = simd_fp_flags();
    return;
  }
  std::fegetenv(&saved_);
  std::fesetenv(FE_DFL_ENV);
}

DefaultFpEnvironment::~DefaultFpEnvironment() {
  if (is_changed_) {
    std::fesetenv(&saved_);
  } else {
    restore_default_fp_environment(flags_);
  }
}

}  // namespace convolume
