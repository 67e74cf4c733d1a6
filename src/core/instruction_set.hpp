// What depends on the instruction set, outside of SIMD kernels. instruction_set.cpp is the only file that may ask for
// one; tools/check_layers enforces this.
#pragma once

#include <cstdint>
#include <string>

#include "core/cpu_identity.hpp"

namespace convolume {

/// Reads the identity of this processor. If it is unknown, all fields are empty. cpu_identity() remembers it.
CpuIdentity read_cpu_identity();

/// Reads the marketing name of this processor, or returns an empty text. cpu_name() remembers it.
std::string read_cpu_brand();

/// Returns the name of an instruction set that all kernels need and this processor does not have, or null.
const char* missing_instruction_set() noexcept;

/// Returns whether this thread computes with the defaults of a new thread: round to nearest, denormals kept, exceptions
/// masked. Takes some cycles, where std::fegetenv() takes hundreds. False means that it is not known, or that x87 has
/// flags of exceptions.
bool has_default_fp_environment() noexcept;
/// Returns the flags of exceptions, and sets them again. Only for threads for which the above was true.
std::uint32_t fp_flags() noexcept;
void set_fp_flags(std::uint32_t flags) noexcept;

/// Tells the processor that the thread waits in a loop, and takes some tens of cycles.
void spin_pause() noexcept;

}  // namespace convolume
