#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <tiffio.h>

#include "core/checked.hpp"
#include "core/files.hpp"
#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io::detail {
namespace {

using std::filesystem::path;

/// Keeps the first error message of libtiff. Each handle has its own, so nothing global changes and nothing is printed.
struct Complaint {
  std::string text;

  static int record(TIFF*, void* self, const char*, const char* format, va_list arguments) noexcept {
    auto& text = static_cast<Complaint*>(self)->text;
    if (text.empty()) {
      char buffer[512];
      std::vsnprintf(buffer, sizeof buffer, format, arguments);
      try {
        text = buffer;
      } catch (const std::bad_alloc&) {  // the message is lost, the failure itself is still reported
      }
    }
    return 1;  // handled: libtiff then skips the global handlers
  }
  static int ignore(TIFF*, void*, const char*, const char*, va_list) noexcept { return 1; }
  std::string suffix() const { return text.empty() ? "" : fmt::format(" (libtiff: {})", text); }
};

struct Closer {
  void operator()(TIFF* tiff) const noexcept { TIFFClose(tiff); }
  void operator()(TIFFOpenOptions* options) const noexcept { TIFFOpenOptionsFree(options); }
};
using TiffHandle = std::unique_ptr<TIFF, Closer>;
using TiffOptions = std::unique_ptr<TIFFOpenOptions, Closer>;

TiffOptions make_options(Complaint& complaint) {
  TiffOptions options(TIFFOpenOptionsAlloc());
  if (!options) throw std::bad_alloc();
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), Complaint::record, &complaint);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), Complaint::ignore, nullptr);
  return options;
}

/// The properties that must be equal on all pages.
struct PageFormat {
  std::uint32_t width = 0, height = 0;
  std::uint16_t bits = 0, sample_format = 0;
  friend bool operator==(const PageFormat&, const PageFormat&) = default;

  std::size_t bytes_per_voxel() const { return bits / 8u; }
  std::string element_type() const {
    return fmt::format("{}{}",
                       sample_format == SAMPLEFORMAT_IEEEFP ? "float"
                       : sample_format == SAMPLEFORMAT_INT  ? "int"
                                                            : "uint",
                       bits);
  }
};

/// Memory that is not filled with zeros, so the size that a false header claims is never touched.
using Buffer = std::unique_ptr<std::byte[]>;

class Reader {
 public:
  explicit Reader(const path& file) : file_(file) {
    std::error_code error;
    const auto size = std::filesystem::file_size(file, error);
    if (error) throw IoError(fmt::format("{}: reading the size failed: {}", file.string(), error.message()));
    file_size_ = size;
    const auto options = make_options(complaint_);
    // libtiff's own allocations (directories, raw strips) are limited by the file's size, not by what the header
    // claims.
    constexpr std::uint64_t least = std::uint64_t{16} << 20, most = std::uint64_t{1} << 62;
    TIFFOpenOptionsSetMaxSingleMemAlloc(
        options.get(), static_cast<tmsize_t>(std::max(least, 4 * std::min<std::uint64_t>(file_size_, most / 4))));
    // 'm' disables memory mapping, because a file that shrinks while it is read would raise SIGBUS.
    tiff_.reset(TIFFOpenExt(file.c_str(), "rm", options.get()));
    if (!tiff_) {
      throw FormatError(fmt::format("{}: the first page cannot be read; the file is damaged or has no page{}",
                                    file.string(), complaint_.suffix()));
    }
  }

  /// Reads the headers of all pages and leaves the reader on the first one.
  VolumeInfo inspect() {
    format_ = read_format();
    require_stored_data();
    pages_ = 1;
    while (!TIFFLastDirectory(tiff_.get())) {
      next_page();
      ++pages_;
      const PageFormat other = read_format();
      if (other != format_) {
        fail("size or type",
             fmt::format("{} x {} {}, the first page has {} x {} {}", other.height, other.width, other.element_type(),
                         format_.height, format_.width, format_.element_type()),
             "keep only full-size pages of one kind (no thumbnails or pyramid levels)");
      }
      require_stored_data();
    }
    if (pages_ == 1) require_whole_imagej_stack();
    page_ = 0;
    if (!TIFFSetDirectory(tiff_.get(), 0)) fail("header", "unreadable the second time", "check the disk");
    return {{pages_, format_.height, format_.width}, format_.element_type()};
  }

