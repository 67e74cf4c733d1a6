// Tells whether this build has AddressSanitizer or ThreadSanitizer. GCC defines macros; Clang answers a query.
#pragma once

#if defined(__has_feature)
#define CONVOLUME_HAS_FEATURE(name) __has_feature(name)
#else
#define CONVOLUME_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || CONVOLUME_HAS_FEATURE(address_sanitizer)
#define CONVOLUME_ADDRESS_SANITIZER 1
#else
#define CONVOLUME_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__) || CONVOLUME_HAS_FEATURE(thread_sanitizer)
#define CONVOLUME_THREAD_SANITIZER 1
#else
#define CONVOLUME_THREAD_SANITIZER 0
#endif
