// Volumes and labels for training. Counter-based random numbers decide which patches are drawn.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convolume/tensor.hpp"
#include "core/random.hpp"
#include "nets/data/stored_volume.hpp"

namespace convolume::nets {

enum class Normalisation { none, volume };  ///< `volume` scales a volume to mean 0 and variance 1

struct AugmentSpec {
  bool flip_z = false, flip_y = false, flip_x = false;
  bool rotate = false;  ///< by 90 degrees in the Y-X plane; needs square patches
};

/// An image {1, C, Z, Y, X} with its labels and an optional mask (1: the voxel counts, 0: it does not), which have one
/// channel.
struct LabelledVolume {
  StoredVolume image, label, mask;
  std::string name;
};

struct Dataset {
  std::string name;
  std::vector<LabelledVolume> train, validation;
  Normalisation normalisation = Normalisation::volume;
  AugmentSpec augment{};
  /// Hash over all training voxels and the settings above. A checkpoint stores it to identify its training data.
  std::string digest;
};

/// Reads a data set description (TOML). "${NAME}" in a path is replaced by the environment variable NAME. Relative
/// paths are relative to the file's folder. Throws ConfigError, IoError, FormatError.
Dataset load_dataset(const std::filesystem::path& file, std::pmr::memory_resource* memory);

/// Sets how the voxels of a volume become numbers.
void normalise(StoredVolume& volume, Normalisation how);

/// One drawn patch: the volume, the position in it, and the flips and the transpose.
struct PatchDraw {
  std::size_t volume = 0;
  Extent3 origin{0, 0, 0};
  bool flip[3] = {false, false, false};
  bool transpose = false;  ///< Y and X are transposed after the flips

  /// Draws a patch. The result is a pure function of (seed, iteration, sample).
  static PatchDraw draw(const Dataset& data, const Extent3& patch, std::uint64_t seed, std::uint64_t iteration,
                        index_t sample);
};

/// Copies the part [offset, offset + target.extent) of the flipped and transposed patch, all channels, into batch
/// element `n` of `target`.
void copy_patch(const StoredVolume& volume, const PatchDraw& draw, const Extent3& patch, const Extent3& offset,
                const View<float>& target, index_t n);

/// Checks labels and masks. A label must be a whole number in [0, classes), or lie in [0, 1] if `classes` is 0, or be
/// ignored; a mask must lie in [0, 1]. Throws ConfigError naming volume, voxel and value.
void check_labels(const Dataset& data, index_t classes);

/// Throws ConfigError if an image does not have so many channels.
void check_channels(const Dataset& data, index_t channels);

/// Throws ConfigError if a volume cannot hold a patch, or if rotation is on and the patch is not square in Y-X.
void check_patch(const Dataset& data, const Extent3& patch);

}  // namespace convolume::nets
