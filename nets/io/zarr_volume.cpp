// Reads and writes Zarr v2 arrays, and reads the levels of OME-Zarr: a folder with one file per chunk.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include <blosc.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "core/files.hpp"
#include "nets/io/chunk_assembler.hpp"
#include "nets/io/half.hpp"
#include "nets/io/volume_formats.hpp"
#include "nets/io/zarr_folder.hpp"

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
    info_.element_type = array_.boolean ? "bool" : array_.half ? "float16" : std::string(io::name_of(array_.type));
    info_.notes = array_.remarks;
    info_.spacing = array_.spacing;
    info_.chunk_channels = array_.chunk_channels;
    info_.chunk = array_.chunk;
    info_.details = fmt::format("{}{}, order {}{}", name_of(array_.codec.kind),
                                array_.codec.blosc_name.empty() ? "" : " with " + array_.codec.blosc_name,
                                array_.column_major ? "F" : "C", array_.big_endian ? ", big endian" : "");
    check_extent(path.text(), info_);
    info_.planes_of_chunks = stores_voxels();
    grid_ = ChunkGrid(array_.channels, array_.extent, array_.chunk_channels, array_.chunk);
  }

  std::uint64_t stored_bytes() const override {
    std::uint64_t bytes = 0;
    std::error_code unreadable, error;
    for (auto at = std::filesystem::recursive_directory_iterator(folder_, unreadable);
         at != std::filesystem::recursive_directory_iterator() && !unreadable; at.increment(unreadable)) {
      const auto& entry = *at;
      const std::uint64_t size = entry.is_regular_file(error) ? entry.file_size(error) : 0;
      if (!error) bytes += size;
    }
    return bytes;
  }

 private:
  /// A decoded chunk. Its pages are taken as it is filled. So a damaged chunk that claims a ratio that its codec could
  /// reach takes no more memory than it decodes to.
  class ChunkBuffer {
   public:
    /// Gives the buffer a size. What it held is lost, if the size is new.
    void resize(std::size_t size) {
      if (size == size_) return;
      data_ = std::make_unique_for_overwrite<std::byte[]>(size);
      size_ = size;
    }
    std::byte* data() noexcept { return data_.get(); }
    const std::byte* data() const noexcept { return data_.get(); }
    std::span<std::byte> bytes() noexcept { return {data_.get(), size_}; }

   private:
    std::unique_ptr<std::byte[]> data_;
    std::size_t size_ = 0;
  };

  void do_read(ChannelRange channels, const VoxelBox& box, std::byte* voxels) const override {
    std::vector<std::byte> stored;
    ChunkBuffer chunk, turned;
    grid_.for_each(channels, box, [&](const ChunkPlace& place) {
      const std::filesystem::path file = folder_ / array_.key(place.c, place.index);
      if (stores_voxels()) return read_planes(file, place, channels, box, voxels);
      // A chunk is stored whole, even where it extends beyond the volume.
      const VoxelBox whole{place.box.begin, array_.chunk};
      if (!read_file_if_there(file, stored)) return fill_channels(place, channels, box, voxels);
      if (array_.chunk_bytes() > most_decoded_bytes(array_.codec, stored)) {
        const std::string found =
            array_.codec.kind == ZarrCodec::Kind::raw
                ? fmt::format("has {} bytes instead of {}", stored.size(), array_.chunk_bytes())
                : fmt::format("has {} bytes, too few for {}", stored.size(), array_.chunk_bytes());
        fail_format(file.string(), "chunk", found, "the file is truncated or damaged");
      }
      chunk.resize(array_.chunk_bytes());
      decode_chunk(array_.codec, file.string(), stored, chunk.bytes());
      const std::size_t stored_bytes = array_.stored_voxel_bytes(), count = chunk.bytes().size() / stored_bytes;
      if (array_.big_endian) swap_bytes(chunk.data(), stored_bytes, count);
      if (array_.half) widen(chunk, turned, count);
      if (!array_.in_order()) turn(chunk, turned);
      copy_channels(chunk, place, whole, channels, box, voxels);
    });
  }

  /// Returns whether files of chunks hold the voxels as they are in memory.
  bool stores_voxels() const {
    return array_.codec.kind == ZarrCodec::Kind::raw && array_.in_order() && !array_.big_endian && !array_.half;
  }

  /// Reads the planes of such a chunk that lie in a box: into their place if the box has the chunk's rows and columns.
  void read_planes(const std::filesystem::path& file, const ChunkPlace& place, ChannelRange channels,
                   const VoxelBox& box, std::byte* voxels) const {
    if (!exists(file)) return fill_channels(place, channels, box, voxels);
    const ReadableFile stored(file);
    if (stored.size() != array_.chunk_bytes()) {
      fail_format(file.string(), "chunk",
                  fmt::format("has {} bytes instead of {}", stored.size(), array_.chunk_bytes()),
                  "the file is truncated or damaged");
    }
    const auto bytes = size_of(array_.type);
    const VoxelBox both = intersection(place.box, box);
    const std::size_t plane = static_cast<std::size_t>(array_.chunk.y * array_.chunk.x) * bytes;
    const std::size_t size = static_cast<std::size_t>(both.extent.z) * plane;
    const VoxelBox planes{{both.begin.z, place.box.begin.y, place.box.begin.x},
                          {both.extent.z, array_.chunk.y, array_.chunk.x}};
    const bool in_place = planes.begin.y == box.begin.y && planes.begin.x == box.begin.x &&
                          planes.extent.y == box.extent.y && planes.extent.x == box.extent.x;
    const auto own = in_place ? nullptr : std::make_unique_for_overwrite<std::byte[]>(size);
    const index_t first = std::max(channels.begin, place.channels.begin);
    const index_t end = std::min(channels.begin + channels.count, place.channels.begin + place.channels.count);
    for (index_t c = first; c < end; ++c) {
      const index_t skipped = (c - place.channels.begin) * array_.chunk.z + both.begin.z - place.box.begin.z;
      std::byte* const channel = voxels + static_cast<std::size_t>((c - channels.begin) * box.extent.volume()) * bytes;
      std::byte* const to =
          in_place ? channel + static_cast<std::size_t>(both.begin.z - box.begin.z) * plane : own.get();
      if (stored.read_at(static_cast<std::uint64_t>(skipped) * plane, {to, size}) != size) {
        fail_format(file.string(), "chunk", "became shorter while it was read", "the file is truncated or damaged");
      }
      if (!in_place) copy_overlap(to, planes, channel, box, bytes);
    }
  }

  static bool exists(const std::filesystem::path& file) {
    struct stat status {};
    return ::stat(file.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
  }

  /// Returns false if there is no such file: then every voxel of the chunk has the fill value.
  bool read_file_if_there(const std::filesystem::path& file, std::vector<std::byte>& stored) const {
    if (!exists(file)) return false;
    const ReadableFile chunk(file);
    if (chunk.size() > most_encoded_bytes(array_.chunk_bytes())) {
      fail_format(file.string(), "chunk", fmt::format("has {} bytes, more than it could need", chunk.size()),
                  "the file is damaged");
    }
    stored.resize(chunk.size());
    stored.resize(chunk.read_at(0, stored));
    return true;
  }

  /// Makes floats of 16 bits into floats of 32 bits.
  static void widen(ChunkBuffer& chunk, ChunkBuffer& wide, std::size_t count) {
    wide.resize(4 * count);
    for (std::size_t i = 0; i < count; ++i) {
      const float value = half_at(chunk.data() + 2 * i);
      std::memcpy(wide.data() + 4 * i, &value, 4);
    }
    std::swap(chunk, wide);
  }

  /// Brings the voxels of a chunk into the order [c][z][y][x].
  void turn(ChunkBuffer& chunk, ChunkBuffer& turned) const {
    const Extent3& e = array_.chunk;
    const index_t channels = array_.chunk_channels;
    const auto bytes = size_of(array_.type);
    turned.resize(chunk.bytes().size());
    const auto [of_c, of_z, of_y, of_x] = array_.strides();
    std::byte* to = turned.data();
    for (index_t c = 0; c < channels; ++c) {
      for (index_t z = 0; z < e.z; ++z) {
        for (index_t y = 0; y < e.y; ++y) {
          for (index_t x = 0; x < e.x; ++x, to += bytes) {
            const index_t from = c * of_c + z * of_z + y * of_y + x * of_x;
            std::memcpy(to, chunk.data() + static_cast<std::size_t>(from) * bytes, bytes);
          }
        }
      }
    }
    std::swap(chunk, turned);
  }

  /// Sets the voxels of a box that lie in a chunk without a file.
  void fill_channels(const ChunkPlace& place, ChannelRange channels, const VoxelBox& box, std::byte* voxels) const {
    const auto bytes = size_of(array_.type);
    const VoxelBox both = intersection(place.box, box);
    const index_t first = std::max(channels.begin, place.channels.begin);
    const index_t end = std::min(channels.begin + channels.count, place.channels.begin + place.channels.count);
    for (index_t c = first; c < end; ++c) {
      for (index_t z = both.begin.z; z < both.end().z; ++z) {
        for (index_t y = both.begin.y; y < both.end().y; ++y) {
          const index_t row = ((c - channels.begin) * box.extent.z + z - box.begin.z) * box.extent.y + y - box.begin.y;
          std::byte* to = voxels + static_cast<std::size_t>(row * box.extent.x + both.begin.x - box.begin.x) * bytes;
          for (index_t x = 0; x < both.extent.x; ++x, to += bytes) {
            std::memcpy(to, array_.fill.data(), bytes);
          }
        }
      }
    }
  }

  void copy_channels(const ChunkBuffer& chunk, const ChunkPlace& place, const VoxelBox& whole, ChannelRange channels,
                     const VoxelBox& box, std::byte* voxels) const {
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

/// Writes the array into a folder beside its target, which is renamed at the end.
class ZarrSink final : public VolumeSink {
 public:
  ZarrSink(const VolumePath& path, const SinkOptions& options)
      : VolumeSink(path, options),
        array_(zarr_array(options)),
        target_(zarr_target(path)),
        in_group_(target_ != path.file),
        // In a group that exists, the array is made beside the group's other members.
        temporary_((in_group_ ? path.file / inside_zarr(path).filename() : target_).string() + temporary_suffix()),
        folder_(in_group_ || inside_zarr(path).empty() ? temporary_ : temporary_ / inside_zarr(path)),
        chunks_(options, 1, array_.chunk, false, temporary_,
                [this](const ChunkPlace& place, std::span<const std::byte> voxels) { put(place, voxels); }) {
    try {
      std::filesystem::remove_all(temporary_);
      std::filesystem::create_directories(folder_);
      write_groups(temporary_, folder_);
      write_metadata(array_, folder_);
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

  void do_write(ChannelRange channels, const VoxelBox& box, const std::byte* voxels) override {
    chunks_.write(channels, box, voxels);
  }

  void put(const ChunkPlace& place, std::span<const std::byte> voxels) {
    write_chunk(array_, folder_ / array_.key(place.c, place.index), place, voxels);
  }

  void do_finish() override {
    chunks_.check_complete(path());
    if (in_group_) make_groups(path().file, target_);
    sync_folder(temporary_);
    replace_folder(temporary_, target_);
    temporary_.clear();
  }

  ZarrArray array_;
  std::filesystem::path target_;
  bool in_group_;  // the Zarr exists, and gets an array or a new version of one
  std::filesystem::path temporary_, folder_;
  ChunkAssembler chunks_;
};

bool writes_zarr(const VolumePath& path) { return extension_of(path.file) == ".zarr"; }

/// Throws IoError if something would be lost that is no array of this name.
void check_target(const VolumePath& where) {
  std::error_code error;
  const path target = zarr_target(where);
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
  if (zarr_array(options).chunk_bytes() > std::size_t{BLOSC_MAX_BUFFERSIZE}) {
    throw InvalidArgument(fmt::format("{}: chunks of {} voxels have more than 2 GiB; use smaller ones (--chunk)",
                                      path.text(), to_string(zarr_array(options).chunk)));
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
