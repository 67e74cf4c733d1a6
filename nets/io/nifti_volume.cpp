// Reads and writes NIfTI-1 and NIfTI-2: .nii, .nii.gz, and pairs of .hdr and .img (reading only).
#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <zlib.h>

#include "core/files.hpp"
#include "nets/io/chunk_assembler.hpp"
#include "nets/io/gzip_file.hpp"
#include "nets/io/nifti_header.hpp"
#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io::detail {
namespace {

using std::filesystem::path;

/// Returns the path with its extension, .gz included, replaced.
path with_extension(path file, std::string_view extension) {
  if (extension_of(file).ends_with(".gz")) file.replace_extension();
  return file.replace_extension(std::string(extension));
}

/// Returns the file of a pair that exists, with or without .gz.
std::optional<path> existing(const path& file, std::string_view extension) {
  for (const std::string_view gz : {"", ".gz"}) {
    const path other = with_extension(file, fmt::format("{}{}", extension, gz));
    std::error_code error;
    if (std::filesystem::is_regular_file(other, error)) return other;
  }
  return std::nullopt;
}

bool is_image_of_pair(const path& file) {
  const std::string extension = extension_of(file);
  return extension == ".img" || extension == ".img.gz";
}

/// A file, decoded if it is a gzip file when it is first read.
class Contents {
 public:
  explicit Contents(const path& file) : file_(file) {
    std::byte magic[2] = {};
    file_.read_at(0, magic);
    packed_ = magic[0] == std::byte{0x1f} && magic[1] == std::byte{0x8b};
  }

  bool packed() const noexcept { return packed_; }
  std::uint64_t stored_bytes() const noexcept { return file_.size(); }
  const path& name() const noexcept { return file_.path(); }

  /// Fills `bytes`. A gzip file is decoded first. It decodes to at most `most` bytes.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes, std::uint64_t most, const OpenOptions& options) const {
    if (packed_) {
      const std::lock_guard lock(mutex_);
      if (!decoded_) {
        const path folder = !options.temporary.empty()       ? options.temporary
                            : file_.path().has_parent_path() ? file_.path().parent_path()
                                                             : path(".");
        decoded_.emplace(file_, options.decode_in_memory, most, folder);
      }
    }
    const std::uint64_t size = packed_ ? decoded_->size() : file_.size();
    if (offset + bytes.size() > size) {
      throw FormatError(
          fmt::format("{}: voxels: end at byte {}, but the file has {}; it is truncated, write or copy it "
                      "again",
                      name().string(), offset + bytes.size(), size));
    }
    if (packed_) {
      decoded_->read_at(offset, bytes);
    } else if (file_.read_at(offset, bytes) != bytes.size()) {
      throw FormatError(
          fmt::format("{}: became shorter while it was read; do not write to it meanwhile", name().string()));
    }
  }

 private:
  ReadableFile file_;
  bool packed_ = false;
  mutable std::mutex mutex_;
  mutable std::optional<DecodedFile> decoded_;
};

/// Returns the first bytes of a file, decoded if it is a gzip file.
std::string header_of(const path& file) {
  constexpr std::size_t most = 544;
  std::string head(most, '\0');
  // zlib reads plain files too.
  const gzFile handle = gzopen(file.c_str(), "rb");
  if (handle == nullptr) throw IoError(fmt::format("{}: opening failed; check the path", file.string()));
  const int got = gzread(handle, head.data(), static_cast<unsigned>(head.size()));
  gzclose(handle);
  head.resize(static_cast<std::size_t>(std::max(got, 0)));
  return head;
}

class NiftiSource final : public VolumeSource {
 public:
  NiftiSource(const VolumePath& path, const OpenOptions& options) : VolumeSource(path), options_(options) {
    const auto header_file = is_image_of_pair(path.file) ? existing(path.file, ".hdr") : path.file;
    if (!header_file) fail_format(path.text(), "file", "the voxels of a pair without .hdr", "copy both files");
    const std::string name = header_file->string();
    header_ = parse_nifti_header(name, header_of(*header_file));
    std::optional<std::filesystem::path> voxels = header_file;
    if (header_.pair) voxels = existing(*header_file, ".img");
    if (!voxels) fail_format(name, "magic", "the header of a pair, but there is no .img beside it", "copy both files");
    contents_.emplace(*voxels);

    info_.format = fmt::format("NIfTI-{}", header_.version);
    info_.channels = header_.channels;
    info_.extent = header_.extent;
    info_.element_type = name_of(header_.stored);
    info_.type = header_.stored;
    if (header_.scaled()) {
      info_.type = size_of(header_.stored) <= 2 || header_.stored == VoxelType::float32 ? VoxelType::float32
                                                                                        : VoxelType::float64;
      info_.scale = ValueScale{header_.stored, header_.slope, header_.intercept};
      info_.element_type += fmt::format(", scaled by {} and shifted by {}", header_.slope, header_.intercept);
    }
    info_.geometry = header_.geometry;
    constexpr int time_units = 0x38;
    if (info_.channels > 1 && (header_.geometry.xyzt_units & time_units) != 0) {
      info_.notes.emplace_back("its fourth axis may be time (xyzt_units), and is read as channels");
    }
    const Spacing spacing = spacing_of(header_.geometry);
    if (std::all_of(spacing.zyx.begin(), spacing.zyx.end(), [](double d) { return d > 0 && d < 1e30; })) {
      info_.spacing = spacing;
      remark_steps();
    }
    info_.chunk = contents_->packed() ? info_.extent : Extent3{1, 1, info_.extent.x};
    info_.chunk_channels = contents_->packed() ? info_.channels : 1;
    info_.decoded_once = contents_->packed();
    info_.stored_bytes = contents_->stored_bytes();
    info_.details = fmt::format("{} endian{}", header_.swapped ? "big" : "little", contents_->packed() ? ", gzip" : "");
    check_extent(path.text(), info_);
    require_stored_data(name);
  }

