// Volumes and labels as training reads them: patches drawn by counter-based random numbers.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convolume/tensor.hpp"
#include "core/random.hpp"

namespace convolume::nets {

/// How stored label values become targets.
struct LabelSpec {
  std::vector<double> positive;  ///< stored values that become 1, all others 0; empty: values are taken as they are
};

enum class Normalisation { none, volume };  ///< volume: mean 0 and variance 1 over the volume

struct AugmentSpec {
  bool flip_z = false, flip_y = false, flip_x = false;
  bool rotate = false;  ///< by 90 degrees in the Y-X plane; needs square patches
};

/// An image with its labels and, where given, a mask (1 counts, 0 does not). All {1, 1, Z, Y, X}.
struct LabelledVolume {
  Tensor<float> image, label, mask;
  std::string name;
};

struct Dataset {
  std::string name;
  std::vector<LabelledVolume> train, validation;
  Normalisation normalisation = Normalisation::volume;
  AugmentSpec augment{};
  /// Hash over all voxels and the settings above: what a checkpoint was trained on.
  std::string digest;
};

/// Reads a description (TOML); "${NAME}" in paths is an environment variable and relative paths start at the file.
/// Throws ConfigError, IoError, FormatError.
Dataset load_dataset(const std::filesystem::path& file, std::pmr::memory_resource* memory);

/// Scales a volume in place.
void normalise(Tensor<float>& volume, Normalisation how);

/// One drawn patch: which volume, where, and how it is turned.
struct PatchDraw {
  std::size_t volume = 0;
  Extent3 origin{0, 0, 0};
  bool flip[3] = {false, false, false};
  bool transpose = false;  ///< Y and X exchanged after the flips

  /// A pure function of (seed, iteration, sample).
  static PatchDraw draw(const Dataset& data, const Extent3& patch, std::uint64_t seed, std::uint64_t iteration,
                        index_t sample);
};

/// Copies the part [offset, offset + target.extent) of a turned patch into feature map (n, 0) of `target`.
void copy_patch(const Tensor<float>& volume, const PatchDraw& draw, const Extent3& patch, const Extent3& offset,
                const View<float>& target, index_t n);

/// Throws ConfigError naming volume, voxel and value where a label is no whole number in [0, classes), or, where
/// classes is 0, does not lie in [0, 1], or where a mask does not.
void check_labels(const Dataset& data, index_t classes);

/// Throws ConfigError where a volume cannot hold a patch or rotation needs a square one.
void check_patch(const Dataset& data, const Extent3& patch);

}  // namespace convolume::nets
