#include "nets/files/tensor_files.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convolume/error.hpp"
#include "nets/io/safetensors.hpp"
#include "nets/io/volume_sink.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::nets {
namespace {

/// Chunks, pages and strips are decoded or encoded on the way, so an element costs about five times what it costs in a
/// raw file.
constexpr TransferPrice encoded_price{.start = 1e-4, .jump = 1e-6, .element = 2e-8};
/// Past the page cache, each jump is a request to the device. Measured on a virtual disk: 0.06 to 0.13 ms.
constexpr TransferPrice direct_price{.start = 1e-4, .jump = 1e-4, .element = 4e-9};
constexpr TransferPrice memory_price{.start = 1e-6, .jump = 1e-8, .element = 4e-10};
/// Bytes of unfinished chunks that a volume keeps in memory while it is written.
constexpr std::size_t sink_bytes = std::size_t{8} << 20;
/// Bytes of voxels that are converted at a time.
constexpr std::size_t piece_bytes = std::size_t{256} << 10;

bool is_raw(const std::string& file) { return file.ends_with(".raw") || file.ends_with(".bin"); }

io::VoxelType voxels_of(DataType type) {
  return type == DataType::f32 ? io::VoxelType::float32 : io::VoxelType::float64;
}

void require_shape(const std::string& name, const Shape5& found, const Shape5& wanted) {
  if (found == wanted) return;
  throw ShapeMismatch(fmt::format("{}: holds {}, the problem needs {}; check the problem, or name another file", name,
                                  to_string(found), to_string(wanted)));
}

/// Returns whether reading decodes chunks, pages or strips.
bool is_encoded(const io::VolumeInfo& volume) {
  const auto decoded = static_cast<std::uint64_t>(volume.channels * volume.extent.volume()) * volume.bytes_per_voxel();
  return volume.stored_bytes < decoded;
}

/// The channels of a volume are those of all samples, one sample after the other.
class VolumeTensor final : public TensorSource {
 public:
  VolumeTensor(std::unique_ptr<io::VolumeSource> volume, DataType type)
      : TensorSource(volume->path().text(), shape_of(volume->info()), type), volume_(std::move(volume)) {}

  /// Rows that are not encoded are read in part.
  Shape5 chunk() const noexcept override {
    const io::VolumeInfo& info = volume_->info();
    const Extent3 e = info.chunk, all = info.extent;
    if (info.decoded_once) return TensorSource::chunk();
    if (!is_encoded(info) && info.chunk_channels * e.z * e.y == 1) return TensorSource::chunk();
    const index_t planes = info.planes_of_chunks ? 1 : e.z;
    const auto within = [](index_t chunk, index_t extent) { return std::clamp<index_t>(chunk, 1, extent); };
    return {1, within(info.chunk_channels, shape().c), {within(planes, all.z), within(e.y, all.y), within(e.x, all.x)}};
  }

 private:
  static Shape5 shape_of(const io::VolumeInfo& info) {
    return {info.samples, info.channels / info.samples, info.extent};
  }

  void do_read(const TensorBox& box, void* to) override {
    auto* dense = static_cast<std::byte*>(to);
    const io::VoxelBox voxels{box.begin, box.shape.extent};
    const std::size_t element = size_of(type()), stored = volume_->info().bytes_per_voxel();
    const auto count = static_cast<std::size_t>(box.shape.c * box.shape.extent.volume());
    for (index_t n = 0; n < box.shape.n; ++n, dense += count * element) {
      const io::ChannelRange channels{(box.n + n) * shape().c + box.c, box.shape.c};
      if (volume_->info().type == voxels_of(type())) {
        volume_->read(channels, voxels, {dense, count * element});
      } else if (stored <= element) {
        // Voxels are read to the end of their place, and grow from there towards its begin.
        std::byte* const end = dense + count * (element - stored);
        volume_->read(channels, voxels, {end, count * stored});
        convert(end, dense, count);
      } else {
        read_rows(channels, voxels, dense);
      }
    }
  }

  /// Reads some rows at a time, so that little memory is taken beside the box.
  void read_rows(const io::ChannelRange& channels, const io::VoxelBox& box, std::byte* dense) {
    const std::size_t row_bytes = static_cast<std::size_t>(box.extent.x) * volume_->info().bytes_per_voxel();
    const index_t rows = std::max<index_t>(1, static_cast<index_t>(piece_bytes / row_bytes));
    for (index_t c = 0; c < channels.count; ++c) {
      for (index_t z = 0; z < box.extent.z; ++z) {
        for (index_t y = 0; y < box.extent.y; y += rows) {
          const Extent3 some{1, std::min(rows, box.extent.y - y), box.extent.x};
          const auto count = static_cast<std::size_t>(some.volume());
          staging_.resize(count * volume_->info().bytes_per_voxel());
          volume_->read({channels.begin + c, 1}, {{box.begin.z + z, box.begin.y + y, box.begin.x}, some}, staging_);
          convert(staging_.data(), dense, count);
          dense += count * size_of(type());
        }
      }
    }
  }

