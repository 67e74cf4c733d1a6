// Writes TIFF stacks, page by page: one page is one Z slice, compressed with deflate.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "core/checked.hpp"
#include "core/files.hpp"
#include "nets/io/chunk_assembler.hpp"
#include "nets/io/tiff_library.hpp"
#include "nets/io/tiff_volume.hpp"

namespace convolume::nets::io::detail {
namespace {

/// What libtiff writes to: the temporary file, with the error of the operating system.
struct Stream {
  int descriptor = -1;
  int error = 0;

  static Stream& of(thandle_t handle) { return *static_cast<Stream*>(handle); }
  static tmsize_t read(thandle_t handle, void* target, tmsize_t count) noexcept {
    return ::read(of(handle).descriptor, target, static_cast<std::size_t>(count));
  }
  static tmsize_t write(thandle_t handle, void* source, tmsize_t count) noexcept {
    const char* from = static_cast<const char*>(source);
    for (tmsize_t left = count; left > 0;) {
      const auto written = ::write(of(handle).descriptor, from, static_cast<std::size_t>(left));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        of(handle).error = errno;
        return -1;
      }
      from += written;
      left -= written;
    }
    return count;
  }
  static toff_t seek(thandle_t handle, toff_t offset, int whence) noexcept {
    return static_cast<toff_t>(::lseek(of(handle).descriptor, static_cast<off_t>(offset), whence));
  }
  static int close(thandle_t) noexcept { return 0; }
  static toff_t size(thandle_t handle) noexcept {
    const off_t at = ::lseek(of(handle).descriptor, 0, SEEK_CUR), end = ::lseek(of(handle).descriptor, 0, SEEK_END);
    ::lseek(of(handle).descriptor, at, SEEK_SET);
    return static_cast<toff_t>(end);
  }
};

class TiffSink final : public VolumeSink {
 public:
  TiffSink(const VolumePath& path, const SinkOptions& options)
      : VolumeSink(path, options),
        file_(path.file),
        pages_(options, 1, {1, options.extent.y, options.extent.x}, true, folder_of(path.file),
               [this](const ChunkPlace&, std::span<const std::byte> page) { put(page); }) {
    const index_t bytes = checked_mul(options.extent.volume(), voxel_bytes(), "bytes of a TIFF volume");
    stream_.descriptor = file_.descriptor();
    const auto open_options = make_tiff_options(complaint_);
    tiff_.reset(TIFFClientOpenExt(path.file.c_str(), bytes > 3'500'000'000 ? "w8" : "w", &stream_, Stream::read,
                                  Stream::write, Stream::seek, Stream::close, Stream::size, nullptr, nullptr,
                                  open_options.get()));
    if (!tiff_) fail();
  }

 private:
  static std::filesystem::path folder_of(const std::filesystem::path& file) {
    return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  }
  index_t voxel_bytes() const { return static_cast<index_t>(size_of(options().type)); }

  [[noreturn]] void fail() const {
    if (stream_.error != 0) {
      throw IoError(fmt::format("{}: writing failed: {}{}", path().file.string(), std::strerror(stream_.error),
                                stream_.error == ENOSPC ? "; free some space and try again" : ""));
    }
    throw IoError(fmt::format("{}: encoding the TIFF failed, perhaps because memory ran out{}", path().file.string(),
                              complaint_.suffix()));
  }

  template <class... Values>
  void set(std::uint32_t tag, Values... values) {
    if (!TIFFSetField(tiff_.get(), tag, values...)) fail();
  }

  void do_write(ChannelRange channels, const VoxelBox& box, const std::byte* voxels) override {
    pages_.write(channels, box, voxels);
  }

