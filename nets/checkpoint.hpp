// A training run's state in one safetensors file: parameters, optimiser, position, numerics record, the net itself.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "nets/net_spec.hpp"
#include "nets/parameters.hpp"

namespace convolume::nets {

/// What a checkpoint says beside its tensors. Holds no clock, path, host or thread count: equal states give equal
/// bytes.
struct CheckpointHeader {
  NetSpec net;
  std::int64_t iteration = 0;
  std::uint64_t seed = 0;
  std::string numerics;     ///< text of the numerics record
  std::string data_digest;  ///< of the training data
  std::string normalisation;
};

/// Replaces the file as a whole. Throws IoError.
void save_checkpoint(const std::filesystem::path& file, const CheckpointHeader& header, const Parameters& parameters);

/// Header alone, checked against the file's digest. Throws IoError, FormatError naming file and field.
CheckpointHeader read_checkpoint_header(const std::filesystem::path& file);

/// Parameters (and, where `parameters` are for training, the optimiser's state) from a file. Throws FormatError naming
/// file and tensor where the file belongs to another net.
CheckpointHeader load_checkpoint(const std::filesystem::path& file, Parameters& parameters);

}  // namespace convolume::nets
