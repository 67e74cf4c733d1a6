// Draws patches, and everything that is random about them.
#pragma once

#include "core/random.hpp"
#include "nets/data/dataset.hpp"

namespace convolume::nets {

/// The random numbers of one sample of one iteration. Each purpose has its own stream, so a new one changes no other.
class PatchRandom {
 public:
  enum class Purpose : std::uint32_t {
    place,
    turn,
    rotate,
    scale,
    elastic,
    displacement,
    misalign,
    noise,
    noise_voxels,
    blur,
    brightness,
    contrast,
    gamma,
    blurred_section,
    missing_section,
    cut_out,
    low_resolution
  };
  PatchRandom() = default;
  PatchRandom(std::uint64_t seed, std::uint64_t iteration, index_t sample)
      : seed_(seed), iteration_(iteration), sample_(static_cast<std::uint32_t>(sample)) {}

  RandomKey key(Purpose purpose) const {
    constexpr std::uint32_t patches = 0x20000000;  // no other stream has a key from here to 0x2FFFFFFF
    return {.seed = seed_,
            .a = static_cast<std::uint32_t>(iteration_),
            .b = patches | static_cast<std::uint32_t>(purpose) << 20 | sample_};
  }
  /// Returns the counter of number `i` of a stream.
  std::uint64_t counter(std::uint64_t i) const { return (iteration_ >> 32) << 40 | i; }
  /// Returns a uniform number in [0, 1).
  double uniform(Purpose purpose, std::uint64_t i) const { return convolume::uniform(key(purpose), counter(i)); }
  double within(Purpose purpose, std::uint64_t i, const Range& range) const {
    return range[0] + (range[1] - range[0]) * uniform(purpose, i);
  }
  index_t below(Purpose purpose, std::uint64_t i, index_t n) const {
    return static_cast<index_t>(uniform_below(key(purpose), counter(i), static_cast<std::uint64_t>(n)));
  }
  double normal(Purpose purpose, std::uint64_t i) const { return convolume::normal(key(purpose), counter(i)); }

 private:
  std::uint64_t seed_ = 0, iteration_ = 0;
  std::uint32_t sample_ = 0;
};

/// One drawn patch: the volume, the position in it, and its random changes.
struct PatchDraw {
  std::size_t volume = 0;
  Extent3 origin{0, 0, 0};  ///< below 0, or beyond the volume, only if it is padded
  bool flip[3] = {false, false, false};
  bool transpose = false;  ///< Y and X are transposed after the flips

  std::array<double, 3> radians{};  ///< of rotations about Z, Y and X
  double growth = 1;                ///< factor by which things grow
  bool elastic = false;
  index_t misaligned = -1;             ///< the first section that is shifted; -1: none
  bool slips = false;                  ///< only this section is shifted
  std::array<index_t, 2> shift{0, 0};  ///< of sections, along Y and X
  PatchRandom random;

  /// Returns whether voxels are read at places between voxels.
  bool interpolates() const { return elastic || growth != 1 || radians != std::array<double, 3>{}; }

  /// Draws a patch. The result is a pure function of (data set, seed, iteration, sample).
  static PatchDraw draw(const Dataset& data, const Extent3& patch, std::uint64_t seed, std::uint64_t iteration,
                        index_t sample);
};

}  // namespace convolume::nets
