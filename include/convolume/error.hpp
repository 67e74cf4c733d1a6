// The exceptions of the library: one root, one class per kind of failure.
//
// Every message names the thing (file, field, layer, argument), the value that was found, and the remedy.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "convolume/version.hpp"

namespace convolume {

/// Root of the library's own exceptions. std::bad_alloc and exceptions of callbacks are not derived from it.
class CONVOLUME_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument that is never valid, for example a negative extent or a null pointer.
class CONVOLUME_API InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// Shapes, types or layouts that must agree but differ.
class CONVOLUME_API ShapeMismatch : public Error {
 public:
  using Error::Error;
};

/// A number that does not fit its type, or an index computation that would overflow.
class CONVOLUME_API OverflowError : public Error {
 public:
  using Error::Error;
};

/// A valid request that this build, machine or engine does not support. The message says what is supported.
class CONVOLUME_API Unsupported : public Error {
 public:
  using Error::Error;
};

/// A failure that the operating system reports: a missing file, a full disk, a missing permission.
class CONVOLUME_API IoError : public Error {
 public:
  using Error::Error;
};

/// A file that does not follow its format: truncated, corrupt, or of another kind.
class CONVOLUME_API FormatError : public Error {
 public:
  using Error::Error;
};

/// An invalid net or data description (TOML). The message names the file, the line and the node.
class CONVOLUME_API ConfigError : public Error {
 public:
  using Error::Error;
};

/// A value that became NaN or infinite. The message names the iteration and the layer.
class CONVOLUME_API NumericalError : public Error {
 public:
  using Error::Error;
};

/// Spectra or prepared weights that do not belong to the data with which they are used.
class CONVOLUME_API StaleCache : public Error {
 public:
  using Error::Error;
};

/// What ends work that has no result yet when a stop request comes. It is no Error, because nothing is wrong.
class CONVOLUME_API StopRequested : public std::exception {
 public:
  const char* what() const noexcept override { return "a stop was requested"; }
};

/// A request that the memory budget does not allow.
class CONVOLUME_API MemoryBudgetExceeded : public Error {
 public:
  MemoryBudgetExceeded(std::size_t asked, std::size_t held, std::size_t allowed);
  std::size_t asked() const noexcept { return asked_; }      ///< bytes of the request
  std::size_t held() const noexcept { return held_; }        ///< bytes in use at the time of the request
  std::size_t allowed() const noexcept { return allowed_; }  ///< the budget in bytes

 private:
  std::size_t asked_, held_, allowed_;
};

}  // namespace convolume
