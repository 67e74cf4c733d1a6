// The list of formats, and what they share. Private to this room.
//
// docs/architecture.md, "A file format", lists what a new format needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nets/io/volume_sink.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::nets::io::detail {

/// What is known of a path before a format opens it.
struct Candidate {
  const VolumePath& path;
  bool folder = false;          ///< the path is an existing folder
  bool pattern = false;         ///< the path has a `*` in its last part
  std::string_view head{};      ///< the first bytes of the file, at most 544
  std::string_view unpacked{};  ///< the first bytes of the decoded file, if it begins with a gzip header
};

struct VolumeFormat {
  std::string_view name;
  std::string_view extensions;  ///< of files to write, for messages: ".tif, .tiff"
  /// Returns why the format does not take the file, or an empty string if it does.
  std::string (*reason_against)(const Candidate&);
  std::unique_ptr<VolumeSource> (*open)(const VolumePath&, const OpenOptions&);
  /// Returns whether files of this name are written in this format.
  bool (*writes)(const VolumePath&);
  /// Throws InvalidArgument if the format cannot hold such a volume.
  void (*check)(const VolumePath&, const SinkOptions&);
  std::unique_ptr<VolumeSink> (*create)(const VolumePath&, const SinkOptions&);
  std::string (*version)();  ///< names and versions of the libraries
  bool is_folder = false;    ///< a volume of this format is a folder
};

/// Returns the formats in the order in which they are asked.
std::span<const VolumeFormat> volume_formats();

VolumeFormat tiff_format();
VolumeFormat hdf5_format();
VolumeFormat nifti_format();
VolumeFormat zarr_format();
VolumeFormat slices_format();

/// Returns the extension in lower case: ".nii.gz", ".tif", ...
std::string extension_of(const std::filesystem::path& file);
/// Returns the sorted names of the entries of a folder. Throws IoError.
std::vector<std::string> names_in(const std::filesystem::path& folder);
/// Returns whether files of this name may hold several data sets, so that a path may go on after a colon.
bool has_data_sets(const std::filesystem::path& file);

// Largest ratio of decoded to stored bytes of any lossless codec that we accept (Zstandard's run-length blocks come
// closest). A file that declares more has a false size.
inline constexpr std::uint64_t largest_compression_ratio = 65536;

/// Throws FormatError naming file, field, value and remedy.
[[noreturn]] void fail_format(const std::string& file, std::string_view field, std::string_view found,
                              std::string_view remedy);

/// Throws FormatError unless all extents and channels are at least 1 and the bytes of the volume fit into 63 bits.
void check_extent(const std::string& file, const VolumeInfo& info);

}  // namespace convolume::nets::io::detail