 private:
  std::uint64_t voxel_bytes() const noexcept { return size_of(header_.stored); }
  std::uint64_t declared() const noexcept {
    return static_cast<std::uint64_t>(info_.channels * info_.extent.z * info_.extent.y * info_.extent.x) *
           voxel_bytes();
  }

  /// Says which of two sizes of a voxel counts, if the header has two.
  void remark_steps() {
    constexpr double most = 1e-3;  // of a step
    const auto steps = header_.geometry.steps(), &zyx = info_.spacing->zyx;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if (std::abs(steps[axis] - zyx[axis]) <= most * zyx[axis]) continue;
      info_.notes.push_back(
          fmt::format("pixdim gives voxels of {:g} x {:g} x {:g}, and the sform {:g} x {:g} x {:g} (z, y, x): the "
                      "spacing is that of "
                      "pixdim, and positions are those of the sform",
                      zyx[0], zyx[1], zyx[2], steps[0], steps[1], steps[2]));
      return;
    }
  }

  void require_stored_data(const std::string& name) const {
    constexpr std::uint64_t deflate_ratio = 1032;  // 258 bytes from two bits
    const std::uint64_t most = contents_->stored_bytes() * (contents_->packed() ? deflate_ratio : 1);
    if (header_.offset <= most && declared() <= most - header_.offset) return;
    fail_format(
        name, "dim",
        fmt::format("{} channels of {} {} do not fit into {} bytes of {}", info_.channels, to_string(info_.extent),
                    name_of(header_.stored), contents_->stored_bytes(), contents_->name().string()),
        "the file is truncated or damaged; write or copy it again");
  }

  void read_bytes(std::uint64_t offset, std::span<std::byte> bytes) const {
    // Files may have more voxels than their header says, but not so many.
    contents_->read_at(offset, bytes, 2 * (header_.offset + declared()) + (std::uint64_t{1} << 20), options_);
  }

  void do_read(ChannelRange channels, const VoxelBox& box, std::byte* voxels) const override {
    const auto box_voxels = static_cast<std::size_t>(box.extent.volume());
    std::vector<std::byte> stored(header_.scaled() ? box_voxels * voxel_bytes() : 0);
    for (index_t c = 0; c < channels.count; ++c) {
      std::byte* const result = voxels + static_cast<std::size_t>(c) * box_voxels * info_.bytes_per_voxel();
      std::byte* const raw = header_.scaled() ? stored.data() : result;
      read_channel(channels.begin + c, box, raw);
      if (header_.swapped) swap_bytes(raw, header_.stored, box_voxels);
      if (header_.scaled()) scale(raw, result, box_voxels);
    }
  }

  /// Reads whole planes, whole rows, or parts of rows at once.
  void read_channel(index_t channel, const VoxelBox& box, std::byte* raw) const {
    const Extent3& e = info_.extent;
    const bool rows = box.extent.x == e.x, planes = rows && box.extent.y == e.y;
    const index_t z_steps = planes ? 1 : box.extent.z, y_steps = rows ? 1 : box.extent.y;
    const auto run = static_cast<std::size_t>(box.extent.volume() / z_steps / y_steps) * voxel_bytes();
    for (index_t z = 0; z < z_steps; ++z) {
      for (index_t y = 0; y < y_steps; ++y, raw += run) {
        const index_t first = ((channel * e.z + box.begin.z + z) * e.y + box.begin.y + y) * e.x + box.begin.x;
        read_bytes(header_.offset + static_cast<std::uint64_t>(first) * voxel_bytes(), {raw, run});
      }
    }
  }

  void scale(const std::byte* raw, std::byte* result, std::size_t count) const {
    std::vector<double> values(count);
    convert_voxels(raw, header_.stored, reinterpret_cast<std::byte*>(values.data()), VoxelType::float64, count);
    for (double& value : values) value = value * header_.slope + header_.intercept;
    convert_voxels(reinterpret_cast<const std::byte*>(values.data()), VoxelType::float64, result, info_.type, count);
  }

  OpenOptions options_;
  NiftiHeader header_;
  std::optional<Contents> contents_;
};

