// Reads and writes Zarr v2 arrays, and reads the levels of OME-Zarr: a folder with one file per chunk.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <blosc.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "core/files.hpp"
#include "nets/io/chunk_assembler.hpp"
#include "nets/io/volume_formats.hpp"
#include "nets/io/zarr_metadata.hpp"

namespace convolume::nets::io::detail {
namespace {

using std::filesystem::path;

std::string_view name_of(ZarrCodec::Kind kind) {
  constexpr std::string_view names[] = {"not compressed", "zlib", "gzip", "zstd", "blosc"};
  return names[static_cast<std::size_t>(kind)];
}

class ZarrSource final : public VolumeSource {
 public:
  explicit ZarrSource(const VolumePath& path) : VolumeSource(path), array_(read_zarr(path, folder_)) {
    info_.format = "Zarr";
    info_.channels = array_.channels;
    info_.extent = array_.extent;
    info_.type = array_.type;
    info_.element_type = io::name_of(array_.type);
    info_.spacing = array_.spacing;
    info_.chunk_channels = array_.chunk_channels;
    info_.chunk = array_.chunk;
    info_.details = fmt::format("{}{}, order {}{}", name_of(array_.codec.kind),
                                array_.codec.blosc_name.empty() ? "" : " with " + array_.codec.blosc_name,
                                array_.column_major ? "F" : "C", array_.big_endian ? ", big endian" : "");
    check_extent(path.text(), info_);
    grid_ = ChunkGrid(array_.channels, array_.extent, array_.chunk_channels, array_.chunk);
  }

  std::uint64_t stored_bytes() const override {
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      std::error_code error;
      const std::uint64_t size = entry.is_regular_file(error) ? entry.file_size(error) : 0;
      if (!error) bytes += size;
    }
    return bytes;
  }

 private:
  void do_read(ChannelRange channels, const VoxelBox& box, std::byte* voxels) const override {
    std::vector<std::byte> stored, chunk, turned;
    grid_.for_each(channels, box, [&](const ChunkPlace& place) {
      const std::filesystem::path file = folder_ / array_.key(place.c, place.index);
      // A chunk is stored whole, even where it extends beyond the volume.
      const VoxelBox whole{place.box.begin, array_.chunk};
      if (!read_file_if_there(file, stored)) {
        chunk.resize(array_.chunk_bytes());
        for (std::size_t i = 0; i < chunk.size(); i += array_.fill.size()) {
          std::copy(array_.fill.begin(), array_.fill.end(), chunk.begin() + static_cast<std::ptrdiff_t>(i));
        }
      } else {
        chunk.resize(array_.chunk_bytes());
        decode_chunk(array_.codec, file.string(), stored, chunk);
        if (array_.big_endian) swap_bytes(chunk.data(), array_.type, chunk.size() / size_of(array_.type));
        if (array_.column_major) turn(chunk, turned);
      }
      copy_channels(chunk, place, whole, channels, box, voxels);
    });
  }

  /// Returns false if there is no such file: then every voxel of the chunk has the fill value.
  bool read_file_if_there(const std::filesystem::path& file, std::vector<std::byte>& stored) const {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR)) return false;
    const ReadableFile chunk(file);
    if (chunk.size() > most_encoded_bytes(array_.chunk_bytes())) {
      fail_format(file.string(), "chunk", fmt::format("has {} bytes, more than it could need", chunk.size()),
                  "the file is damaged");
    }
    stored.resize(chunk.size());
    stored.resize(chunk.read_at(0, stored));
    return true;
  }

  /// Makes a chunk whose first axis is the fastest into one whose last axis is.
  void turn(std::vector<std::byte>& chunk, std::vector<std::byte>& turned) const {
    const Extent3& e = array_.chunk;
    const index_t channels = array_.chunk_channels;
    const auto bytes = size_of(array_.type);
    turned.resize(chunk.size());
    std::byte* to = turned.data();
    for (index_t c = 0; c < channels; ++c) {
      for (index_t z = 0; z < e.z; ++z) {
        for (index_t y = 0; y < e.y; ++y) {
          for (index_t x = 0; x < e.x; ++x, to += bytes) {
            const index_t from = c + channels * (z + e.z * (y + e.y * x));
            std::memcpy(to, chunk.data() + static_cast<std::size_t>(from) * bytes, bytes);
          }
        }
      }
    }
    chunk.swap(turned);
  }

  void copy_channels(const std::vector<std::byte>& chunk, const ChunkPlace& place, const VoxelBox& whole,
                     ChannelRange channels, const VoxelBox& box, std::byte* voxels) const {
    const auto bytes = size_of(array_.type);
    const auto of_chunk = static_cast<std::size_t>(whole.extent.volume()) * bytes;
    const auto of_box = static_cast<std::size_t>(box.extent.volume()) * bytes;
    // Voxels of the chunk that lie beyond the volume never lie in the box.
    const index_t first = std::max(channels.begin, place.channels.begin);
    const index_t end = std::min(channels.begin + channels.count, place.channels.begin + place.channels.count);
    for (index_t c = first; c < end; ++c) {
      copy_overlap(chunk.data() + static_cast<std::size_t>(c - place.channels.begin) * of_chunk, whole,
                   voxels + static_cast<std::size_t>(c - channels.begin) * of_box, box, bytes);
    }
  }

  std::filesystem::path folder_;
  ZarrArray array_;
  ChunkGrid grid_;
};

