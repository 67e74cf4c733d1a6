// What `convolume convert` and `convolume info` do with volumes.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "convolume/volumes.hpp"
#include "core/files.hpp"
#include "core/ownership.hpp"
#include "nets/files/array_voxels.hpp"
#include "nets/io/copy_volume.hpp"
#include "nets/io/nan_source.hpp"
#include "nets/io/orientation.hpp"
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

void require_hdf5_name(const std::filesystem::path& file) {
  if (file.extension() == ".h5") return;
  throw InvalidArgument(fmt::format("{}: datasets are written as HDF5; use a name that ends with .h5", file.string()));
}

std::string bytes_text(std::uint64_t bytes) {
  const auto number = static_cast<double>(bytes);
  return bytes < 1 << 10   ? fmt::format("{} bytes", bytes)
         : bytes < 1 << 20 ? fmt::format("{:.1f} KiB", number / (1 << 10))
         : bytes < 1 << 30 ? fmt::format("{:.1f} MiB", number / (1 << 20))
                           : fmt::format("{:.2f} GiB", number / (1 << 30));
}

}  // namespace

ArrayVolume::ArrayVolume(const ArrayView& array) : path_(io::register_array(voxels_of(array))) {}

ArrayVolume::~ArrayVolume() {
  if (!path_.empty()) io::forget_array(path_);
}

ArrayVolume::ArrayVolume(ArrayVolume&& other) noexcept : path_(std::exchange(other.path_, {})) {}

ArrayVolume& ArrayVolume::operator=(ArrayVolume&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

bool convert_volume(const ConvertOptions& o) {
  auto file = io::open_volume(o.input);
  if (o.nan) file = io::replace_nan(std::move(file), *o.nan);
  io::VoxelBox box = box_of(o, *file);
  std::shared_ptr<const io::VolumeSource> source = std::move(file);
  if (!o.orientation.empty()) {
    io::check_orientation(o.orientation);
    const io::AxisMap map = io::turn_to(o.orientation, *source);
    box = map.turned(box, source->info().extent);
    source = io::turned(source, map);
  }
  const io::VolumeInfo& info = source->info();
  io::tell_notes(o.input, info, o.on_note);
  if (o.channel && (*o.channel < 0 || *o.channel >= info.channels)) {
    throw InvalidArgument(
        fmt::format("--channel {}: {} has {} channels, counted from 0", *o.channel, o.input, info.channels));
  }
  const io::VolumePath target = io::split_volume_path(o.output);
  std::error_code error;
  if (std::filesystem::equivalent(target.file, source->path().file, error)) {
    throw InvalidArgument(fmt::format("{}: input and output are the same file; use another name", o.output));
  }
  const io::SinkOptions options{.channels = o.channel ? 1 : info.channels,
                                .extent = box.extent,
                                .type = o.type.empty() ? info.type : io::parse_voxel_type(o.type),
                                .spacing = info.spacing,
                                .geometry = io::geometry_of_part(info.geometry, box.begin),
                                .chunk = o.chunk.value_or(Extent3{0, 0, 0}),
                                .codec = codec_of(o.codec)};
  io::check_writable(target, options);
  const Ownership owner(io::owner_file(target), target.text(), o.take_over);
  if (o.on_note && !owner.taken_over().empty()) o.on_note(owner.taken_over());
  const auto sink = io::create_volume(target, options);
  const auto progress = [&](double share) {
    if (o.stop.stop_requested()) throw StopRequested();
    if (o.on_progress) o.on_progress(share);
  };
  try {
    io::copy_volume(*source, *sink, box.begin, o.channel.value_or(0), progress);
  } catch (const StopRequested&) {
    return false;
  }
  sink->finish();
  return true;
}

void check_datasets(const std::filesystem::path& file, std::span<const std::string> names) {
  require_hdf5_name(file);
  io::DataSetFile(file, names);  // begins a file, which is gone if nothing finishes it
}

void write_datasets(const std::filesystem::path& file, std::span<const NamedArray> arrays) {
  std::vector<std::string> names;
  for (const NamedArray& one : arrays) names.push_back(one.name);
  require_hdf5_name(file);
  const Ownership owner(file.string() + ".owner", file.string(), false);
  io::DataSetFile target(file, names);
  for (const NamedArray& one : arrays) {
    const ArrayVolume volume(one.array);
    const auto source = io::open_volume(volume.path());
    const io::VolumeInfo& info = source->info();
    const auto sink = target.create(one.name, {.channels = info.channels, .extent = info.extent, .type = info.type});
    io::copy_volume(*source, *sink, {0, 0, 0}, 0);
    sink->finish();
  }
  target.finish();
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
  for (const std::string& note : info.notes) text += line("note", note);
  if (info.spacing) {
    const auto& [z, y, x] = info.spacing->zyx;
    text += line("spacing", fmt::format("{:g} x {:g} x {:g} {}", z, y, x, info.spacing->unit));
  }
  if (info.geometry) {
    const auto m = info.geometry->affine();
    const char* const kind = info.geometry->sform_code > 0   ? "sform"
                             : info.geometry->qform_code > 0 ? "qform"
                                                             : "distances only";
    const std::string orientation = io::orientation_of(*info.geometry);
    text += line("orientation", orientation.empty() ? "unknown" : orientation + " (x, y, z)");
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
  if (!io::foreign_text(std::string_view(head.data(), got)).empty()) return FileKind::volume;
  // A safetensors file begins with the length of a JSON object.
  if (got > 8 && head[8] == '{') return FileKind::checkpoint;
  const auto is_text = [](char c) {
    return static_cast<unsigned char>(c) >= 32 || c == '\n' || c == '\r' || c == '\t';
  };
  const bool text = got > 0 && std::all_of(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(got), is_text);
  return text ? FileKind::net : FileKind::volume;
}

}  // namespace convolume::nets
