// How reading and writing of HDF5 use the library.
#pragma once

#include <mutex>
#include <new>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <hdf5.h>

#include "core/fork.hpp"

namespace convolume::nets::io::detail {

// HDF5 is thread-safe only if it was built so.
inline std::mutex& hdf5_lock() { return fork_lock(ForkLock::hdf5); }

/// Takes the lock and keeps HDF5 from printing. The destructor restores the caller's error handler.
class Hdf5Session {
 public:
  Hdf5Session() : turn_(hdf5_lock()) {
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Hdf5Session() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }
  Hdf5Session(const Hdf5Session&) = delete;
  Hdf5Session& operator=(const Hdf5Session&) = delete;

  /// Returns HDF5's innermost reason for the last failure.
  static std::string complaint() {
    std::string text;
    H5Ewalk2(
        H5E_DEFAULT, H5E_WALK_UPWARD,
        [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
          auto& all = *static_cast<std::string*>(out);
          if (all.empty() && error->desc != nullptr) {
            try {
              all = fmt::format(" (HDF5: {})", error->desc);
            } catch (const std::bad_alloc&) {  // the message is lost, the failure itself is still reported
            }
          }
          return 0;
        },
        &text);
    return text;
  }

 private:
  std::lock_guard<std::mutex> turn_;
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

class Hdf5Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Handle() = default;
  Hdf5Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Hdf5Handle() { close(); }
  hid_t get() const noexcept { return id_; }
  explicit operator bool() const noexcept { return id_ >= 0; }
  bool close() noexcept { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

}  // namespace convolume::nets::io::detail
