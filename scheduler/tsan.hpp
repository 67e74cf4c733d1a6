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

/// Hides what happens inside TBB, which synchronises itself out of TSan's sight. Nests.
class TsanIgnore {
 public:
#ifdef CONVOLUME_TSAN
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
  TsanIgnore() noexcept {}  // not defaulted: an unused variable of a trivial type would be warned about
  ~TsanIgnore() {}
#endif
  TsanIgnore(const TsanIgnore&) = delete;
  TsanIgnore& operator=(const TsanIgnore&) = delete;
};

/// Our own code again, called from inside TBB: everything is watched until the end of the scope.
class TsanWatch {
 public:
#ifdef CONVOLUME_TSAN
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

#ifdef CONVOLUME_TSAN
 private:
  int depth_;
#endif
};

}  // namespace convolume::scheduler
