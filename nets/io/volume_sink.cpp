#include "nets/io/volume_sink.hpp"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include "nets/io/hdf5_volume.hpp"
#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io {
namespace {

/// Returns the format that the file's name selects. Throws if it cannot hold the volume.
const detail::VolumeFormat& format_for(const VolumePath& path, const SinkOptions& options) {
  std::string extensions;
  for (const detail::VolumeFormat& format : detail::volume_formats()) {
    if (format.writes(path)) {
      format.check(path, options);
      return format;
    }
    extensions += fmt::format("{}{}", extensions.empty() ? "" : ", ", format.extensions);
  }
  throw InvalidArgument(fmt::format("{}: unknown extension '{}'; use one of {}", path.text(),
                                    path.file.extension().string(), extensions));
}

void check_volume(const VolumePath& path, const SinkOptions& options) {
  const Extent3& e = options.extent;
  if (options.channels < 1 || e.z < 1 || e.y < 1 || e.x < 1) {
    throw InvalidArgument(fmt::format("{}: {} channels of {} voxels cannot be written; pass a volume with voxels",
                                      path.text(), options.channels, to_string(e)));
  }
  if (options.samples < 1 || options.channels % options.samples != 0) {
    throw InvalidArgument(fmt::format("{}: {} channels cannot be divided among {} samples", path.text(),
                                      options.channels, options.samples));
  }
  if (options.samples > 1 && !detail::writes_hdf5(path)) {
    throw InvalidArgument(fmt::format("{}: only HDF5 files hold {} samples; write .h5", path.text(), options.samples));
  }
}

}  // namespace

bool deflates(const SinkOptions& options) noexcept {
  return options.codec == Codec::deflate || (options.codec == Codec::automatic && !is_floating(options.type));
}

void VolumeSink::check_not_failed() const {
  if (!failed_) return;
  throw IoError(fmt::format("{}: an earlier write failed, so the volume is not complete; write it again from the start",
                            path_.text()));
}

void VolumeSink::write(ChannelRange channels, const VoxelBox& box, std::span<const std::byte> voxels) {
  check_not_failed();
  for (int axis = 0; axis < 3; ++axis) {
    if (box.begin[axis] < 0 || box.extent[axis] < 1 || box.extent[axis] > options_.extent[axis] - box.begin[axis]) {
      throw InvalidArgument(fmt::format("{}: {} voxels from {} on along {} are not within the {} of the volume",
                                        path_.text(), box.extent[axis], box.begin[axis], "zyx"[axis],
                                        options_.extent[axis]));
    }
  }
  if (channels.begin < 0 || channels.count < 1 || channels.count > options_.channels - channels.begin) {
    throw InvalidArgument(fmt::format("{}: {} channels from {} on are not within the {} of the volume", path_.text(),
                                      channels.count, channels.begin, options_.channels));
  }
  const index_t count = channels.count * box.extent.volume();
  if (voxels.size() != static_cast<std::size_t>(count) * size_of(options_.type)) {
    throw InvalidArgument(fmt::format("{}: a box of {} voxels of {} is written from {} bytes", path_.text(), count,
                                      name_of(options_.type), voxels.size()));
  }
  failed_ = true;
  do_write(channels, box, voxels.data());
  failed_ = false;
  written_ += count;
}

void VolumeSink::finish() {
  check_not_failed();
  const index_t all = options_.channels * options_.extent.volume();
  if (written_ != all) {
    throw InvalidArgument(fmt::format("{}: {} of {} voxels were written", path_.text(), written_, all));
  }
  failed_ = true;
  do_finish();
  failed_ = false;
}

std::unique_ptr<VolumeSink> create_volume(const VolumePath& path, const SinkOptions& options) {
  check_writable(path, options);
  return format_for(path, options).create(path, options);
}

std::filesystem::path owner_file(const VolumePath& path) {
  const bool slices = path.file.filename().string().find('*') != std::string::npos;
  std::filesystem::path whole = slices ? path.file.parent_path() : path.file;
  if (!whole.has_filename()) whole = whole.parent_path();  // "a.zarr/"
  std::string name = whole.string();
  // The arrays of a Zarr are written by themselves, and an HDF5 file as a whole.
  if (detail::extension_of(whole) == ".zarr") {
    for (const std::filesystem::path& part : std::filesystem::path(path.inside)) {
      if (part != "/" && !part.empty()) name += "." + part.string();
    }
  }
  return name + ".owner";
}

void check_writable(const VolumePath& path, const SinkOptions& options) {
  check_volume(path, options);
  const detail::VolumeFormat& format = format_for(path, options);
  const std::filesystem::path& file = path.file;
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
      throw IoError(fmt::format("{}: finding the folder {} failed: {}; check the path", file.string(), folder.string(),
                                error.message()));
    }
    throw IoError(fmt::format("{}: the folder {} does not exist; make it first", file.string(), folder.string()));
  }
  if (::access(folder.c_str(), W_OK) != 0) {
    throw IoError(fmt::format("{}: writing to the folder {} is not allowed: {}", file.string(), folder.string(),
                              std::strerror(errno)));
  }
  if (!format.is_folder && std::filesystem::is_directory(file, error)) {
    throw IoError(fmt::format("{}: is a folder; name a file", file.string()));
  }
}

}  // namespace convolume::nets::io
