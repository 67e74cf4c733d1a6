// Stores a training run's state in one safetensors file: parameters, optimiser state, position in the run, numerics
// record, and the net itself.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nets/data/dataset_spec.hpp"
#include "nets/data/resampling.hpp"
#include "nets/io/safetensors.hpp"
#include "nets/spec/net_spec.hpp"
#include "nets/spec/parameters.hpp"

namespace convolume::nets {

/// Everything that a checkpoint holds beside its tensors. It holds no clock time, path, host name or thread count, so
/// equal states give equal bytes.
struct CheckpointHeader {
  NetSpec net;
  std::int64_t iteration = 0;
  std::uint64_t seed = 0;
  std::string numerics;                   ///< text of the numerics record
  std::string data_digest;                ///< digest of the training data
  std::string normalisation;              ///< intensity_text()
  std::optional<VoxelLengths> spacing{};  ///< of the voxels that the net gets; absent: those of each volume
  bool cubic = false;                     ///< images are brought to this spacing by cubic interpolation
  std::string orientation{};              ///< to which volumes are turned; empty: they are not
  /// Of a classifier: the names of its classes, and what lies outside of images that are smaller than the patch.
  std::vector<std::string> class_names{};
  Pad pad = Pad::none;
  std::string best{};  ///< BestValidation::to_text(); empty if the net names no score
};

/// Replaces the file as a whole. Throws IoError.
void save_checkpoint(const std::filesystem::path& file, const CheckpointHeader& header, const Parameters& parameters);

/// Returns the header of a file that was read from `path`. Throws FormatError naming file and field.
CheckpointHeader checkpoint_header(const io::SafetensorsFile& file, const std::filesystem::path& path);
/// Reads the header alone and checks the file's digest. Throws IoError, and FormatError naming file and field.
CheckpointHeader read_checkpoint_header(const std::filesystem::path& file);

/// Loads the parameters from a file. If `parameters` are for training, it loads the optimiser's state too. Throws
/// FormatError naming file and tensor if the file belongs to another net; `parameters` are unchanged then.
CheckpointHeader load_checkpoint(const std::filesystem::path& file, Parameters& parameters);

}  // namespace convolume::nets