  /// Converts voxels in pieces. `from` may lie behind `to` in the same memory.
  void convert(const std::byte* from, std::byte* to, std::size_t count) {
    const std::size_t stored = volume_->info().bytes_per_voxel(), at_once = piece_bytes / stored;
    piece_.resize(piece_bytes);
    while (count > 0) {
      const std::size_t now = std::min(count, at_once);
      std::memcpy(piece_.data(), from, now * stored);
      io::convert_voxels(piece_.data(), volume_->info().type, to, voxels_of(type()), now);
      from += now * stored;
      to += now * size_of(type());
      count -= now;
    }
  }

  std::unique_ptr<io::VolumeSource> volume_;
  std::vector<std::byte> staging_, piece_;
};

class VolumeTensorSink final : public TensorSink {
 public:
  VolumeTensorSink(const io::VolumePath& path, const Shape5& shape, DataType type, const io::SinkOptions& options)
      : TensorSink(path.text(), shape, type), volume_(io::create_volume(path, options)) {}
  void finish() override { volume_->finish(); }

 private:
  void do_write(const TensorBox& box, const void* from) override {
    const auto* dense = static_cast<const std::byte*>(from);
    const std::size_t bytes = static_cast<std::size_t>(box.shape.c * box.shape.extent.volume()) * size_of(type());
    for (index_t n = 0; n < box.shape.n; ++n, dense += bytes) {
      volume_->write({(box.n + n) * shape().c + box.c, box.shape.c}, {box.begin, box.shape.extent}, {dense, bytes});
    }
  }
  std::unique_ptr<io::VolumeSink> volume_;
};

/// Weights that were read as a whole, because they are small beside x and y.
class OwnedTensor final : public TensorSource {
 public:
  OwnedTensor(const std::string& name, io::SafetensorsFile file, const io::NamedTensor& tensor, const Shape5& shape,
              DataType type)
      : TensorSource(name, shape, type), file_(std::move(file)), bytes_(tensor.bytes) {}

