#include "nets/io/volume.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checked.hpp"
#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io {
namespace {

enum class Format { tiff, hdf5, unknown };

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

Format format_of_extension(const std::filesystem::path& file) {
  const std::string extension = lower_case(file.extension().string());
  if (extension == ".tif" || extension == ".tiff") return Format::tiff;
  if (extension == ".h5" || extension == ".hdf5") return Format::hdf5;
  return Format::unknown;
}

Format format_of_contents(std::string_view head) {
  using namespace std::string_view_literals;
  for (const auto magic : {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv}) {
    if (head.starts_with(magic)) return Format::tiff;
  }
  return head.starts_with("\x89HDF\r\n\x1a\n"sv) ? Format::hdf5 : Format::unknown;
}

/// Returns the format whose reader takes the file, and reports all errors that need no reader.
Format recognise(const std::filesystem::path& file) {
  // O_NONBLOCK: opening a pipe without a writer must fail below rather than wait.
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    throw IoError(
        fmt::format("{}: opening failed: {}; check the path and the permissions", file.string(), std::strerror(errno)));
  }
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(fd);
    throw IoError(fmt::format("{}: is {}; name a TIFF or HDF5 file", file.string(),
                              known && S_ISDIR(status.st_mode) ? "a directory" : "not a regular file"));
  }
  std::array<char, 8> head{};
  const auto got = ::pread(fd, head.data(), head.size(), 0);
  const int error = errno;
  ::close(fd);
  if (got < 0) throw IoError(fmt::format("{}: reading failed: {}", file.string(), std::strerror(error)));
  if (got == 0) throw FormatError(fmt::format("{}: the file is empty; write or copy it again", file.string()));
  const Format contents = format_of_contents({head.data(), static_cast<std::size_t>(got)});
  if (contents != Format::unknown) return contents;
  switch (format_of_extension(file)) {
    case Format::hdf5:
      return Format::hdf5;  // a user block may precede the signature; HDF5 itself knows where to look
    case Format::tiff:
      throw FormatError(
          fmt::format("{}: does not begin with a TIFF header; it is damaged or of another kind", file.string()));
    case Format::unknown:
      break;
  }
  throw FormatError(
      fmt::format("{}: neither TIFF nor HDF5, judged by its first bytes and the extension '{}'; convert "
                  "it to one of them",
                  file.string(), file.extension().string()));
}

}  // namespace

namespace detail {

void require_budget(const std::filesystem::path& file, const Extent3& extent, std::size_t max_bytes) {
  const auto too_large = [&](const std::string& bytes) {
    throw FormatError(
        fmt::format("{}: {} voxels take {} bytes as float, but at most {} are allowed; crop the volume or "
                    "raise max_bytes",
                    file.string(), to_string(extent), bytes, max_bytes));
  };
  index_t bytes = 0;
  try {
    bytes = checked_mul(extent.volume(), index_t{sizeof(float)});
  } catch (const OverflowError&) {
    too_large("more than 2^63");
  }
  if (std::cmp_greater(bytes, max_bytes)) too_large(std::to_string(bytes));
}

void require_finite(const std::filesystem::path& file, const Tensor<float>& volume) {
  const float* const data = volume.data();
  for (index_t i = 0; i < volume.elements(); ++i) {
    if (std::isfinite(data[i])) continue;
    const Extent3 extent = volume.shape().extent;
    throw FormatError(
        fmt::format("{}: voxel (z {}, y {}, x {}) is {} as float; replace such values, or read without "
                    "require_finite",
                    file.string(), i / (extent.y * extent.x), i / extent.x % extent.y, i % extent.x, data[i]));
  }
}

std::uint8_t to_byte(const std::filesystem::path& file, float value) {
  if (std::isnan(value)) {
    throw NumericalError(fmt::format("{}: a voxel is NaN, which uint8 cannot hold; write float32", file.string()));
  }
  return static_cast<std::uint8_t>(std::clamp(value, 0.0f, 1.0f) * 255.0f + 0.5f);
}

}  // namespace detail

VolumeInfo inspect_volume(const std::filesystem::path& file, const std::string& dataset) {
  return recognise(file) == Format::tiff ? detail::inspect_tiff(file) : detail::inspect_hdf5(file, dataset);
}

Tensor<float> read_volume(const std::filesystem::path& file, const ReadOptions& options,
                          std::pmr::memory_resource* memory) {
  auto volume = recognise(file) == Format::tiff ? detail::read_tiff(file, options, memory)
                                                : detail::read_hdf5(file, options, memory);
  if (options.require_finite) detail::require_finite(file, volume);
  return volume;
}

namespace {

/// Returns the format that the file's name selects. Throws if it cannot hold so many channels.
Format check_name(const std::filesystem::path& file, index_t channels) {
  const Format format = format_of_extension(file);
  if (format == Format::unknown) {
    throw InvalidArgument(fmt::format("{}: unknown extension '{}'; use .tif, .tiff, .h5 or .hdf5", file.string(),
                                      file.extension().string()));
  }
  if (format == Format::tiff && channels != 1) {
    throw InvalidArgument(
        fmt::format("{}: a TIFF stack holds one channel, but the volume has {}; write an HDF5 file (.h5) or "
                    "one TIFF per channel",
                    file.string(), channels));
  }
  return format;
}

}  // namespace

void write_volume(const std::filesystem::path& file, const View<const float>& volume, const WriteOptions& options) {
  const Shape5& shape = volume.shape;
  if (!volume || shape.n != 1 || shape.c < 1 || shape.extent.z < 1 || shape.extent.y < 1 || shape.extent.x < 1) {
    throw InvalidArgument(fmt::format("{}: a view of shape {} cannot be written; pass one volume with voxels (N = 1)",
                                      file.string(), to_string(shape)));
  }
  if (check_name(file, shape.c) == Format::tiff) return detail::write_tiff(file, volume, options);
  detail::write_hdf5(file, volume, options);
}

void check_writable(const std::filesystem::path& file, index_t channels) {
  static_cast<void>(check_name(file, channels));
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder)) {
    throw IoError(fmt::format("{}: the folder {} does not exist; make it first", file.string(), folder.string()));
  }
  if (::access(folder.c_str(), W_OK) != 0) {
    throw IoError(fmt::format("{}: writing to the folder {} is not allowed: {}", file.string(), folder.string(),
                              std::strerror(errno)));
  }
  if (std::filesystem::is_directory(file)) {
    throw IoError(fmt::format("{}: is a folder; name a file", file.string()));
  }
}

std::pair<std::filesystem::path, std::string> split_volume_path(std::string_view text) {
  for (std::size_t colon = text.find(':'); colon != text.npos; colon = text.find(':', colon + 1)) {
    const std::filesystem::path file(text.substr(0, colon));
    if (format_of_extension(file) == Format::hdf5) return {file, std::string(text.substr(colon + 1))};
  }
  return {std::filesystem::path(text), std::string()};
}

std::string format_versions() { return detail::tiff_version() + "\n" + detail::hdf5_version(); }

}  // namespace convolume::nets::io
