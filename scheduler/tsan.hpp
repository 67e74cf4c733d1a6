// What ThreadSanitizer cannot see: Debian's TBB is not instrumented, so its hand-overs are annotated here.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define CONVOLUME_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CONVOLUME_TSAN 1
#endif
#endif

#ifdef CONVOLUME_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace convolume::scheduler {

/// The calling thread's writes so far are visible to whoever calls tsan_acquire on the same address later.
inline void tsan_release([[maybe_unused]] void* address) noexcept {
#ifdef CONVOLUME_TSAN
  __tsan_release(address);
#endif
}

inline void tsan_acquire([[maybe_unused]] void* address) noexcept {
#ifdef CONVOLUME_TSAN
  __tsan_acquire(address);
#endif
}

/// Hides accesses to TBB's own task objects, which TBB synchronises out of TSan's sight.
class TsanIgnore {
 public:
  TsanIgnore() noexcept {
#ifdef CONVOLUME_TSAN
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  }
  ~TsanIgnore() {
#ifdef CONVOLUME_TSAN
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
  }
  TsanIgnore(const TsanIgnore&) = delete;
  TsanIgnore& operator=(const TsanIgnore&) = delete;
};

}  // namespace convolume::scheduler
