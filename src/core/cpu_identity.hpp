// Identifies the processor.
#pragma once

#include <string>

namespace convolume {

/// Names a kind of processor. x86 processors have a vendor, a family and a model. ARM processors have an implementer
/// and a part; the vendor is then empty.
struct CpuIdentity {
  std::string vendor{};  ///< e.g. "AuthenticAMD"
  unsigned family = 0, model = 0;
  unsigned implementer = 0, part = 0;
  friend bool operator==(const CpuIdentity&, const CpuIdentity&) = default;
};

/// Returns the identity of this processor. If it is unknown, all fields are empty.
const CpuIdentity& cpu_identity();

/// Returns the identity as text, e.g. "GenuineIntel family 0x6 model 0x6a".
std::string to_string(const CpuIdentity& identity);

}  // namespace convolume
