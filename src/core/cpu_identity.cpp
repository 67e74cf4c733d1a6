#include "core/cpu_identity.hpp"

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "core/instruction_set.hpp"
#include "core/lazy.hpp"

namespace convolume {

const CpuIdentity& cpu_identity() {
  static constinit Lazy<const CpuIdentity> found;
  return found.get(read_cpu_identity);
}

std::string to_string(const CpuIdentity& identity) {
  if (!identity.vendor.empty()) {
    return fmt::format("{} family {:#x} model {:#x}", identity.vendor, identity.family, identity.model);
  }
  if (identity.implementer != 0)
    return fmt::format("ARM implementer {:#x} part {:#x}", identity.implementer, identity.part);
  return "unknown processor";
}

std::string cpu_name() {
  static constinit Lazy<const std::string> name;
  return name.get([] {
    const std::string brand = read_cpu_brand();
    return brand.empty() ? to_string(cpu_identity()) : brand;
  });
}

}  // namespace convolume