ZarrArray array_for(const SinkOptions& options) {
  ZarrArray array;
  array.rank = options.channels > 1 ? 4 : 3;
  array.channels = options.channels;
  array.extent = options.extent;
  constexpr index_t usual = 64;
  for (int axis = 0; axis < 3; ++axis) {
    array.chunk[axis] = std::min(options.extent[axis], options.chunk[axis] > 0 ? options.chunk[axis] : usual);
  }
  array.type = options.type;
  array.spacing = options.spacing;
  using Kind = ZarrCodec::Kind;
  array.codec.kind = options.codec == Codec::raw ? Kind::raw : options.codec == Codec::zstd ? Kind::zstd : Kind::blosc;
  if (array.codec.kind == Kind::blosc) array.codec.blosc_name = "zstd";
  return array;
}

/// Returns the folder that is replaced: the array in a Zarr that exists, otherwise the whole Zarr.
path target_of(const VolumePath& where) {
  std::error_code error;
  const bool exists = std::filesystem::exists(where.file, error);
  return exists && !where.inside.empty() ? where.file / path(where.inside).relative_path() : where.file;
}

/// Writes the array into a folder beside its target, which is renamed at the end.
class ZarrSink final : public VolumeSink {
 public:
  ZarrSink(const VolumePath& path, const SinkOptions& options)
      : VolumeSink(path, options),
        array_(array_for(options)),
        target_(target_of(path)),
        temporary_(target_.string() + fmt::format(".tmp-{}", ::getpid())),
        folder_(target_ == path.file && !path.inside.empty()
                    ? temporary_ / std::filesystem::path(path.inside).relative_path()
                    : temporary_),
        chunks_(options, 1, array_.chunk, false, temporary_,
                [this](const ChunkPlace& place, std::span<const std::byte> voxels) { put(place, voxels); }) {
    try {
      std::filesystem::remove_all(temporary_);
      std::filesystem::create_directories(folder_);
      for (std::filesystem::path group = folder_; group != temporary_;) {
        group = group.parent_path();
        write_text(group / ".zgroup", "{\n  \"zarr_format\": 2\n}\n");
      }
      write_text(folder_ / ".zarray", zarray_text(array_));
      write_text(folder_ / ".zattrs", zattrs_text(array_));
    } catch (const std::filesystem::filesystem_error& error) {
      remove();
      throw IoError(fmt::format("{}: making the folder failed: {}", temporary_.string(), error.code().message()));
    } catch (...) {
      remove();
      throw;
    }
  }
  ~ZarrSink() override {
    if (!temporary_.empty()) remove();
  }

 private:
  void remove() noexcept {
    std::error_code error;
    std::filesystem::remove_all(temporary_, error);
  }

  [[noreturn]] static void fail(const std::filesystem::path& file, const char* action, int error) {
    throw IoError(fmt::format("{}: {} failed: {}{}", file.string(), action, std::strerror(error),
                              error == ENOSPC ? "; free some space and try again" : ""));
  }

