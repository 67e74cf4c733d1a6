// What `convolume convert` and `convolume info` do with volumes.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "convolume/nets.hpp"
#include "core/files.hpp"
#include "nets/io/volume_sink.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::nets {
namespace {

io::VoxelBox box_of(const ConvertOptions& o, const io::VolumeSource& source) {
  io::VoxelBox box{{0, 0, 0}, source.info().extent};
  if (!o.begin && !o.end) return box;
  const Extent3 begin = o.begin.value_or(Extent3{0, 0, 0}), end = o.end.value_or(source.info().extent);
  for (int axis = 0; axis < 3; ++axis) {
    if (begin[axis] >= 0 && begin[axis] < end[axis] && end[axis] <= source.info().extent[axis]) continue;
    throw InvalidArgument(fmt::format("--box {}:{} along {} is not within the {} voxels of {}", begin[axis], end[axis],
                                      "zyx"[axis], source.info().extent[axis], source.path().text()));
  }
  return {begin, end - begin};
}

io::Codec codec_of(const std::string& name) {
  using io::Codec;
  constexpr std::pair<std::string_view, Codec> known[] = {{"", Codec::automatic},
                                                          {"raw", Codec::raw},
                                                          {"deflate", Codec::deflate},
                                                          {"zstd", Codec::zstd},
                                                          {"blosc", Codec::blosc}};
  for (const auto& [text, codec] : known) {
    if (name == text) return codec;
  }
  throw InvalidArgument(fmt::format("--codec '{}' is unknown; use raw, deflate, zstd or blosc", name));
}

/// Returns the geometry of a part that begins at a voxel: its origin moves.
std::optional<io::Geometry> geometry_of_part(std::optional<io::Geometry> geometry, const Extent3& begin) {
  if (!geometry || begin == Extent3{0, 0, 0}) return geometry;
  const auto moved = [&](const std::array<double, 12>& m, std::size_t row) {
    return m[4 * row] * static_cast<double>(begin.x) + m[4 * row + 1] * static_cast<double>(begin.y) +
           m[4 * row + 2] * static_cast<double>(begin.z) + m[4 * row + 3];
  };
  io::Geometry qform = *geometry;
  qform.sform_code = 0;
  const auto q = qform.affine();
  for (std::size_t row = 0; row < 3; ++row) {
    if (geometry->qform_code > 0) geometry->offset[row] = moved(q, row);
    geometry->srow[4 * row + 3] = moved(qform.srow, row);
  }
  return geometry;
}

/// Reads boxes that suit both files, converts them and writes them.
class Conversion {
 public:
  Conversion(const io::VolumeSource& source, io::VolumeSink& sink, const io::VoxelBox& box, index_t first_channel)
      : source_(source), sink_(sink), box_(box), first_channel_(first_channel) {}

  void run(const std::function<void(double)>& progress) {
    const Extent3 &e = box_.extent, step = steps();
    index_t done = 0;
    const index_t all = sink_.options().channels * e.volume();
    for (index_t c = 0; c < sink_.options().channels; ++c) {
      for (index_t z = 0; z < e.z; z += step.z) {
        for (index_t y = 0; y < e.y; y += step.y) {
          const io::VoxelBox part{{z, y, 0}, {std::min(step.z, e.z - z), std::min(step.y, e.y - y), e.x}};
          copy(c, part);
          done += part.extent.volume();
          if (progress) progress(static_cast<double>(done) / static_cast<double>(all));
        }
      }
    }
  }

 private:
  /// Returns the extent of a part: layers of chunks of the target, and parts of layers if these are too large.
  Extent3 steps() const {
    constexpr index_t target = index_t{64} << 20;
    const Extent3& e = box_.extent;
    const auto bytes = static_cast<index_t>(
        std::max(source_.info().bytes_per_voxel(), std::uint64_t{io::size_of(sink_.options().type)}));
    const index_t chunk = sink_.options().chunk.z > 0 ? sink_.options().chunk.z : 64;
    const index_t plane = e.y * e.x * bytes;
    if (chunk * plane <= target) return {std::min(e.z, target / plane / chunk * chunk), e.y, e.x};
    // Rows of chunks, so that each chunk is written once.
    const index_t rows = std::max<index_t>(1, target / (chunk * e.x * bytes) / 64) * 64;
    return {std::min(chunk, e.z), std::min(rows, e.y), e.x};
  }

  void copy(index_t c, const io::VoxelBox& part) {
    const io::VoxelType from = source_.info().type, to = sink_.options().type;
    const auto count = static_cast<std::size_t>(part.extent.volume());
    read_.resize(count * io::size_of(from));
    const io::VoxelBox box{box_.begin + part.begin, part.extent};
    source_.read({first_channel_ + c, 1}, box, read_);
    if (from == to) return sink_.write({c, 1}, part, read_);
    converted_.resize(count * io::size_of(to));
    const std::size_t wrong = io::convert_voxels(read_.data(), from, converted_.data(), to, count);
    if (wrong < count) {
      const auto i = static_cast<index_t>(wrong);
      const Extent3& e = part.extent;
      throw InvalidArgument(fmt::format(
          "{}: voxel (z {}, y {}, x {}) is {}, which {} cannot hold; use a wider type (--type)", source_.path().text(),
          box.begin.z + i / (e.y * e.x), box.begin.y + i / e.x % e.y, box.begin.x + i % e.x,
          io::text_of(read_.data() + wrong * io::size_of(from), from), io::name_of(to)));
    }
    sink_.write({c, 1}, part, converted_);
  }