 private:
  void do_read(const TensorBox& box, void* to) override {
    // The file's bytes may not be aligned, so only whole stretches are copied.
    const std::size_t taps = static_cast<std::size_t>(shape().extent.volume()) * size_of(type());
    auto* dense = static_cast<std::byte*>(to);
    if (!(box.shape.extent == shape().extent)) throw InvalidArgument(name() + ": kernels are read as a whole");
    for (index_t n = 0; n < box.shape.n; ++n) {
      const auto first = static_cast<std::size_t>((box.n + n) * shape().c + box.c) * taps;
      const std::size_t bytes = static_cast<std::size_t>(box.shape.c) * taps;
      std::memcpy(dense, bytes_.data() + first, bytes);
      dense += bytes;
    }
  }
  io::SafetensorsFile file_;
  std::span<const std::byte> bytes_;
};

/// Returns the file and the tensor of "w.safetensors" or "w.safetensors:NAME", or nothing for other files.
std::optional<std::pair<std::string, std::string>> split_safetensors(const std::string& text) {
  constexpr std::string_view extension = ".safetensors";
  if (text.ends_with(extension)) return std::pair(text, std::string());
  const std::size_t at = text.rfind(std::string(extension) + ":");
  if (at == std::string::npos) return std::nullopt;
  const std::size_t end = at + extension.size();
  return std::pair(text.substr(0, end), text.substr(end + 1));
}

TensorFile<TensorSource> open_raw(const std::string& file, const Shape5& shape, DataType type, bool direct) {
  return {raw_source({.path = file, .shape = shape, .type = type, .direct = direct}),
          direct ? direct_price : StreamPrices::file};
}

std::unique_ptr<io::VolumeSource> open_volume(const std::string& file, const TensorOptions& options) {
  auto volume = io::open_volume(file, {.decode_in_memory = 0, .temporary = options.temporary, .samples = true});
  io::tell_notes(file, volume->info(), options.on_note);
  return volume;
}

/// Safetensors are read as a whole, because their digest covers all of them.
std::unique_ptr<TensorSource> open_safetensors(const std::string& path, const std::string& name, const Shape5& shape,
                                               const std::vector<index_t>& wanted, DataType type,
                                               std::size_t most_bytes) {
  io::SafetensorsFile file = io::read_safetensors(path, most_bytes);
  if (name.empty() && file.tensors().size() != 1) {
    std::vector<std::string> names;
    for (const io::NamedTensor& tensor : file.tensors()) names.push_back(tensor.name);
    throw FormatError(
        fmt::format("{}: which tensor? name one as FILE:NAME; the file holds {}", path, fmt::join(names, ", ")));
  }
  const io::NamedTensor& tensor = name.empty() ? file.tensors().front() : file.at(name);
  if (tensor.shape != wanted || tensor.type != io::stored_type(type)) {
    throw ShapeMismatch(fmt::format("{}: tensor {} has shape {}, the problem needs {} of {}; check the problem", path,
                                    tensor.name, fmt::join(tensor.shape, " x "), fmt::join(wanted, " x "),
                                    name_of(type)));
  }
  return std::make_unique<OwnedTensor>(path, std::move(file), tensor, shape, type);
}

/// Opens the weights or the bias. `what` names them in messages. `stored` is their shape in safetensors.
TensorFile<TensorSource> open_parameters(const std::string& file, const char* what, const Shape5& shape,
                                         const std::vector<index_t>& stored, DataType type,
                                         const TensorOptions& options) {
  if (is_raw(file)) return open_raw(file, shape, type, options.direct);
  if (const auto named = split_safetensors(file)) {
    const auto held = static_cast<std::size_t>(std::filesystem::file_size(named->first));
    return {open_safetensors(named->first, named->second, shape, stored, type, options.memory), memory_price, held};
  }
  auto volume = open_volume(file, options);
  if (volume->info().format != "HDF5") {
    throw InvalidArgument(fmt::format("{}: a {} file cannot hold {}; use .raw, .safetensors, or an HDF5 dataset", file,
                                      volume->info().format, what));
  }
  auto tensor = std::make_unique<VolumeTensor>(std::move(volume), type);
  require_shape(file, tensor->shape(), shape);
  return {std::move(tensor), encoded_price};
}

io::SinkOptions sink_options(const Shape5& shape, DataType type) {
  return {.channels = shape.n * shape.c,
          .samples = shape.n,
          .extent = shape.extent,
          .type = voxels_of(type),
          .memory = sink_bytes};
}

}  // namespace

TensorFile<TensorSource> open_tensor(const std::string& file, const Shape5& shape, DataType type,
                                     const TensorOptions& options) {
  if (is_raw(file)) return open_raw(file, shape, type, options.direct);
  auto volume = open_volume(file, options);
  const TransferPrice price = price_of_reading(volume->info());
  auto tensor = std::make_unique<VolumeTensor>(std::move(volume), type);
  require_shape(file, tensor->shape(), shape);
  return {std::move(tensor), price};
}

TensorFile<TensorSource> open_weights(const std::string& file, const Shape5& shape, DataType type,
                                      const TensorOptions& options) {
  const Extent3& e = shape.extent;
  return open_parameters(file, "weights", shape, {shape.n, shape.c, e.z, e.y, e.x}, type, options);
}

template <class T>
Tensor<T> read_bias(const std::string& file, index_t channels, const TensorOptions& options) {
  Tensor<T> bias(Shape5{1, channels, {1, 1, 1}});
  const auto opened = open_parameters(file, "a bias", bias.shape(), {channels}, data_type_of<T>(), options);
  opened.tensor->read({.shape = bias.shape()}, bias.data());
  return bias;
}
template Tensor<float> read_bias(const std::string&, index_t, const TensorOptions&);
template Tensor<double> read_bias(const std::string&, index_t, const TensorOptions&);

TensorFile<TensorSink> create_tensor(const std::string& file, const Shape5& shape, DataType type) {
  if (is_raw(file)) return {raw_sink({.path = file, .shape = shape, .type = type}), StreamPrices::file};
  return {std::make_unique<VolumeTensorSink>(io::split_volume_path(file), shape, type, sink_options(shape, type)),
          encoded_price};
}

void check_tensor_writable(const std::string& file, const Shape5& shape, DataType type) {
  if (!is_raw(file)) io::check_writable(io::split_volume_path(file), sink_options(shape, type));
}

TransferPrice price_of_reading(const io::VolumeInfo& volume) {
  return is_encoded(volume) ? encoded_price : StreamPrices::file;
}

TransferPrice price_of_writing(const std::string& file) { return is_raw(file) ? StreamPrices::file : encoded_price; }

}  // namespace convolume::nets
