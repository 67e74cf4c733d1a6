// What depends on the instruction set, outside of SIMD kernels. instruction_set.cpp is the only file that may ask for
// one; tools/check_layers enforces this.
#pragma once

#include <string>

#include "core/cpu_identity.hpp"

namespace convolume {

/// Reads the identity of this processor. If it is unknown, all fields are empty. cpu_identity() remembers it.
CpuIdentity read_cpu_identity();

/// Reads the marketing name of this processor, or returns an empty text. cpu_name() remembers it.
std::string read_cpu_brand();

/// Returns the name of an instruction set that all kernels need and this processor does not have, or null.
const char* missing_instruction_set() noexcept;

/// Tells the processor that the thread waits in a loop, and takes some tens of cycles.
void spin_pause() noexcept;

}  // namespace convolume
