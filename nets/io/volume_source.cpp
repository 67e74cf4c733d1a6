#include "nets/io/volume_source.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

#include <fmt/format.h>
#include <zlib.h>

#include "core/files.hpp"
#include "nets/io/array_source.hpp"
#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io {
namespace {

constexpr std::size_t most_header = 544;  // the longest header by which a format is recognised

/// Returns the first bytes of a gzip file, decoded. They may be fewer than asked for if the file is damaged.
std::string first_unpacked(std::string_view head) {
  std::array<char, most_header> out{};
  z_stream stream{};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) return {};
  std::string in(head);  // zlib wants writable input
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  inflate(&stream, Z_SYNC_FLUSH);
  inflateEnd(&stream);
  return {out.data(), std::min<std::size_t>(stream.total_out, out.size())};
}

/// The path and its first bytes. It reports all errors that need no format.
struct Look {
  explicit Look(const VolumePath& path) : candidate{.path = path} {
    candidate.pattern = path.file.filename().string().find('*') != std::string::npos;
    std::error_code error;
    candidate.folder = !candidate.pattern && std::filesystem::is_directory(path.file, error);
    if (candidate.folder || candidate.pattern) return;
    const ReadableFile file(path.file);
    if (file.size() == 0) {
      throw FormatError(fmt::format("{}: the file is empty; write or copy it again", path.file.string()));
    }
    std::array<char, 4096> first{};
    head.assign(first.data(), file.read_at(0, std::as_writable_bytes(std::span(first))));
    if (const std::string what = foreign_text(head); !what.empty()) {
      throw FormatError(fmt::format("{}: is {}", path.file.string(), what));
    }
    if (head.starts_with("\x1f\x8b")) unpacked = first_unpacked(head);
    candidate.head = std::string_view(head).substr(0, most_header);
    candidate.unpacked = unpacked;
  }
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;

  std::string head, unpacked;
  detail::Candidate candidate;  ///< points to these
};

}  // namespace

void VolumeSource::read(ChannelRange channels, const VoxelBox& box, std::span<std::byte> voxels) const {
  const auto name = [&] { return path_.text(); };
  if (channels.begin < 0 || channels.count < 1 || channels.count > info_.channels - channels.begin) {
    throw InvalidArgument(fmt::format("{}: {} channels from {} on are not within the {} of the volume", name(),
                                      channels.count, channels.begin, info_.channels));
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (box.begin[axis] < 0 || box.extent[axis] < 1 || box.extent[axis] > info_.extent[axis] - box.begin[axis]) {
      throw InvalidArgument(fmt::format("{}: {} voxels from {} on along {} are not within the {} of the volume", name(),
                                        box.extent[axis], box.begin[axis], "zyx"[axis], info_.extent[axis]));
    }
  }
  const auto bytes = static_cast<std::uint64_t>(channels.count * box.extent.volume()) * info_.bytes_per_voxel();
  if (voxels.size() != bytes) {
    throw InvalidArgument(
        fmt::format("{}: a box of {} bytes is read into {} bytes; they must be equal", name(), bytes, voxels.size()));
  }
  do_read(channels, box, voxels.data());
}

std::unique_ptr<VolumeSource> open_volume(const VolumePath& path, const OpenOptions& options) {
  if (is_array_path(path.text())) return array_source(array_at(path), path);
  const Look look(path);
  std::string reasons;
  for (const detail::VolumeFormat& format : detail::volume_formats()) {
    const std::string reason = format.reason_against(look.candidate);
    if (reason.empty()) return format.open(path, options);
    reasons += fmt::format("\n  {}: {}", format.name, reason);
  }
  throw FormatError(fmt::format("{}: no format takes it; convert it to one of these:{}", path.text(), reasons));
}

std::unique_ptr<VolumeSource> open_volume(std::string_view path, const OpenOptions& options) {
  return open_volume(split_volume_path(path), options);
}

std::string foreign_text(std::string_view head) {
  if (head.starts_with("version https://git-lfs")) {
    return "a pointer of Git LFS, which stands for the file; fetch the file itself with: git lfs pull";
  }
  const std::size_t begin = head.find_first_not_of(" \t\r\n");
  std::string text(head.substr(begin == head.npos ? head.size() : begin, 15));
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (text.starts_with("<!doctype html") || text.starts_with("<html")) {
    return "an HTML page, as servers send in the place of a file that needs a login or is gone; download the file "
           "again";
  }
  return "";
}

VoxelBox intersection(const VoxelBox& a, const VoxelBox& b) noexcept {
  VoxelBox both;
  for (int axis = 0; axis < 3; ++axis) {
    both.begin[axis] = std::max(a.begin[axis], b.begin[axis]);
    // A chunk may extend so far beyond the volume that its end is no index.
    both.extent[axis] = std::max<index_t>(0, std::min(a.extent[axis] - (both.begin[axis] - a.begin[axis]),
                                                      b.extent[axis] - (both.begin[axis] - b.begin[axis])));
  }
  return both;
}

void copy_overlap(const std::byte* from, const VoxelBox& from_box, std::byte* to, const VoxelBox& to_box,
                  std::size_t bytes) {
  const VoxelBox both = intersection(from_box, to_box);
  if (both.extent.z == 0 || both.extent.y == 0 || both.extent.x == 0) return;
  const auto at = [&](const VoxelBox& box, index_t z, index_t y) {
    const index_t voxel =
        ((z - box.begin.z) * box.extent.y + y - box.begin.y) * box.extent.x + both.begin.x - box.begin.x;
    return static_cast<std::size_t>(voxel) * bytes;
  };
  // Rows or planes that lie without a gap in both arrays are copied at once.
  const bool whole_rows = both.extent.x == from_box.extent.x && both.extent.x == to_box.extent.x;
  const bool whole_planes = whole_rows && both.extent.y == from_box.extent.y && both.extent.y == to_box.extent.y;
  const index_t planes = whole_planes ? 1 : both.extent.z, rows = whole_rows ? 1 : both.extent.y;
  const auto run = static_cast<std::size_t>(both.extent.volume() / planes / rows) * bytes;
  for (index_t z = 0; z < planes; ++z) {
    for (index_t y = 0; y < rows; ++y) {
      std::memcpy(to + at(to_box, both.begin.z + z, both.begin.y + y),
                  from + at(from_box, both.begin.z + z, both.begin.y + y), run);
    }
  }
}

}  // namespace convolume::nets::io