NiftiHeader header_for(const SinkOptions& options) {
  NiftiHeader header;
  header.channels = options.channels;
  header.extent = options.extent;
  header.stored = options.type;
  header.geometry = options.geometry  ? *options.geometry
                    : options.spacing ? geometry_of(*options.spacing)
                                      : geometry_of(Spacing{});
  return header;
}

path folder_of(const path& file) { return file.has_parent_path() ? file.parent_path() : path("."); }

/// Writes .nii. Every voxel has its place in the file.
class PlainNiftiSink final : public VolumeSink {
 public:
  PlainNiftiSink(const VolumePath& path, const SinkOptions& options)
      : VolumeSink(path, options), file_(path.file), header_(nifti_header_bytes(header_for(options))) {
    file_.write_at(0, std::as_bytes(std::span(header_)));
  }

 private:
  void do_write(ChannelRange channels, const VoxelBox& box, const std::byte* voxels) override {
    const Extent3& e = options().extent;
    const std::size_t bytes = size_of(options().type);
    const bool rows = box.extent.x == e.x, planes = rows && box.extent.y == e.y;
    const index_t z_steps = planes ? 1 : box.extent.z, y_steps = rows ? 1 : box.extent.y;
    const auto run = static_cast<std::size_t>(box.extent.volume() / z_steps / y_steps) * bytes;
    for (index_t c = channels.begin; c < channels.begin + channels.count; ++c) {
      for (index_t z = 0; z < z_steps; ++z) {
        for (index_t y = 0; y < y_steps; ++y, voxels += run) {
          const index_t first = ((c * e.z + box.begin.z + z) * e.y + box.begin.y + y) * e.x + box.begin.x;
          file_.write_at(header_.size() + static_cast<std::size_t>(first) * bytes, {voxels, run});
        }
      }
    }
  }
  void do_finish() override { file_.commit(); }

  AtomicFile file_;
  std::string header_;
};

/// Writes .nii.gz, plane by plane.
class PackedNiftiSink final : public VolumeSink {
 public:
  PackedNiftiSink(const VolumePath& path, const SinkOptions& options)
      : VolumeSink(path, options),
        file_(path.file),
        gzip_(file_),
        planes_(options, 1, {1, options.extent.y, options.extent.x}, true, folder_of(path.file),
                [this](const ChunkPlace&, std::span<const std::byte> plane) { gzip_.append(plane); }) {
    const std::string header = nifti_header_bytes(header_for(options));
    gzip_.append(std::as_bytes(std::span(header)));
  }

 private:
  void do_write(ChannelRange channels, const VoxelBox& box, const std::byte* voxels) override {
    planes_.write(channels, box, voxels);
  }
  void do_finish() override {
    planes_.check_complete(path());
    gzip_.finish();
    file_.commit();
  }

  AtomicFile file_;
  GzipWriter gzip_;
  ChunkAssembler planes_;
};

bool writes_nifti(const VolumePath& path) {
  const std::string extension = extension_of(path.file);
  return extension == ".nii" || extension == ".nii.gz";
}

void check_nifti(const VolumePath& path, const SinkOptions& options) {
  const bool packed = extension_of(path.file) == ".nii.gz";
  const Codec only = packed ? Codec::deflate : Codec::raw;
  if (options.codec == Codec::automatic || options.codec == only) return;
  throw InvalidArgument(
      fmt::format("{}: the name decides the compression of NIfTI files; use .nii for none, .nii.gz for "
                  "gzip",
                  path.text()));
}

std::string reason_against_nifti(const Candidate& candidate) {
  if (candidate.folder) return "a folder; name a file";
  if (is_image_of_pair(candidate.path.file)) {
    return existing(candidate.path.file, ".hdr") ? "" : "the voxels of a pair, but there is no .hdr beside it";
  }
  const std::string_view head = candidate.unpacked.empty() ? candidate.head : candidate.unpacked;
  if (has_nifti_header(head)) return "";
  return writes_nifti(candidate.path) ? "does not begin with a NIfTI header; it is damaged or of another kind"
                                      : "does not begin with a NIfTI header";
}

}  // namespace

VolumeFormat nifti_format() {
  return {.name = "NIfTI",
          .extensions = ".nii, .nii.gz",
          .reason_against = reason_against_nifti,
          .open = [](const VolumePath& path, const OpenOptions& options) -> std::unique_ptr<VolumeSource> {
            return std::make_unique<NiftiSource>(path, options);
          },
          .writes = writes_nifti,
          .check = check_nifti,
          .create = [](const VolumePath& path, const SinkOptions& options) -> std::unique_ptr<VolumeSink> {
            if (extension_of(path.file) == ".nii.gz") return std::make_unique<PackedNiftiSink>(path, options);
            return std::make_unique<PlainNiftiSink>(path, options);
          },
          .version = [] { return fmt::format("zlib {}", zlibVersion()); }};
}

}  // namespace convolume::nets::io::detail