  Tensor<float> read(const ReadOptions& options, std::pmr::memory_resource* memory) {
    const VolumeInfo info = inspect();
    require_budget(file_, info.extent, options.max_bytes);
    const index_t page_voxels = info.extent.y * info.extent.x;
    Tensor<float> volume({.n = 1, .c = 1, .extent = info.extent}, memory);
    for (;;) {
      float* const page = volume.data() + page_ * page_voxels;
      if (TIFFIsTiled(tiff_.get())) {
        read_tiles(page, options.max_bytes);
      } else {
        read_strips(page);
      }
      if (page_ + 1 == pages_) return volume;
      next_page();
      if (read_format() != format_) fail("size or type", "changed while reading", "do not write to the file meanwhile");
    }
  }

 private:
  [[noreturn]] void fail(std::string_view field, std::string_view found, std::string_view remedy) const {
    throw FormatError(
        fmt::format("{}: page {}: {}: {}; {}{}", file_.string(), page_, field, found, remedy, complaint_.suffix()));
  }

  void next_page() {
    complaint_.text.clear();
    ++page_;
    if (!TIFFReadDirectory(tiff_.get())) fail("header", "unreadable", "the file is damaged; write or copy it again");
  }

  template <class T>
  std::optional<T> field(std::uint32_t tag) const {
    T value{};
    if (!TIFFGetField(tiff_.get(), tag, &value)) return std::nullopt;
    return value;
  }

  PageFormat read_format() const {
    PageFormat format;
    format.width = field<std::uint32_t>(TIFFTAG_IMAGEWIDTH).value_or(0);
    format.height = field<std::uint32_t>(TIFFTAG_IMAGELENGTH).value_or(0);
    if (format.width == 0 || format.height == 0) {
      fail("size", fmt::format("{} x {}", format.height, format.width), "a page needs at least one pixel");
    }
    if (const auto depth = field<std::uint32_t>(TIFFTAG_IMAGEDEPTH).value_or(1); depth != 1) {
      fail("ImageDepth", std::to_string(depth), "store one slice per page");
    }
    const auto samples = field<std::uint16_t>(TIFFTAG_SAMPLESPERPIXEL).value_or(1);
    const auto photometric = field<std::uint16_t>(TIFFTAG_PHOTOMETRIC).value_or(PHOTOMETRIC_MINISBLACK);
    constexpr std::string_view gray = "convert the file to gray with one sample per pixel";
    if (photometric == PHOTOMETRIC_PALETTE) fail("photometric", "a colour palette", gray);
    if (photometric == PHOTOMETRIC_MINISWHITE) {
      fail("photometric", "MinIsWhite (0 is white)", "invert the values and store them as MinIsBlack");
    }
    if (samples != 1) fail("samples per pixel", fmt::format("{} (colour or alpha)", samples), gray);
    if (photometric != PHOTOMETRIC_MINISBLACK) fail("photometric", fmt::format("{} (not gray)", photometric), gray);
    format.bits = field<std::uint16_t>(TIFFTAG_BITSPERSAMPLE).value_or(1);
    format.sample_format = field<std::uint16_t>(TIFFTAG_SAMPLEFORMAT).value_or(SAMPLEFORMAT_UINT);
    const bool integer = format.sample_format == SAMPLEFORMAT_UINT || format.sample_format == SAMPLEFORMAT_INT;
    const bool floating = format.sample_format == SAMPLEFORMAT_IEEEFP;
    constexpr std::string_view types = "store 8-, 16- or 32-bit integers or 32- or 64-bit floats";
    if (!integer && !floating) {
      const bool complex =
          format.sample_format == SAMPLEFORMAT_COMPLEXIEEEFP || format.sample_format == SAMPLEFORMAT_COMPLEXINT;
      fail("sample format", fmt::format("{}{}", format.sample_format, complex ? " (complex)" : ""), types);
    }
    if (!(integer && (format.bits == 8 || format.bits == 16 || format.bits == 32)) &&
        !(floating && (format.bits == 32 || format.bits == 64))) {
      fail("bits per sample", fmt::format("{} of {}", format.bits, floating ? "float" : "integer"), types);
    }
    return format;
  }