  void put(std::span<const std::byte> page) {
    const Extent3& e = options().extent;
    const index_t row_bytes = e.x * voxel_bytes();
    const index_t rows_per_strip = std::clamp((index_t{256} << 10) / row_bytes, index_t{1}, e.y);
    set(TIFFTAG_IMAGEWIDTH, checked_cast<std::uint32_t>(e.x, "TIFF width"));
    set(TIFFTAG_IMAGELENGTH, checked_cast<std::uint32_t>(e.y, "TIFF height"));
    set(TIFFTAG_BITSPERSAMPLE, static_cast<int>(8 * voxel_bytes()));
    set(TIFFTAG_SAMPLESPERPIXEL, 1);
    set(TIFFTAG_SAMPLEFORMAT, is_floating(options().type) ? SAMPLEFORMAT_IEEEFP
                              : is_signed(options().type) ? SAMPLEFORMAT_INT
                                                          : SAMPLEFORMAT_UINT);
    set(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
    set(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    const bool deflated = deflates(options());
    set(TIFFTAG_COMPRESSION, deflated ? COMPRESSION_ADOBE_DEFLATE : COMPRESSION_NONE);
    if (deflated && !is_floating(options().type)) set(TIFFTAG_PREDICTOR, PREDICTOR_HORIZONTAL);
    set(TIFFTAG_ROWSPERSTRIP, static_cast<std::uint32_t>(rows_per_strip));
    if (page_++ == 0) describe();
    // The predictor changes its input, so each strip is copied.
    std::vector<std::byte> strip;
    for (index_t y = 0; y < e.y; y += rows_per_strip) {
      const auto bytes = static_cast<std::size_t>(std::min(rows_per_strip, e.y - y) * row_bytes);
      const auto* const first = page.data() + y * row_bytes;
      strip.assign(first, first + bytes);
      const auto number = static_cast<std::uint32_t>(y / rows_per_strip);
      if (std::cmp_not_equal(TIFFWriteEncodedStrip(tiff_.get(), number, strip.data(), static_cast<tmsize_t>(bytes)),
                             bytes)) {
        fail();
      }
    }
    if (!TIFFWriteDirectory(tiff_.get())) fail();
  }

  /// Writes the spacing as ImageJ does.
  void describe() {
    if (!options().spacing) return;
    const Spacing& spacing = *options().spacing;
    const index_t images = options().extent.z;
    const std::string text =
        fmt::format("ImageJ=1.53\nimages={}\nslices={}\n{}spacing={}\nloop=false\n", images, images,
                    spacing.unit.empty() ? "" : fmt::format("unit={}\n", spacing.unit), spacing.zyx[0]);
    set(TIFFTAG_IMAGEDESCRIPTION, text.c_str());
    set(TIFFTAG_XRESOLUTION, 1 / spacing.zyx[2]);
    set(TIFFTAG_YRESOLUTION, 1 / spacing.zyx[1]);
    set(TIFFTAG_RESOLUTIONUNIT, RESUNIT_NONE);
  }

  void do_finish() override {
    pages_.check_complete(path());
    if (!TIFFFlush(tiff_.get())) fail();
    tiff_.reset();
    if (!complaint_.text.empty() || stream_.error != 0) fail();  // closing reports its failures only this way
    file_.commit();
  }

  AtomicFile file_;
  Stream stream_;
  Complaint complaint_;  // declared before the handle, which writes to it while closing
  TiffHandle tiff_;
  ChunkAssembler pages_;
  index_t page_ = 0;
};

bool writes_tiff(const VolumePath& path) {
  const std::string extension = extension_of(path.file);
  return path.inside.empty() && path.file.filename().string().find('*') == std::string::npos &&
         (extension == ".tif" || extension == ".tiff");
}

void check_tiff(const VolumePath& path, const SinkOptions& options) {
  if (options.channels != 1) {
    throw InvalidArgument(
        fmt::format("{}: a TIFF stack holds one channel, but the volume has {}; write HDF5, NIfTI or Zarr, or one TIFF "
                    "per channel",
                    path.text(), options.channels));
  }
  check_tiff_type(path, options.type);
}

std::string reason_against_tiff(const Candidate& candidate) {
  if (candidate.folder) return "a folder; name a file, or its pages as FOLDER/*.tif";
  if (has_tiff_header(candidate.head)) return "";
  return writes_tiff(candidate.path) ? "does not begin with a TIFF header; it is damaged or of another kind"
                                     : "does not begin with a TIFF header";
}

std::string tiff_version() {
  const std::string text = TIFFGetVersion();  // "LIBTIFF, Version 4.5.0" and a copyright line
  return text.substr(0, text.find('\n'));
}

}  // namespace

bool has_tiff_header(std::string_view head) {
  using namespace std::string_view_literals;
  for (const auto magic : {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv}) {
    if (head.starts_with(magic)) return true;
  }
  return false;
}

void check_tiff_type(const VolumePath& path, VoxelType type) {
  if (type != VoxelType::uint64 && type != VoxelType::int64) return;
  throw InvalidArgument(
      fmt::format("{}: TIFF holds integers of 8 to 32 bits, not {}; write HDF5, NIfTI or Zarr, or "
                  "convert the voxels (--type)",
                  path.text(), name_of(type)));
}

std::unique_ptr<VolumeSink> create_tiff(const VolumePath& path, const SinkOptions& options) {
  return std::make_unique<TiffSink>(path, options);
}

VolumeFormat tiff_format() {
  return {.name = "TIFF",
          .extensions = ".tif, .tiff",
          .reason_against = reason_against_tiff,
          .open = [](const VolumePath& path, const OpenOptions&) { return open_tiff(path); },
          .writes = writes_tiff,
          .check = check_tiff,
          .create = create_tiff,
          .version = tiff_version};
}

}  // namespace convolume::nets::io::detail
