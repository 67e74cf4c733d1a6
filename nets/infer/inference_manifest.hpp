// Says what an interrupted inference was computing.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "nets/data/stored_volume.hpp"
#include "nets/spec/net_spec.hpp"
#include "nets/spec/parameters.hpp"

namespace convolume::nets {

/// Everything that decides the voxels of an inference. It lies beside the finished chunks as JSON.
struct InferenceManifest {
  std::vector<std::pair<std::string, std::string>> facts{};  ///< net, volume and options, by name
  VolumeScaling scaling{};                                   ///< of the input's channels; empty if they are not scaled
  std::string numerics{};                                    ///< text of the numerics record

  /// Returns the text of a fact; empty if there is none.
  std::string fact(const std::string& name) const;
  std::string to_text() const;
  /// Throws FormatError that names the folder.
  static InferenceManifest from_text(const std::filesystem::path& folder, const std::string& text);
  /// Throws InvalidArgument that names the first fact in which the other inference differs from this one.
  void require_equal(const InferenceManifest& other, const std::filesystem::path& folder) const;
};

/// Returns a digest of a net's nodes and parameters.
std::string digest_of(const NetSpec& spec, const Parameters& parameters);
/// Returns a digest of a volume's shape and type and of eight of its planes.
std::string digest_of(const io::VolumeSource& source);

}  // namespace convolume::nets