  /// Returns the largest number of bytes that the page's codec can decode from one byte; 0 if the codec is not
  /// accepted. It bounds the size that a header may claim.
  std::uint64_t expansion() const {
    const auto codec = field<std::uint16_t>(TIFFTAG_COMPRESSION).value_or(COMPRESSION_NONE);
    if (!TIFFIsCODECConfigured(codec)) return 0;
    switch (codec) {
      case COMPRESSION_NONE:
        return 1;
      case COMPRESSION_PACKBITS:
        return 64;  // 128 bytes from two
      case COMPRESSION_ADOBE_DEFLATE:
      case COMPRESSION_DEFLATE:
        return 1032;  // 258 bytes from two bits
      case COMPRESSION_LZW:
        return 4096;  // fewer than 4096 bytes from a code of at least 9 bits
      case COMPRESSION_LZMA:
      case COMPRESSION_ZSTD:
        return largest_compression_ratio;
      default:
        return 0;
    }
  }

  /// Rejects pages that cannot fit into the file, and codecs that lose information.
  void require_stored_data() {
    const std::uint64_t ratio = expansion();
    if (ratio == 0) {
      fail("compression", fmt::format("scheme {}", field<std::uint16_t>(TIFFTAG_COMPRESSION).value_or(0)),
           "store uncompressed or with LZW, PackBits, deflate, LZMA or Zstandard");
    }
    std::uint64_t page = 0;
    if (__builtin_mul_overflow(std::uint64_t{format_.width} * format_.bytes_per_voxel(), std::uint64_t{format_.height},
                               &page) ||
        __builtin_add_overflow(least_size_, page / ratio, &least_size_) || least_size_ > file_size_) {
      fail("size",
           fmt::format("{} x {} {} and the pages before it do not fit into a file of {} bytes", format_.height,
                       format_.width, format_.element_type(), file_size_),
           "the file is truncated or damaged; write or copy it again");
    }
  }

  /// Rejects incomplete ImageJ stacks. ImageJ stores stacks beyond 4 GB as one page with a note; reading only that page
  /// would be silently wrong.
  void require_whole_imagej_stack() const {
    const char* const text = field<const char*>(TIFFTAG_IMAGEDESCRIPTION).value_or("");
    if (std::strncmp(text, "ImageJ=", 7) != 0) return;
    const char* const images = std::strstr(text, "\nimages=");
    if (images == nullptr) return;
    const long count = std::strtol(images + 8, nullptr, 10);
    if (count > 1) {
      fail("description", fmt::format("ImageJ stack of {} images behind a single page header", count),
           "save it as BigTIFF or HDF5");
    }
  }

  void read_strips(float* page) {
    const auto rows_per_strip =
        std::min(field<std::uint32_t>(TIFFTAG_ROWSPERSTRIP).value_or(format_.height), format_.height);
    if (rows_per_strip == 0) fail("rows per strip", "0", "the file is damaged");
    const std::size_t row_bytes = std::size_t{format_.width} * format_.bytes_per_voxel();
    // It is no larger than the page, whose size was checked against the file.
    const Buffer buffer(new std::byte[row_bytes * rows_per_strip]);
    for (std::uint32_t row = 0; row < format_.height; row += rows_per_strip) {
      const std::uint32_t rows = std::min(rows_per_strip, format_.height - row);
      const auto strip = TIFFComputeStrip(tiff_.get(), row, 0);
      const auto expected = static_cast<tmsize_t>(row_bytes * rows);
      const auto got = TIFFReadEncodedStrip(tiff_.get(), strip, buffer.get(), expected);
      if (got != expected) {
        fail(fmt::format("strip {}", strip),
             fmt::format("{} of {} bytes could be read", std::max<tmsize_t>(got, 0), expected),
             "the file is truncated or damaged; write or copy it again");
      }
      convert(buffer.get(), page + std::size_t{row} * format_.width, std::size_t{rows} * format_.width);
    }
  }

