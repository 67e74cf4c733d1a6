// MKL's transforms (DFTI) as competitors. The library is loaded from build/peers at run time.
#pragma once

#include <memory>
#include <string>

#include "bench/common/contest.hpp"
#include "convolume/fft.hpp"

namespace convolume::bench {

/// MKL, with its sequential threading layer. Outlives its competitors.
class MklFft {
 public:
  /// Loads the library. Throws Unsupported, with the remedy, if it is missing or has another version than the pinned
  /// one.
  MklFft();
  ~MklFft();
  MklFft(const MklFft&) = delete;
  MklFft& operator=(const MklFft&) = delete;

  /// Makes a competitor for cubes of edge n, out of place, in natural order. Throws Unsupported with MKL's reason.
  std::unique_ptr<Competitor> competitor(DataType type, fft::Kind kind, index_t n) const;
  const std::string& version() const { return version_; }

  struct Functions;

 private:
  std::unique_ptr<Functions> functions_;
  std::string version_;
};

}  // namespace convolume::bench
