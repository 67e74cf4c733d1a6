// jemalloc as the upstream of slabs. Only executables link it: a shared library that does cannot be loaded by Python.
#pragma once

#include <memory_resource>

namespace convolume::tools {

/// Memory from jemalloc, or from mmap in builds without it. Thread-safe.
std::pmr::memory_resource* slab_upstream() noexcept;

}  // namespace convolume::tools