  void read_tiles(float* page, std::size_t max_bytes) {
    const std::uint64_t tile_width = field<std::uint32_t>(TIFFTAG_TILEWIDTH).value_or(0);
    const std::uint64_t tile_height = field<std::uint32_t>(TIFFTAG_TILELENGTH).value_or(0);
    // Tiles may extend beyond the page, so their size is checked separately.
    const std::uint64_t limit = std::max<std::uint64_t>(max_bytes, std::uint64_t{64} << 20);
    std::uint64_t bytes = 0;
    if (tile_width == 0 || tile_height == 0 || field<std::uint32_t>(TIFFTAG_TILEDEPTH).value_or(1) != 1 ||
        __builtin_mul_overflow(tile_width * tile_height, std::uint64_t{format_.bytes_per_voxel()}, &bytes) ||
        bytes > limit || bytes / expansion() > file_size_ || TIFFTileSize64(tiff_.get()) != bytes) {
      fail("tile size", fmt::format("{} x {}", tile_height, tile_width), "the file is damaged or truncated");
    }
    const Buffer buffer(new std::byte[bytes]);
    for (std::uint64_t y = 0; y < format_.height; y += tile_height) {
      for (std::uint64_t x = 0; x < format_.width; x += tile_width) {
        const auto tile =
            TIFFComputeTile(tiff_.get(), static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), 0, 0);
        const auto got = TIFFReadEncodedTile(tiff_.get(), tile, buffer.get(), static_cast<tmsize_t>(bytes));
        if (std::cmp_not_equal(got, bytes)) {
          fail(fmt::format("tile {}", tile),
               fmt::format("{} of {} bytes could be read", std::max<tmsize_t>(got, 0), bytes),
               "the file is truncated or damaged; write or copy it again");
        }
        const std::uint64_t rows = std::min<std::uint64_t>(tile_height, format_.height - y);
        const std::uint64_t columns = std::min<std::uint64_t>(tile_width, format_.width - x);
        for (std::uint64_t r = 0; r < rows; ++r) {
          convert(buffer.get() + r * tile_width * format_.bytes_per_voxel(), page + (y + r) * format_.width + x,
                  columns);
        }
      }
    }
  }

  void convert(const std::byte* source, float* target, std::size_t count) const {
    const auto as = [&]<class T>(T) {
      for (std::size_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, source + i * sizeof(T), sizeof(T));
        target[i] = static_cast<float>(value);
      }
    };
    if (format_.sample_format == SAMPLEFORMAT_IEEEFP) return format_.bits == 32 ? as(float{}) : as(double{});
    if (format_.sample_format == SAMPLEFORMAT_INT) {
      return format_.bits == 8 ? as(std::int8_t{}) : format_.bits == 16 ? as(std::int16_t{}) : as(std::int32_t{});
    }
    return format_.bits == 8 ? as(std::uint8_t{}) : format_.bits == 16 ? as(std::uint16_t{}) : as(std::uint32_t{});
  }

  const path& file_;
  std::uint64_t file_size_ = 0;
  Complaint complaint_;  // declared before the handle, which writes to it while closing
  TiffHandle tiff_;
  PageFormat format_;
  index_t page_ = 0, pages_ = 0;
  std::uint64_t least_size_ = 0;  // least number of bytes that the voxels of the pages so far take in the file
};

/// A file in memory that libtiff writes to. The disk gets the file only when it is complete.
struct MemoryFile {
  std::vector<std::byte> bytes;
  std::size_t position = 0;

  static MemoryFile& of(thandle_t handle) { return *static_cast<MemoryFile*>(handle); }
  static tmsize_t read(thandle_t handle, void* target, tmsize_t count) noexcept {
    auto& self = of(handle);
    if (self.position >= self.bytes.size()) return 0;
    const auto n = std::min(static_cast<std::size_t>(count), self.bytes.size() - self.position);
    std::memcpy(target, self.bytes.data() + self.position, n);
    self.position += n;
    return static_cast<tmsize_t>(n);
  }
  static tmsize_t write(thandle_t handle, void* source, tmsize_t count) noexcept {
    auto& self = of(handle);
    const auto n = static_cast<std::size_t>(count);
    try {
      if (self.position + n > self.bytes.size()) self.bytes.resize(self.position + n);
    } catch (const std::exception&) {
      return -1;
    }
    std::memcpy(self.bytes.data() + self.position, source, n);
    self.position += n;
    return count;
  }
  static toff_t seek(thandle_t handle, toff_t offset, int whence) noexcept {
    auto& self = of(handle);
    const toff_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? self.position : self.bytes.size();
    self.position = static_cast<std::size_t>(base + offset);
    return self.position;
  }
  static int close(thandle_t) noexcept { return 0; }
  static toff_t size(thandle_t handle) noexcept { return of(handle).bytes.size(); }
};

}  // namespace