  const io::VolumeSource& source_;
  io::VolumeSink& sink_;
  io::VoxelBox box_;
  index_t first_channel_;
  std::vector<std::byte> read_, converted_;
};

std::string bytes_text(std::uint64_t bytes) {
  const auto number = static_cast<double>(bytes);
  return bytes < 1 << 10   ? fmt::format("{} bytes", bytes)
         : bytes < 1 << 20 ? fmt::format("{:.1f} KiB", number / (1 << 10))
         : bytes < 1 << 30 ? fmt::format("{:.1f} MiB", number / (1 << 20))
                           : fmt::format("{:.2f} GiB", number / (1 << 30));
}

}  // namespace

void convert_volume(const ConvertOptions& o) {
  const auto source = io::open_volume(o.input);
  const io::VolumeInfo& info = source->info();
  const io::VoxelBox box = box_of(o, *source);
  if (o.channel && (*o.channel < 0 || *o.channel >= info.channels)) {
    throw InvalidArgument(
        fmt::format("--channel {}: {} has {} channels, counted from 0", *o.channel, o.input, info.channels));
  }
  const io::VolumePath target = io::split_volume_path(o.output);
  std::error_code error;
  if (std::filesystem::equivalent(target.file, source->path().file, error)) {
    throw InvalidArgument(fmt::format("{}: input and output are the same file; use another name", o.output));
  }
  const auto sink = io::create_volume(target, {.channels = o.channel ? 1 : info.channels,
                                               .extent = box.extent,
                                               .type = o.type.empty() ? info.type : io::parse_voxel_type(o.type),
                                               .spacing = info.spacing,
                                               .geometry = geometry_of_part(info.geometry, box.begin),
                                               .chunk = o.chunk.value_or(Extent3{0, 0, 0}),
                                               .codec = codec_of(o.codec)});
  Conversion(*source, *sink, box, o.channel.value_or(0)).run(o.on_progress);
  sink->finish();
}

std::string describe_volume(const std::string& volume) {
  const auto source = io::open_volume(volume);
  const io::VolumeInfo& info = source->info();
  const auto line = [](std::string_view name, const std::string& value) {
    return fmt::format("{:<16}{}\n", name, value);
  };
  const std::uint64_t bytes = static_cast<std::uint64_t>(info.channels * info.extent.volume()) * info.bytes_per_voxel();
  std::string text =
      line("volume", source->path().text()) + line("format", info.format) +
      line("channels", std::to_string(info.channels)) + line("voxels", to_string(info.extent)) +
      line("type", info.element_type) +
      line("bytes", fmt::format("{} in memory, {} in the file", bytes_text(bytes), bytes_text(source->stored_bytes())));
  text += line("chunks", fmt::format("{}{}", to_string(info.chunk),
                                     info.channels > 1 ? fmt::format(", {} channels", info.chunk_channels) : ""));
  if (!info.details.empty()) text += line("stored", info.details);
  if (info.spacing) {
    const auto& [z, y, x] = info.spacing->zyx;
    text += line("spacing", fmt::format("{:g} x {:g} x {:g} {}", z, y, x, info.spacing->unit));
  }
  if (info.geometry) {
    const auto m = info.geometry->affine();
    const char* const kind = info.geometry->sform_code > 0   ? "sform"
                             : info.geometry->qform_code > 0 ? "qform"
                                                             : "distances only";
    for (std::size_t row = 0; row < 3; ++row) {
      text += line(row == 0 ? "geometry" : "",
                   fmt::format("{:10.4g} {:10.4g} {:10.4g} {:10.4g}{}", m[4 * row], m[4 * row + 1], m[4 * row + 2],
                               m[4 * row + 3], row == 0 ? fmt::format("   {}", kind) : ""));
    }
  }
  return text;
}

FileKind kind_of_file(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return FileKind::volume;
  const ReadableFile contents{std::filesystem::path(file)};
  std::array<char, 4096> head{};
  const std::size_t got = contents.read_at(0, std::as_writable_bytes(std::span(head)));
  // A safetensors file begins with the length of a JSON object.
  if (got > 8 && head[8] == '{') return FileKind::checkpoint;
  const auto is_text = [](char c) {
    return static_cast<unsigned char>(c) >= 32 || c == '\n' || c == '\r' || c == '\t';
  };
  const bool text = got > 0 && std::all_of(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(got), is_text);
  return text ? FileKind::net : FileKind::volume;
}

}  // namespace convolume::nets
