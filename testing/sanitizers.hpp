// Tells which builds have a sanitizer. Slow tests do less there.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define CONVOLUME_TEST_THREAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CONVOLUME_TEST_THREAD_SANITIZED 1
#endif
#endif
#ifndef CONVOLUME_TEST_THREAD_SANITIZED
#define CONVOLUME_TEST_THREAD_SANITIZED 0
#endif

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
/// ThreadSanitizer makes code 10 to 20 times slower. It needs few problems, because it looks for races between tasks.
/// Tests tagged [serial], which check numbers and not tasks, do not run there.
constexpr bool thread_sanitized = CONVOLUME_TEST_THREAD_SANITIZED != 0;

}  // namespace convolume::test