  /// Writes a new file. The whole folder is synced at the end.
  static void write_new(const std::filesystem::path& file, std::span<const std::byte> bytes) {
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
  static void write_text(const std::filesystem::path& file, const std::string& text) {
    write_new(file, std::as_bytes(std::span(text)));
  }

  void do_write(ChannelRange channels, const VoxelBox& box, const std::byte* voxels) override {
    chunks_.write(channels, box, voxels);
  }

  void put(const ChunkPlace& place, std::span<const std::byte> voxels) {
    const std::filesystem::path file = folder_ / array_.key(place.c, place.index);
    const VoxelBox whole{place.box.begin, array_.chunk};
    std::span<const std::byte> chunk = voxels;
    if (place.box != whole) {  // a chunk at the end of an axis is filled up
      padded_.assign(array_.chunk_bytes(), std::byte{0});
      copy_overlap(voxels.data(), place.box, padded_.data(), whole, size_of(array_.type));
      chunk = padded_;
    }
    const std::vector<std::byte> stored = encode_chunk(array_.codec, file.string(), chunk, size_of(array_.type));
    write_new(file, stored);
  }

  void do_finish() override {
    const int fd = ::open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = fd >= 0 && ::syncfs(fd) == 0;
    const int error = errno;
    if (fd >= 0) ::close(fd);
    if (!synced) fail(temporary_, "syncing", error);
    replace();
    sync_directory(target_.has_parent_path() ? target_.parent_path() : std::filesystem::path("."));
    temporary_.clear();
  }

  /// Puts the folder in the place of what had its name. If the two cannot be exchanged at once, an old array has
  /// another name for a moment.
  void replace() {
    std::error_code error;
    if (!std::filesystem::exists(target_, error)) {
      if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(target_, "renaming onto it", errno);
      return;
    }
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
      const std::filesystem::path old = target_.string() + fmt::format(".old-{}", ::getpid());
      if (::rename(target_.c_str(), old.c_str()) != 0) fail(target_, "renaming it", errno);
      if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
        const int reason = errno;
        ::rename(old.c_str(), target_.c_str());
        fail(target_, "renaming onto it", reason);
      }
      temporary_ = old;
    }
    std::filesystem::remove_all(temporary_, error);  // what had the name before
  }

  ZarrArray array_;
  std::filesystem::path target_, temporary_, folder_;
  ChunkAssembler chunks_;
  std::vector<std::byte> padded_;
};

bool writes_zarr(const VolumePath& path) { return extension_of(path.file) == ".zarr"; }

/// Throws IoError if something would be lost that is no array of this name.
void check_target(const VolumePath& where) {
  std::error_code error;
  const path target = target_of(where);
  const auto has = [&](const path& folder, const char* name) { return std::filesystem::exists(folder / name, error); };
  if (target != where.file && !has(where.file, ".zgroup")) {
    throw IoError(fmt::format("{}: exists and is no group of arrays; use another name", where.file.string()));
  }
  if (!std::filesystem::exists(target, error) || has(target, ".zarray") || std::filesystem::is_empty(target, error)) {
    return;
  }
  throw IoError(
      fmt::format("{}: exists and is no array; it would be replaced, so remove it, or name an array as "
                  "FILE.zarr:/NAME",
                  target.string()));
}

void check_zarr(const VolumePath& path, const SinkOptions& options) {
  for (const std::filesystem::path& part : std::filesystem::path(path.inside)) {
    if (part != "..") continue;
    throw InvalidArgument(
        fmt::format("{}: '{}' leads out of the Zarr; name an array like /s0", path.text(), path.inside));
  }
  if (options.codec == Codec::deflate) {
    throw InvalidArgument(
        fmt::format("{}: Zarr is written with the codec raw, zstd or blosc; use one of them", path.text()));
  }
  if (array_for(options).chunk_bytes() > std::size_t{BLOSC_MAX_BUFFERSIZE}) {
    throw InvalidArgument(fmt::format("{}: chunks of {} voxels have more than 2 GiB; use smaller ones (--chunk)",
                                      path.text(), to_string(array_for(options).chunk)));
  }
  check_target(path);
}

std::string reason_against_zarr(const Candidate& candidate) {
  if (!candidate.folder) return "not a folder";
  const path& folder = candidate.path.file;
  std::error_code error;
  for (const char* name : {".zarray", ".zgroup", ".zattrs", "zarr.json"}) {
    if (std::filesystem::exists(folder / name, error)) return "";
  }
  return writes_zarr(candidate.path) || !candidate.path.inside.empty() ? "" : "a folder without .zarray or .zgroup";
}

}  // namespace

VolumeFormat zarr_format() {
  return {
      .name = "Zarr",
      .extensions = ".zarr",
      .reason_against = reason_against_zarr,
      .open = [](const VolumePath& path, const OpenOptions&) -> std::unique_ptr<VolumeSource> {
        return std::make_unique<ZarrSource>(path);
      },
      .writes = writes_zarr,
      .check = check_zarr,
      .create = [](const VolumePath& path, const SinkOptions& options) -> std::unique_ptr<VolumeSink> {
        return std::make_unique<ZarrSink>(path, options);
      },
      .version = [] { return fmt::format("Blosc {}\nZstandard {}", blosc_get_version_string(), ZSTD_versionString()); },
      .is_folder = true};
}

}  // namespace convolume::nets::io::detail
