// Volumes and labels for training.
#pragma once

#include <filesystem>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "convolume/scheduler.hpp"
#include "nets/data/dataset_spec.hpp"
#include "nets/data/intensity.hpp"
#include "nets/data/label_summary.hpp"
#include "nets/data/resampling.hpp"
#include "nets/data/stored_volume.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::nets {

/// The files of a volume whose voxels are read when patches need them.
struct VolumeFiles {
  std::unique_ptr<io::VolumeSource> image, label, mask;  ///< label: null if the volume has a class; mask: may be null
  io::VoxelBox box;                                      ///< the part of the files that is the volume
  LabelSpec label_spec;
  std::shared_ptr<const VolumeScaling> scaling;
  /// Reads a part of the volume; box.begin counts from the begin of `box`.
  StoredVolume read_image(const io::VoxelBox& part, std::pmr::memory_resource* memory) const;
  StoredVolume read_label(const io::VoxelBox& part, std::pmr::memory_resource* memory) const;
  StoredVolume read_mask(const io::VoxelBox& part, std::pmr::memory_resource* memory) const;
};

/// An image {1, C, Z, Y, X} with its labels and an optional mask (1: the voxel counts, 0: it does not), which have one
/// channel. Or an image with a class.
struct LabelledVolume {
  StoredVolume image, label, mask;  ///< empty if the voxels stay in files
  std::string name;
  double weight = 1;         ///< for VolumeChoice::weights
  Extent3 begin{0, 0, 0};    ///< where the volume lies in its files, which may be turned; for messages
  std::string label_name{};  ///< the label's file, for messages; empty if there is none
  std::optional<io::ValueScale> label_scale{};  ///< of the label's file
  bool label_turned = false;                    ///< whether the label's file is read turned
  index_t class_number = 0;                     ///< in Dataset::class_names, if volumes have classes
  VoxelLengths spacing{1, 1, 1};
  /// How voxels are brought to the spacing that the net gets; absent: they have it.
  std::optional<Resampling> resampling{};
  StoredVolume resampled{};                      ///< the image of a validation volume with that spacing
  std::shared_ptr<const LabelSummary> labels{};  ///< null: not computed
  std::shared_ptr<const VolumeFiles> files{};    ///< null: the voxels are in memory

  Extent3 extent() const { return files ? files->box.extent : image.shape().extent; }
  /// Returns the voxels and the spacing that the net gets.
  Extent3 grid() const { return resampling ? resampling->to.extent : extent(); }
  VoxelLengths grid_spacing() const {
    VoxelLengths all = spacing;
    for (std::size_t a = 0; resampling && a < 3; ++a) all[a] *= resampling->zoom[a];
    return all;
  }
  index_t channels() const { return files ? files->image->info().channels : image.shape().c; }
  bool has_mask() const { return files ? files->mask != nullptr : static_cast<bool>(mask); }
  bool may_be_ignored() const { return files ? !files->label_spec.ignore.empty() : label.may_be_ignored(); }
};

/// What the channels of a net stand for. If both numbers are 0, the net is binary and has one channel.
struct Targets {
  index_t classes = 0;  ///< classes of a softmax, one per channel: of voxels, or of whole volumes
  index_t regions = 0;  ///< regions that may overlap, one per channel
};

struct Dataset {
  std::string name;
  std::vector<LabelledVolume> train, validation;
  IntensitySpec intensity{};
  VolumeScaling scaling{};  ///< of all training volumes together, if Normalise::dataset
  std::optional<VoxelLengths> target_spacing{};
  bool cubic = false;         ///< images are interpolated cubically instead of linearly
  std::string orientation{};  ///< to which volumes were turned; empty: they were not
  SamplingSpec sampling{};
  AugmentSpec augment{};
  index_t regions = 0;  ///< overlapping regions that the labels hold; see LabelSpec::regions. 0: none
  index_t classes = 0;  ///< classes that [label] lists. 0: none
  /// Names of the classes of whole volumes, by LabelledVolume::class_number. Empty: volumes have labels.
  std::vector<std::string> class_names{};
  bool classifies() const { return !class_names.empty(); }
  /// What a user should know of the files: metadata that is ignored or that contradicts itself.
  std::vector<std::string> notes{};
  /// Returns the bytes of all volumes in memory.
  std::size_t bytes() const;
  /// Hash over all training voxels and the settings above. A checkpoint stores it to identify its training data.
  std::string digest;
  std::string validation_digest{};  ///< the same for validation voxels
};

struct DatasetOptions {
  std::string text{};  ///< the description; empty: read it from the file
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
  Scheduler* scheduler = nullptr;  ///< computes statistics; null: the calling thread does
  /// Bytes that volumes may take. Training volumes that do not fit stay in their files. Changes no bit.
  std::size_t volume_bytes = std::numeric_limits<std::size_t>::max();
  std::size_t validation_bytes = 0;  ///< of a voxel of a validation volume, besides its stored bytes
  /// Throws InvalidArgument if the validation volumes, which are always in memory, take more than `volume_bytes`.
  bool validation_must_fit = false;
  /// File in which statistics are kept, with the size and the time of each volume file; empty: none.
  std::filesystem::path summaries{};
  bool resume = false;  ///< a file that has changed is an error, unless `verify` is set
  bool verify = false;  ///< statistics are computed again
  std::stop_token stop{};
};

/// Reads a data set. Throws ConfigError, IoError, FormatError. A stop request ends it with StopRequested.
Dataset load_dataset(const std::filesystem::path& file, const DatasetOptions& options = {});

/// Checks labels and masks. A label must be a whole number in [0, classes), or lie in [0, 1] if `classes` is 0, or be
/// ignored; a mask must lie in [0, 1]. Each class must occur in a training volume. `classes` must be the number of
/// classes that the data set lists, if it lists any. Throws ConfigError naming volume, voxel and value.
void check_labels(const Dataset& data, index_t classes);

/// Throws ConfigError if a net with so many outputs has not one for each class of whole volumes.
void check_classes(const Dataset& data, index_t outputs);

/// Throws ConfigError that names a voxel of a label by its number, its value, and what helps.
[[noreturn]] void fail_label(const std::string& data, const LabelledVolume& volume, std::uint64_t index,
                             const std::string& value, const std::string& remedy);

/// Throws ConfigError if an image does not have so many channels.
void check_channels(const Dataset& data, index_t channels);

/// Throws ConfigError if a training volume, or a validation volume with a class, cannot hold a patch, if quarter turns
/// are on and the patch is not square in Y-X, or if patches are to be centred on a foreground that no training volume
/// has.
void check_patch(const Dataset& data, const Extent3& patch);

}  // namespace convolume::nets