VolumeInfo inspect_tiff(const path& file) { return Reader(file).inspect(); }

Tensor<float> read_tiff(const path& file, const ReadOptions& options, std::pmr::memory_resource* memory) {
  return Reader(file).read(options, memory);
}

void write_tiff(const path& file, const View<const float>& volume, const WriteOptions& options) {
  const Extent3 extent = volume.shape.extent;
  const bool bytes_only = options.element_type == ElementType::uint8;
  const index_t voxel_bytes = bytes_only ? 1 : 4;
  const auto width = checked_cast<std::uint32_t>(extent.x, "TIFF width");
  const auto height = checked_cast<std::uint32_t>(extent.y, "TIFF height");
  const index_t row_bytes = checked_mul(extent.x, voxel_bytes, "bytes of a TIFF row");
  const index_t strip_target = index_t{256} << 10;
  const index_t rows_per_strip = std::clamp(strip_target / row_bytes, index_t{1}, extent.y);
  const bool big = checked_mul(extent.volume(), voxel_bytes, "bytes of a TIFF volume") > 3'500'000'000;

  MemoryFile encoded;
  Complaint complaint;
  const auto fail = [&] {
    throw IoError(fmt::format("{}: encoding the TIFF failed, perhaps because memory ran out{}", file.string(),
                              complaint.suffix()));
  };
  const auto open_options = make_options(complaint);
  TiffHandle handle(TIFFClientOpenExt(file.c_str(), big ? "w8" : "w", &encoded, MemoryFile::read, MemoryFile::write,
                                      MemoryFile::seek, MemoryFile::close, MemoryFile::size, nullptr, nullptr,
                                      open_options.get()));
  if (!handle) fail();
  TIFF* const tiff = handle.get();
  std::vector<std::byte> strip(static_cast<std::size_t>(rows_per_strip * row_bytes));
  for (index_t z = 0; z < extent.z; ++z) {
    const auto set = [&](std::uint32_t tag, auto value) {
      if (!TIFFSetField(tiff, tag, value)) fail();
    };
    set(TIFFTAG_IMAGEWIDTH, width);
    set(TIFFTAG_IMAGELENGTH, height);
    set(TIFFTAG_BITSPERSAMPLE, static_cast<int>(8 * voxel_bytes));
    set(TIFFTAG_SAMPLESPERPIXEL, 1);
    set(TIFFTAG_SAMPLEFORMAT, bytes_only ? SAMPLEFORMAT_UINT : SAMPLEFORMAT_IEEEFP);
    set(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
    set(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    set(TIFFTAG_COMPRESSION, COMPRESSION_ADOBE_DEFLATE);
    if (bytes_only) set(TIFFTAG_PREDICTOR, PREDICTOR_HORIZONTAL);
    set(TIFFTAG_ROWSPERSTRIP, static_cast<std::uint32_t>(rows_per_strip));
    for (index_t y0 = 0; y0 < extent.y; y0 += rows_per_strip) {
      const index_t rows = std::min(rows_per_strip, extent.y - y0);
      std::byte* out = strip.data();
      for (index_t y = y0; y < y0 + rows; ++y) {
        for (index_t x = 0; x < extent.x; ++x, out += voxel_bytes) {
          const float value = volume(0, 0, z, y, x);
          if (bytes_only) {
            *out = std::byte{to_byte(file, value)};
          } else {
            std::memcpy(out, &value, sizeof value);
          }
        }
      }
      const auto bytes = static_cast<tmsize_t>(rows * row_bytes);
      if (TIFFWriteEncodedStrip(tiff, static_cast<std::uint32_t>(y0 / rows_per_strip), strip.data(), bytes) != bytes) {
        fail();
      }
    }
    if (!TIFFWriteDirectory(tiff)) fail();
  }
  if (!TIFFFlush(tiff)) fail();
  handle.reset();
  if (!complaint.text.empty()) fail();  // closing reports its failures only this way
  const std::span<const std::byte> part(encoded.bytes);
  write_file_atomically(file, std::span(&part, 1));
}

std::string tiff_version() {
  const std::string text = TIFFGetVersion();  // "LIBTIFF, Version 4.5.0" and a copyright line
  return text.substr(0, text.find('\n'));
}

}  // namespace convolume::nets::io::detail
