// Annotations for ThreadSanitizer. Debian's TBB is not instrumented, so its synchronisation is annotated here.
#pragma once

#include "core/sanitizers.hpp"

#if CONVOLUME_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace convolume::scheduler {

/// Makes the calling thread's writes so far visible to every thread that later calls tsan_acquire with the same
/// address.
inline void tsan_release([[maybe_unused]] void* address) noexcept {
#if CONVOLUME_THREAD_SANITIZER
  __tsan_release(address);
#endif
}

inline void tsan_acquire([[maybe_unused]] void* address) noexcept {
#if CONVOLUME_THREAD_SANITIZER
  __tsan_acquire(address);
#endif
}

/// Hides accesses inside TBB from ThreadSanitizer, which cannot see how TBB synchronises. Scopes nest.
class TsanIgnore {
 public:
#if CONVOLUME_THREAD_SANITIZER
  TsanIgnore() noexcept { begin(); }
  ~TsanIgnore() { end(); }

  static void begin() noexcept {
    ++depth;
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  static void end() noexcept {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    --depth;
  }
  static inline thread_local int depth = 0;
#else
  TsanIgnore() noexcept {}  // not defaulted: the compiler would warn about an unused variable of a trivial type
  ~TsanIgnore() {}
#endif
  TsanIgnore(const TsanIgnore&) = delete;
  TsanIgnore& operator=(const TsanIgnore&) = delete;
};

/// Ends the effect of TsanIgnore for our own code that TBB calls, until the end of the scope.
class TsanWatch {
 public:
#if CONVOLUME_THREAD_SANITIZER
  TsanWatch() noexcept : depth_(TsanIgnore::depth) {
    for (int i = 0; i < depth_; ++i) TsanIgnore::end();
  }
  ~TsanWatch() {
    for (int i = 0; i < depth_; ++i) TsanIgnore::begin();
  }
#else
  TsanWatch() noexcept {}
  ~TsanWatch() {}
#endif
  TsanWatch(const TsanWatch&) = delete;
  TsanWatch& operator=(const TsanWatch&) = delete;

#if CONVOLUME_THREAD_SANITIZER
 private:
  int depth_;
#endif
};

}  // namespace convolume::scheduler
