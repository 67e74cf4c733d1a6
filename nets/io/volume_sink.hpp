// Writes volumes box by box, in any of the formats of volume_formats.hpp.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nets/io/volume_info.hpp"

namespace convolume::nets::io {

enum class Codec { automatic, raw, deflate, zstd, blosc };

/// The volume to be written.
struct SinkOptions {
  index_t channels = 1;  ///< of all samples
  index_t samples = 1;   ///< more than 1 makes a 5-D dataset [n][c][z][y][x]; HDF5 only
  Extent3 extent{};
  VoxelType type = VoxelType::float32;
  std::optional<Spacing> spacing{};
  std::optional<Geometry> geometry{};
  /// Texts by name that Zarr and HDF5 keep as attributes, with "convolume_" before the name. Other formats drop them.
  std::vector<std::pair<std::string, std::string>> notes{};
  Extent3 chunk{0, 0, 0};  ///< HDF5 and Zarr; 0 means the format's default
  Codec codec = Codec::automatic;
  std::size_t memory = std::size_t{64} << 20;  ///< bytes of unfinished chunks that are kept in memory
};

/// Returns whether TIFF and HDF5 are compressed with deflate. Floats are not, unless the codec says so: they hardly
/// shrink, and compressing them takes longer than writing them.
bool deflates(const SinkOptions& options) noexcept;

/// A volume that is being written. The file appears under its name when finish() returns, complete and synced. Until
/// then, and after a failure, what had the name before is unchanged. Equal voxels that are written in the same order
/// give equal bytes. A folder of slices gets its files one after the other while finish() runs. A failure takes them
/// back, but a process that is killed in the meantime can leave some of them.
class VolumeSink {
 public:
  /// Removes what was written, unless finish() returned.
  virtual ~VolumeSink() = default;
  VolumeSink(const VolumeSink&) = delete;
  VolumeSink& operator=(const VolumeSink&) = delete;

  const VolumePath& path() const noexcept { return path_; }
  const SinkOptions& options() const noexcept { return options_; }

  /// Writes a box of some channels, stored as [c][z][y][x] without gaps in options().type. Boxes come in any order, and
  /// each voxel once. It is fastest if boxes consist of whole chunks, or of whole pages in their order. One thread at a
  /// time. Throws InvalidArgument (the box is not within the volume, size of `voxels`), IoError. After a write that
  /// failed in the middle, write() and finish() throw IoError.
  void write(ChannelRange channels, const VoxelBox& box, std::span<const std::byte> voxels);

  /// Throws InvalidArgument if voxels are missing, and IoError.
  void finish();

 protected:
  VolumeSink(VolumePath path, SinkOptions options) : path_(std::move(path)), options_(std::move(options)) {}

 private:
  virtual void do_write(ChannelRange channels, const VoxelBox& box, const std::byte* voxels) = 0;
  virtual void do_finish() = 0;
  void check_not_failed() const;

  VolumePath path_;
  SinkOptions options_;
  index_t written_ = 0;  // voxels of all channels
  bool failed_ = false;
};

/// Begins to write a volume. The extension decides the format. Throws InvalidArgument (unknown extension, something
/// that the format cannot hold), IoError (missing folder, no permission).
std::unique_ptr<VolumeSink> create_volume(const VolumePath& path, const SinkOptions& options);

/// Several volumes in one HDF5 file, which appears under its name when finish() returns. Until then, and after a
/// failure, what had the name before is unchanged. One thread at a time.
class DataSetFile {
 public:
  /// Begins a file for datasets with these names. Throws IoError, also if a file exists that holds other ones too.
  DataSetFile(const std::filesystem::path& file, std::span<const std::string> names);
  ~DataSetFile();
  DataSetFile(const DataSetFile&) = delete;
  DataSetFile& operator=(const DataSetFile&) = delete;

  /// Begins a dataset with a name like "/volume". One is finished before the next one begins. Throws as
  /// create_volume().
  std::unique_ptr<VolumeSink> create(const std::string& name, const SinkOptions& options);
  void finish();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Returns the file that names the process which writes a volume: "a.tif.owner", "a.zarr.s0.owner", and "slices.owner"
/// for slices/*.png.
std::filesystem::path owner_file(const VolumePath& path);

/// Throws what create_volume() would throw, and writes nothing.
void check_writable(const VolumePath& path, const SinkOptions& options);

}  // namespace convolume::nets::io
