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

/// Returns whether the processor has SSE4.2, with which kernels for the target SSE4 run. Highway's own answer for this
/// target also wants AES, which they do not use.
bool has_sse42() noexcept;

/// Returns the widest SIMD target of this processor that kernels can be compiled for, whether or not this library has
/// them; empty if there is none. Machine rows are chosen by it, so that all builds choose the same row.
std::string widest_simd_target();

/// Returns whether this thread has the floating-point environment of a new thread: it rounds to nearest, keeps
/// denormals and masks exceptions. Takes some cycles, where std::fegetenv() takes hundreds. Also returns false if x87
/// has exception flags, and on processors other than x86.
bool has_default_fp_environment() noexcept;
/// Returns the exception flags of SIMD arithmetic. Call it only if has_default_fp_environment() is true.
std::uint32_t simd_fp_flags() noexcept;
/// Makes has_default_fp_environment() true again on a thread on which it was true, and restores these flags.
void restore_default_fp_environment(std::uint32_t flags) noexcept;

/// Tells the processor that the thread waits in a loop, and takes some tens of cycles.
void spin_pause() noexcept;

}  // namespace convolume
