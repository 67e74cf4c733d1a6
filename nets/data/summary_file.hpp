// Keeps the statistics of volumes in a file, so that a run that is resumed need not pass over them again.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nets/data/intensity.hpp"
#include "nets/data/label_summary.hpp"

namespace convolume::nets {

/// What tells whether a file has changed. For a folder: of all files in it.
struct FileState {
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t modified = 0;  ///< in nanoseconds; of the newest file
  /// Returns the state of a volume: of an array (its voxels decide), of a file, of both files of a NIfTI pair, of all
  /// that a Zarr holds, or of the files that the `*` of slices stands for. `path` has the name of the data set within
  /// the file, if there is one.
  static FileState of(const io::VolumePath& volume);
  friend bool operator==(const FileState&, const FileState&) = default;
};

/// The statistics of a volume with its label and mask.
struct CaseSummary {
  std::vector<FileState> files;
  std::string settings;  ///< everything else that the statistics depend on
  IntensityStatistics image;
  LabelSummary label;
  std::uint64_t mask_digest = 0;
};

class SummaryFile {
 public:
  /// Reads the file if it exists. A file that cannot be read counts as absent: it holds nothing that cannot be computed
  /// again.
  explicit SummaryFile(std::filesystem::path file);
  /// Returns the summary of a case that was computed from the same files with the same settings.
  const CaseSummary* find(const std::vector<FileState>& files, const std::string& settings) const;
  /// Returns the state that a file had when the summaries were made, if it is another one than now.
  std::optional<FileState> changed(const FileState& now) const;
  /// Replaces the contents and writes the file, unless its path is empty. Throws IoError.
  void replace(std::vector<CaseSummary> cases);

 private:
  std::filesystem::path file_;
  std::vector<CaseSummary> cases_;
};

}  // namespace convolume::nets
