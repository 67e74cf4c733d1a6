#include "nets/io/zarr_folder.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "core/files.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::nets::io::detail {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& file, const char* action, int error) {
  throw IoError(fmt::format("{}: {} failed: {}{}", file.string(), action, std::strerror(error),
                            error == ENOSPC ? "; free some space and try again" : ""));
}

/// Writes a new file. The caller syncs all of them at once.
void write_new(const fs::path& file, std::span<const std::byte> bytes) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) fail(file, "creating", errno);
  while (!bytes.empty()) {
    const auto written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      ::close(fd);
      fail(file, "writing", error);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  if (::close(fd) != 0) fail(file, "closing", errno);
}

void write_text(const fs::path& file, const std::string& text) { write_new(file, std::as_bytes(std::span(text))); }

}  // namespace

ZarrArray zarr_array(const SinkOptions& options) {
  ZarrArray array;
  array.axes = options.channels > 1 ? "czyx" : "zyx";
  array.channels = options.channels;
  array.extent = options.extent;
  constexpr index_t usual = 64;
  for (int axis = 0; axis < 3; ++axis) {
    array.chunk[axis] = std::min(options.extent[axis], options.chunk[axis] > 0 ? options.chunk[axis] : usual);
  }
  array.type = options.type;
  array.spacing = options.spacing;
  array.notes = options.notes;
  using Kind = ZarrCodec::Kind;
  array.codec.kind = options.codec == Codec::raw ? Kind::raw : options.codec == Codec::zstd ? Kind::zstd : Kind::blosc;
  if (array.codec.kind == Kind::blosc) array.codec.blosc_name = "zstd";
  return array;
}

fs::path inside_zarr(const VolumePath& where) {
  fs::path inside;
  for (const fs::path& part : fs::path(where.inside).relative_path()) {
    if (!part.empty() && part != ".") inside /= part;
  }
  return inside;
}

fs::path zarr_target(const VolumePath& where) {
  std::error_code error;
  const fs::path inside = inside_zarr(where);
  return fs::exists(where.file, error) && !inside.empty() ? where.file / inside : where.file;
}

void write_groups(const fs::path& root, const fs::path& folder) {
  std::error_code error;
  for (fs::path group = folder; group != root;) {
    group = group.parent_path();
    if (fs::exists(group / ".zgroup", error)) continue;
    write_text(group / ".zgroup", "{\n  \"zarr_format\": 2\n}\n");
  }
}

void write_metadata(const ZarrArray& array, const fs::path& folder) {
  write_text(folder / ".zarray", zarray_text(array));
  write_text(folder / ".zattrs", zattrs_text(array));
}

void write_chunk(const ZarrArray& array, const fs::path& file, const ChunkPlace& place,
                 std::span<const std::byte> voxels) {
  const VoxelBox whole{place.box.begin, array.chunk};
  std::vector<std::byte> padded;
  if (place.box != whole) {
    padded.assign(array.chunk_bytes(), std::byte{0});
    copy_overlap(voxels.data(), place.box, padded.data(), whole, size_of(array.type));
    voxels = padded;
  }
  write_new(file, encode_chunk(array.codec, file.string(), voxels, size_of(array.type)));
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::syncfs(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!synced) fail(folder, "syncing", error);
}

void make_groups(const fs::path& root, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (error)
    throw IoError(fmt::format("{}: making the group failed: {}", folder.parent_path().string(), error.message()));
  write_groups(root, folder);
}

void replace_folder(const fs::path& folder, const fs::path& target) {
  std::error_code error;
  fs::path old;
  if (!fs::exists(target, error)) {
    if (::rename(folder.c_str(), target.c_str()) != 0) fail(target, "renaming onto it", errno);
  } else if (::renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    old = folder;
  } else {
    old = target.string() + temporary_suffix();
    if (::rename(target.c_str(), old.c_str()) != 0) fail(target, "renaming it", errno);
    if (::rename(folder.c_str(), target.c_str()) != 0) {
      const int reason = errno;
      ::rename(old.c_str(), target.c_str());
      fail(target, "renaming onto it", reason);
    }
  }
  sync_directory(target.has_parent_path() ? target.parent_path() : fs::path("."));
  if (!old.empty()) fs::remove_all(old, error);  // what had the name before
}

}  // namespace convolume::nets::io::detail
