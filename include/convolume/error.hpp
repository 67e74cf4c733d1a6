// The exceptions of the library: one root, one class per kind of failure.
//
// Every message names the thing (file, field, layer, argument), the value found, and the remedy.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "convolume/version.hpp"

namespace convolume {

/// Root of everything that the library throws by itself.
class CONVOLUME_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument that no state of the world could make valid: a negative extent, a null pointer.
class CONVOLUME_API InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// Two shapes, types or layouts that have to agree and do not.
class CONVOLUME_API ShapeMismatch : public Error {
 public:
  using Error::Error;
};

/// A number that does not fit its destination type or an index computation that would overflow.
class CONVOLUME_API OverflowError : public Error {
 public:
  using Error::Error;
};

/// A valid request that this build, machine or engine does not serve; says what would.
class CONVOLUME_API Unsupported : public Error {
 public:
  using Error::Error;
};

/// The operating system refused: a missing file, a full disk, a lost permission.
class CONVOLUME_API IoError : public Error {
 public:
  using Error::Error;
};

/// The bytes of a file are not what its format promises: truncated, corrupt, of another kind.
class CONVOLUME_API FormatError : public Error {
 public:
  using Error::Error;
};

/// A net or data description (TOML) that does not make sense; names file, line and node.
class CONVOLUME_API ConfigError : public Error {
 public:
  using Error::Error;
};

/// A value became NaN or infinite; names the iteration and the layer.
class CONVOLUME_API NumericalError : public Error {
 public:
  using Error::Error;
};

/// Spectra or prepared weights that do not belong to the data they are used with.
class CONVOLUME_API StaleCache : public Error {
 public:
  using Error::Error;
};

/// A memory budget does not allow a request.
class CONVOLUME_API MemoryBudgetExceeded : public Error {
 public:
  MemoryBudgetExceeded(std::size_t asked, std::size_t held, std::size_t allowed);
  std::size_t asked() const noexcept { return asked_; }      ///< bytes of the refused request
  std::size_t held() const noexcept { return held_; }        ///< bytes held when it was refused
  std::size_t allowed() const noexcept { return allowed_; }  ///< the budget in bytes

 private:
  std::size_t asked_, held_, allowed_;
};

}  // namespace convolume
