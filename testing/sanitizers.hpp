// Tells which builds have a sanitizer. Slow tests do less there.
#pragma once

#include "core/sanitizers.hpp"

namespace convolume::test {

constexpr bool sanitized = CONVOLUME_ADDRESS_SANITIZER != 0 || CONVOLUME_THREAD_SANITIZER != 0;
/// ThreadSanitizer makes code 10 to 20 times slower. It needs few problems, because it looks for races between tasks.
/// Tests tagged [serial], which check numbers and not tasks, do not run there.
constexpr bool thread_sanitized = CONVOLUME_THREAD_SANITIZER != 0;

}  // namespace convolume::test
