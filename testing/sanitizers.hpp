// Tells which builds have a sanitizer. Slow tests do less there.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONVOLUME_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CONVOLUME_TEST_SANITIZED 1
#endif
#endif
#ifndef CONVOLUME_TEST_SANITIZED
#define CONVOLUME_TEST_SANITIZED 0
#endif

namespace convolume::test {

constexpr bool sanitized = CONVOLUME_TEST_SANITIZED != 0;

}  // namespace convolume::test
