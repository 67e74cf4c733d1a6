// Pairs of measured variants: the data set of the net that ranks variants, and that net in a checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "convolume/pair_ranker.hpp"

namespace convolume::tools {

/// The net of nets/zoo/pair_ranker.toml, as it was trained.
struct StoredRanker {
  plan::PairRanker ranker;
  std::string digest;  ///< of the file
};
/// Reads a checkpoint. Throws IoError and FormatError that name the file, also if it holds another net.
StoredRanker read_ranker(const std::string& file);

/// Throws InvalidArgument or IoError if a data set of pairs cannot be written to the file. A file that exists may hold
/// such a data set and nothing else.
void check_pairs_file(const std::string& file);
/// Throws InvalidArgument if all layers, or none, are held out.
void check_parts(std::span<const std::string> problems);

/// Pairs of the variants of all layers. Some layers are held out (plan::is_held_out()).
class PairSets {
 public:
  /// `layers` are those of `plan variants`, measured. Throws InvalidArgument as check_parts() does.
  explicit PairSets(const nlohmann::ordered_json& layers);

  /// Replaces the HDF5 file: `/version_1/training/image`, `label`, and the same of `validation`. Features lie along Z,
  /// and each voxel of a plane is a pair: rows of 1024, shuffled. The class lies at z = 3. Class 0: the first variant
  /// is faster. Throws IoError; the file is then as it was.
  void write(const std::string& file) const;

  /// Returns the numbers of pairs and layers, and the shares of held-out pairs that each rank orders as the measurement
  /// does. `ranker` may be null.
  nlohmann::ordered_json report(const plan::PairRanker* ranker) const;

 private:
  struct Layer {
    std::string problem;
    std::vector<plan::Variant> variants;
    plan::VariantPairs pairs;
    bool held_out = false, steady = true;
  };
  struct Part {
    Extent3 extent;
    std::vector<float> features;        ///< [feature][pair]
    std::vector<std::uint8_t> classes;  ///< the same
  };
  std::size_t pairs_of(bool held_out) const;
  Part part(bool held_out) const;

  std::vector<Layer> layers_;
};

}  // namespace convolume::tools
