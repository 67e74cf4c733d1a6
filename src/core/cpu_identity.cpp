#include "core/cpu_identity.hpp"

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "core/instruction_set.hpp"

namespace convolume {

const CpuIdentity& cpu_identity() {
  static const CpuIdentity found = read_cpu_identity();
  return found;
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
  static const std::string name = [] {
    const std::string brand = read_cpu_brand();
    return brand.empty() ? to_string(cpu_identity()) : brand;
  }();
  return name;
}

}  // namespace convolume
