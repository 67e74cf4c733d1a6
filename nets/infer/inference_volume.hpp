// The volume that an inference reads, and how voxels of it become voxels of the output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "convolume/inference.hpp"
#include "convolume/scheduler.hpp"
#include "nets/data/resampling.hpp"
#include "nets/data/stored_volume.hpp"
#include "nets/infer/stored_voxels.hpp"
#include "nets/io/orientation.hpp"
#include "nets/io/volume_sink.hpp"
#include "nets/io/volume_source.hpp"
#include "nets/spec/checkpoint.hpp"

namespace convolume::nets {

/// The volume, turned to the orientation of the training and brought to its spacing, and the way back.
class InferenceVolume {
 public:
  /// Opens the files. `limit` is the memory of the process. `folder` gets volumes that cannot be decoded in memory.
  /// Throws any Error. Options and header must outlive it.
  InferenceVolume(const InferOptions& options, const CheckpointHeader& header, std::size_t limit,
                  const std::filesystem::path& folder);

  /// Decides which voxels the net reads, and what is kept and written. To be called before the functions below. Throws
  /// InvalidArgument.
  void choose_region(Stored stored, index_t channels);
  /// Adds texts to the attributes of what is kept and written.
  void add_notes(const std::vector<std::pair<std::string, std::string>>& notes);

  const io::VolumeSource& source() const { return *source_; }  ///< the volume, turned
  const io::VolumeSource& input() const { return *input_; }    ///< what the net reads
  const io::VoxelBox& region() const { return region_; }       ///< of the input
  const io::SinkOptions& kept() const { return kept_; }        ///< what is kept until the end
  const io::SinkOptions& output() const { return output_; }    ///< what is written at the end
  const std::string& orientation() const { return orientation_; }
  /// Returns how the prediction is brought to the voxels of the output; absent: it has them.
  const std::optional<Resampling>& back() const { return back_; }
  /// Returns whether what is kept has the voxels of the output, in the same order.
  bool keeps_output() const { return !back_ && map_.identity(); }
  /// Returns the prediction that was kept, as the output has it.
  std::shared_ptr<const io::VolumeSource> as_output(std::shared_ptr<const io::VolumeSource> kept) const;

  /// Returns the bytes of a volume that is decoded before it is read: in memory, or in a temporary file.
  std::uint64_t decoded_bytes() const;
  /// Returns the sizes and times of the files that are read.
  std::string states() const;
  /// Returns how intensities are scaled: as in the training, or by statistics of this volume. Null if a stop request
  /// came first.
  std::shared_ptr<const VolumeScaling> scaling(Scheduler& scheduler, std::pmr::memory_resource* memory) const;
  /// Throws FormatError if scalings, which `origin` holds, do not fit the volume.
  void check_scaling(const VolumeScaling& scaling, const std::string& origin, const std::string& remedy) const;

 private:
  void turn(std::unique_ptr<io::VolumeSource>& volume, bool first);
  void check_channels() const;

  const InferOptions& o_;
  const CheckpointHeader& header_;
  std::size_t limit_;
  io::VolumeInfo file_{};    // of the first volume, as it is stored
  std::string orientation_;  // to which it is turned; empty: it is not
  io::AxisMap map_{};        // how the first volume is turned
  std::shared_ptr<const io::VolumeSource> source_, input_;
  std::optional<Resampling> back_;
  io::VoxelBox region_{};
  io::SinkOptions kept_, output_;
};

}  // namespace convolume::nets
