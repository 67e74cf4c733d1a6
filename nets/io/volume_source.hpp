// Reads boxes of volumes, in any of the formats of volume_formats.hpp.
#pragma once

#include <memory>
#include <memory_resource>
#include <span>

#include "nets/io/volume_info.hpp"

namespace convolume::nets::io {

/// A volume on disk that is open for reading. Opening it reads no voxels.
class VolumeSource {
 public:
  virtual ~VolumeSource() = default;
  VolumeSource(const VolumeSource&) = delete;
  VolumeSource& operator=(const VolumeSource&) = delete;

  const VolumePath& path() const noexcept { return path_; }
  const VolumeInfo& info() const noexcept { return info_; }

  /// Returns the bytes of the voxels in the file or, of a Zarr, in all its chunks.
  virtual std::uint64_t stored_bytes() const { return info_.stored_bytes; }

  /// Reads a box of some channels as [c][z][y][x] without gaps, in the type info().type and the machine's byte order.
  /// `voxels` has exactly as many bytes. Only the chunks, pages or strips that the box touches are read. Several
  /// threads may call this at once. Throws InvalidArgument (the box is not within the volume, size of `voxels`),
  /// IoError, FormatError (damaged contents, named by page, chunk or strip).
  void read(ChannelRange channels, const VoxelBox& box, std::span<std::byte> voxels) const;

 protected:
  explicit VolumeSource(VolumePath path) : path_(std::move(path)) {}
  VolumeInfo info_;  ///< set by the constructor of the derived class

 private:
  virtual void do_read(ChannelRange channels, const VoxelBox& box, std::byte* voxels) const = 0;
  VolumePath path_;
};

struct OpenOptions {
  /// Bytes up to which a compressed file that cannot be read in part (.nii.gz) is decoded in memory. A larger one is
  /// decoded to a temporary file in `temporary`.
  std::uint64_t decode_in_memory = std::uint64_t{1} << 30;
  std::filesystem::path temporary{};  ///< folder; empty means that of the file
  /// Opens 5-D HDF5 datasets [n][c][z][y][x] too. The channels of the volume are those of all samples n.
  bool samples = false;
};

/// Opens a volume. Its contents decide its format. Throws IoError (missing, unreadable), and FormatError that names
/// file, field, value and remedy. If no format takes the file, the message says why not for each format.
std::unique_ptr<VolumeSource> open_volume(const VolumePath& path, const OpenOptions& options = {});
std::unique_ptr<VolumeSource> open_volume(std::string_view path, const OpenOptions& options = {});

/// Returns what a file is that stands where another one should be: a pointer of Git LFS, or a page of a web server. An
/// empty text means neither. `head` is its begin.
std::string foreign_text(std::string_view head);

/// Copies a box of voxels between two arrays [c][z][y][x] without gaps, where both overlap. `bytes` is the size of a
/// voxel. `from_box` and `to_box` say where in the volume the arrays lie.
void copy_overlap(const std::byte* from, const VoxelBox& from_box, std::byte* to, const VoxelBox& to_box,
                  std::size_t bytes);

/// Returns the part of a box that lies within another one. Its extent is 0 along an axis where they do not meet.
VoxelBox intersection(const VoxelBox& a, const VoxelBox& b) noexcept;

}  // namespace convolume::nets::io
