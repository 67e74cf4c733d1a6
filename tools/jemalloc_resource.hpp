// jemalloc as the upstream resource of slabs. Only executables link it, because Python cannot load a shared library
// that does.
#pragma once

#include <memory_resource>

namespace convolume::tools {

/// Returns memory from jemalloc, or from mmap in builds without jemalloc. Thread-safe.
std::pmr::memory_resource* slab_upstream() noexcept;

}  // namespace convolume::tools
