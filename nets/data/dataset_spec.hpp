// What the description of a data set says. No volume is opened here.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nets/base/toml_reader.hpp"
#include "nets/data/resampling.hpp"
#include "nets/data/stored_volume.hpp"
#include "nets/io/synthetic.hpp"

namespace convolume::nets {

/// What intensities are divided by, and what is subtracted before.
enum class Normalise {
  none,
  volume,       ///< mean 0 and variance 1 per volume
  slice,        ///< mean 0 and variance 1 per slice along Z
  dataset,      ///< the mean and the variance of all training volumes together
  percentiles,  ///< the two percentiles become 0 and 1
  min_max,      ///< the least and the largest voxel become 0 and 1
};

/// How stored intensities become the numbers that the net gets. All statistics are per channel.
struct IntensitySpec {
  Normalise normalise = Normalise::volume;
  std::array<double, 2> percentiles{0.5, 99.5};
  bool clip = false;            ///< voxels are clipped to the percentiles first
  bool nonzero = false;         ///< statistics are those of voxels that are not 0
  std::optional<double> nan{};  ///< what replaces NaN in images; absent: NaN is an error
  bool needs_percentiles() const { return clip || normalise == Normalise::percentiles; }
  friend bool operator==(const IntensitySpec&, const IntensitySpec&) = default;
};

/// Returns "volume", "slice", ...
std::string name_of(Normalise normalise);
/// Reads a table [intensity]. Throws ConfigError.
IntensitySpec read_intensity(TomlTable& table);

/// From which volume a patch is drawn.
enum class VolumeChoice { equal, by_size, weights };
/// What lies outside a volume.
enum class Pad { none, mirror, zero };
std::string name_of(Pad pad);
/// Throws InvalidArgument for a text that name_of() does not return.
Pad pad_of(const std::string& name);

struct SamplingSpec {
  VolumeChoice volumes = VolumeChoice::equal;
  double foreground = 0;  ///< share of patches that are centred on a voxel of a foreground class
  Pad pad = Pad::none;    ///< none: volumes must be as large as a patch
};

using Range = std::array<double, 2>;

/// Random changes of patches. A probability of 0 switches a change off. Lengths are in voxels.
struct AugmentSpec {
  bool flip_z = false, flip_y = false, flip_x = false;
  bool rotate90 = false;  ///< in the Y-X plane; needs square patches

  // Changes of places, of images and labels alike.
  struct {
    double probability = 0;
    std::array<double, 3> degrees{};  ///< largest angles about Z, Y and X
  } rotate{};
  struct {
    double probability = 0;
    Range range{1, 1};  ///< factors by which things grow
  } scale{};
  struct {
    double probability = 0;
    Extent3 grid = Extent3::all(16);  ///< distance of control points
    double sigma = 0;                 ///< standard deviation of their displacements, in voxels of the finest axis
  } elastic{};
  struct {
    double probability = 0;
    index_t pixels = 0;  ///< largest shift within the slice
  } misalign{};

  // Changes of intensities, in normalised units.
  struct Intensity {
    double probability = 0;
    Range range{0, 0};
  };
  Intensity brightness{}, contrast{}, gamma{}, noise{}, blur{};
  Intensity low_resolution{};  ///< its range is that of the factor; all channels have the same draw

  // Changes of sections and boxes.
  struct {
    double probability = 0;
    index_t sections = 1;  ///< neighbours that are missing
  } missing_section{};
  Intensity blurred_section{};
  struct {
    double probability = 0;
    Extent3 extent = Extent3::all(1);
  } cut_out{};

  /// Returns whether voxels may be read at places between voxels.
  bool interpolates() const { return rotate.probability > 0 || scale.probability > 0 || elastic.probability > 0; }
};

/// One volume with its label, as a table [[train]] or [[validation]] names it.
struct CaseSpec {
  std::string name;
  std::vector<std::string> image;  ///< files whose channels are joined
  std::string label, mask;         ///< label: empty if the case has a class; mask: may be empty
  std::string class_name{};        ///< by [label] class_of; empty: the case has a label
  index_t class_number = 0;        ///< the place of class_name in DatasetSpec::class_names
  /// [first, end) along Z, or along Z, Y and X; empty: everything.
  std::vector<std::array<index_t, 2>> box{};
  int box_line = 0;  ///< of the key
  std::optional<VoxelLengths> spacing{};
  double weight = 1;
  int line = 0;  ///< of the table, for messages
};

struct DatasetSpec {
  std::string file, name;
  std::string orientation{};  ///< to which volumes are turned (io::AxisMap), for example "RAS"; empty: they are not
  std::vector<CaseSpec> train, validation;
  LabelSpec label{};
  std::vector<std::string> class_names{};  ///< of cases with classes, in the order of a net's outputs; empty: labels
  IntensitySpec intensity{};
  std::optional<VoxelLengths> target_spacing{};  ///< of the voxels that the net gets; if absent, those of each volume
  bool cubic = false;                            ///< images are interpolated cubically instead of linearly
  SamplingSpec sampling{};
  AugmentSpec augment{};
  std::optional<SyntheticOptions> synthetic{};
  /// All settings that decide which numbers a net gets, besides the cases: part of the data digest.
  std::string settings() const;
};

/// Reads a description, and finds the files that a `*` stands for. "${NAME}" in a path is replaced by the environment
/// variable NAME. Relative paths are relative to the file's folder. Throws ConfigError and IoError.
DatasetSpec read_dataset_spec(const std::filesystem::path& file);
/// The same for the text of a description. `file` is its name in messages, and says which folder it is in.
DatasetSpec parse_dataset_spec(const std::string& text, const std::filesystem::path& file);

/// Throws ConfigError at a line of a description.
[[noreturn]] void fail_at(const std::string& file, int line, const std::string& message);

}  // namespace convolume::nets
