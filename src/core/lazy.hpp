// Values that are made when they are first needed, without the guard of a function's static.
#pragma once

#include <atomic>
#include <memory>

namespace convolume {

/// A value that is made when it is first needed, and never destroyed. Objects of this class have static storage.
///
/// The guard of a function's static is held while the value is made. A child that is forked meanwhile would wait for it
/// for ever. Here, the child makes a value of its own. If several threads make the value at once, one of them stays, so
/// making it must have no side effects. Thread-safe.
template <class T>
class Lazy {
 public:
  /// Returns the value, or null if nobody has asked for it yet.
  T* there() const noexcept { return value_.load(std::memory_order_acquire); }
  /// Returns the value; make() returns a new one.
  template <class Make>
  T& get(const Make& make) {
    T* value = there();
    if (value != nullptr) return *value;
    std::unique_ptr<T> made(new T(make()));
    if (!value_.compare_exchange_strong(value, made.get(), std::memory_order_acq_rel)) return *value;
    return *made.release();
  }

 private:
  // acquire and release: who sees the pointer sees the value.
  std::atomic<T*> value_{nullptr};
};

}  // namespace convolume
