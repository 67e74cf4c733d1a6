// Reads TIFF stacks: one page is one Z slice, or a slice of a channel of an OME-TIFF.
//
// Supported are classic TIFF and BigTIFF, both byte orders, strips and tiles, and lossless compression (none, LZW,
// PackBits, deflate, LZMA, Zstandard); booleans of one bit, unsigned and signed integers of 8 to 64 bits, and floats of
// 16 to 64 bits. MinIsWhite, colour and palette pages are rejected, because the user should choose how they become
// gray. The orientation tag is ignored, with a note: rows are read in the order in which they are stored.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/files.hpp"
#include "nets/io/half.hpp"
#include "nets/io/tiff_description.hpp"
#include "nets/io/tiff_library.hpp"
#include "nets/io/tiff_volume.hpp"

namespace convolume::nets::io::detail {
namespace {

using std::filesystem::path;

/// The properties that must be equal on all pages.
struct PageFormat {
  std::uint32_t width = 0, height = 0;
  std::uint16_t bits = 0, sample_format = 0;
  friend bool operator==(const PageFormat&, const PageFormat&) = default;

  bool is_float() const { return sample_format == SAMPLEFORMAT_IEEEFP; }
  bool is_half() const { return is_float() && bits == 16; }
  /// Returns the bytes of a row of voxels in the file. Rows of booleans fill whole bytes.
  std::size_t row_bytes(std::size_t voxels) const { return (voxels * bits + 7) / 8; }
  /// Returns the type as which voxels are read: booleans become 0 and 1, and floats of 16 bits become wider.
  VoxelType type() const {
    return voxel_type(is_float(), sample_format == SAMPLEFORMAT_INT, is_half() ? 4 : std::max(1, bits / 8));
  }
  bool converts() const { return bits == 1 || is_half(); }
  std::string element_type() const { return bits == 1 ? "bool" : is_half() ? "float16" : std::string(name_of(type())); }
  /// Makes a row of stored voxels into voxels.
  void convert(const std::byte* from, std::byte* to, std::size_t voxels) const {
    for (std::size_t i = 0; i < voxels; ++i) {
      if (bits == 1) {
        to[i] = from[i / 8] >> (7 - i % 8) & std::byte{1};
      } else {
        const float value = half_at(from + 2 * i);
        std::memcpy(to + 4 * i, &value, 4);
      }
    }
  }
};

/// Memory that is not filled with zeros, so the size that a false header claims is never touched.
using Buffer = std::unique_ptr<std::byte[]>;

/// A libtiff handle that stands on one of the pages.
class TiffReader {
 public:
  explicit TiffReader(const path& file) : file_(file) {
    std::error_code error;
    const auto size = std::filesystem::file_size(file, error);
    if (error) throw IoError(fmt::format("{}: reading the size failed: {}", file.string(), error.message()));
    file_size_ = size;
    const auto options = make_tiff_options(complaint_);
    // libtiff's own allocations (directories, raw strips) are limited by the file's size, not by what the header
    // claims.
    constexpr std::uint64_t least = std::uint64_t{16} << 20, most = std::uint64_t{1} << 62;
    TIFFOpenOptionsSetMaxSingleMemAlloc(
        options.get(), static_cast<tmsize_t>(std::max(least, 4 * std::min<std::uint64_t>(file_size_, most / 4))));
    // 'm' disables memory mapping, because a file that shrinks while it is read would raise SIGBUS. 'D' delays the
    // offsets of strips until a page's voxels are read.
    tiff_.reset(TIFFOpenExt(file.c_str(), "rmD", options.get()));
    if (!tiff_) {
      throw FormatError(fmt::format("{}: the first page cannot be read; the file is damaged or has no page{}",
                                    file.string(), complaint_.suffix()));
    }
  }

  /// The pages of a file: their common format, and where their directories lie.
  struct Pages {
    PageFormat format;
    std::vector<toff_t> directories;
    index_t chunk_rows = 1, chunk_columns = 1;  // of the first page's strips or tiles
    std::uint16_t compression = COMPRESSION_NONE;
    std::optional<Spacing> spacing;
    TiffDescription description;
    /// Where the voxels of ImageJ's stacks beyond 4 GiB begin: they lie behind each other, with one directory. 0: each
    /// page has a directory.
    std::uint64_t behind = 0;
    std::vector<std::string> notes;

    index_t channels() const { return description.pages.empty() ? 1 : description.channels; }
    index_t slices() const {
      if (!description.pages.empty()) return description.slices;
      return behind > 0 ? description.images : static_cast<index_t>(directories.size());
    }
    std::size_t page(index_t channel, index_t z) const {
      const auto number = static_cast<std::size_t>(channel * slices() + z);
      return description.pages.empty() ? number : description.pages[number];
    }
  };

  /// Reads the headers of all pages. `alone` is that of open_tiff().
  Pages inspect(bool alone) {
    Pages pages;
    format_ = read_format();
    require_stored_data();
    pages.format = format_;
    pages.directories.push_back(TIFFCurrentDirOffset(tiff_.get()));
    pages.compression = field<std::uint16_t>(TIFFTAG_COMPRESSION).value_or(COMPRESSION_NONE);
    if (TIFFIsTiled(tiff_.get())) {
      pages.chunk_rows = field<std::uint32_t>(TIFFTAG_TILELENGTH).value_or(1);
      pages.chunk_columns = field<std::uint32_t>(TIFFTAG_TILEWIDTH).value_or(1);
    } else {
      pages.chunk_rows = std::min(field<std::uint32_t>(TIFFTAG_ROWSPERSTRIP).value_or(format_.height), format_.height);
      pages.chunk_columns = format_.width;
    }
    const std::string description = field<const char*>(TIFFTAG_IMAGEDESCRIPTION).value_or("");
    const double per_x = field<float>(TIFFTAG_XRESOLUTION).value_or(0);
    const double per_y = field<float>(TIFFTAG_YRESOLUTION).value_or(0);
    const auto orientation = field<std::uint16_t>(TIFFTAG_ORIENTATION).value_or(ORIENTATION_TOPLEFT);
    if (orientation != ORIENTATION_TOPLEFT) {
      pages.notes.push_back(
          fmt::format("the orientation tag is {} and is ignored: rows are read in the order in which they are stored",
                      orientation));
    }
    const std::uint64_t first_voxels = contiguous_voxels();
    while (!TIFFLastDirectory(tiff_.get())) {
      next_page();
      const PageFormat other = read_format();
      if (other != format_) {
        fail("size or type",
             fmt::format("{} x {} {}, the first page has {} x {} {}", other.height, other.width, other.element_type(),
                         format_.height, format_.width, format_.element_type()),
             "keep only full-size pages of one kind (no thumbnails or pyramid levels)");
      }
      require_stored_data();
      pages.directories.push_back(TIFFCurrentDirOffset(tiff_.get()));
    }
    if (alone || description.starts_with("ImageJ="))
      pages.description = parse_tiff_description(file_.string(), description, pages.directories.size());
    pages.notes.insert(pages.notes.end(), pages.description.notes.begin(), pages.description.notes.end());
    pages.spacing = spacing(pages.description, per_y, per_x);
    if (pages.directories.size() == 1 && pages.description.images > 1) find_pages_behind(pages, first_voxels);
    return pages;
  }

  /// Reads rows and columns of a page into [y][x] without gaps.
  void read(std::size_t page, const Pages& pages, const VoxelBox& box, std::byte* voxels) {
    complaint_.text.clear();
    page_ = static_cast<index_t>(page);
    format_ = pages.format;
    if (pages.behind > 0) return read_behind(pages.behind, box, voxels);
    if (!TIFFSetSubDirectory(tiff_.get(), pages.directories[page])) {
      fail("header", "unreadable the second time", "check the disk");
    }
    if (read_format() != format_) fail("size or type", "changed while reading", "do not write to the file meanwhile");
    if (expansion() == 0) fail("compression", "changed while reading", "do not write to the file meanwhile");
    const VoxelBox plane{{0, box.begin.y, box.begin.x}, {1, box.extent.y, box.extent.x}};
    if (TIFFIsTiled(tiff_.get())) {
      read_tiles(plane, voxels);
    } else {
      read_strips(plane, voxels);
    }
    // libtiff guesses offsets that it cannot read, and goes on.
    if (!complaint_.text.empty()) fail("strips", "their offsets cannot be read", "the file is truncated or damaged");
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
    if (const auto kind =
            field<std::uint32_t>(TIFFTAG_SUBFILETYPE).value_or(0) & (FILETYPE_REDUCEDIMAGE | FILETYPE_MASK);
        kind != 0) {
      fail("subfile type", (kind & FILETYPE_MASK) != 0 ? "a mask of another page" : "a smaller copy of another page",
           "keep only full-size pages of one kind (no thumbnails or pyramid levels)");
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
    constexpr std::string_view types = "store booleans, integers of 8 to 64 bits or floats of 16 to 64 bits";
    if (!integer && !floating) {
      const bool complex =
          format.sample_format == SAMPLEFORMAT_COMPLEXIEEEFP || format.sample_format == SAMPLEFORMAT_COMPLEXINT;
      fail("sample format", fmt::format("{}{}", format.sample_format, complex ? " (complex)" : ""), types);
    }
    const bool whole = format.bits == 16 || format.bits == 32 || format.bits == 64;
    if (!(integer && (whole || format.bits == 8 || format.bits == 1)) && !(floating && whole)) {
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
    if (__builtin_mul_overflow(std::uint64_t{format_.row_bytes(format_.width)}, std::uint64_t{format_.height}, &page) ||
        __builtin_add_overflow(least_size_, page / ratio, &least_size_) || least_size_ > file_size_) {
      fail("size",
           fmt::format("{} x {} {} and the pages before it do not fit into a file of {} bytes", format_.height,
                       format_.width, format_.element_type(), file_size_),
           "the file is truncated or damaged; write or copy it again");
    }
  }

  /// Returns where the voxels of the page begin if they lie behind each other as they are in memory, or 0.
  std::uint64_t contiguous_voxels() const {
    if (field<std::uint16_t>(TIFFTAG_COMPRESSION).value_or(COMPRESSION_NONE) != COMPRESSION_NONE) return 0;
    if (TIFFIsTiled(tiff_.get()) || format_.converts()) return 0;
    const std::uint64_t* offsets = nullptr;
    if (!TIFFGetField(tiff_.get(), TIFFTAG_STRIPOFFSETS, &offsets) || offsets == nullptr) return 0;
    std::uint64_t at = offsets[0];
    for (std::uint32_t strip = 0; strip < TIFFNumberOfStrips(tiff_.get()); ++strip) {
      if (offsets[strip] != at) return 0;
      at += TIFFRawStripSize64(tiff_.get(), strip);
    }
    return offsets[0];
  }

  /// ImageJ stores stacks beyond 4 GB as one page, with a note: all voxels lie behind each other.
  void find_pages_behind(Pages& pages, std::uint64_t first_voxels) const {
    const auto images = static_cast<std::uint64_t>(pages.description.images);
    const std::uint64_t page = format_.row_bytes(format_.width) * std::uint64_t{format_.height};
    std::uint64_t bytes = 0;
    const std::uint64_t directory = pages.directories.front();
    const bool fits = first_voxels > 0 && !__builtin_mul_overflow(images, page, &bytes) && first_voxels <= file_size_ &&
                      bytes <= file_size_ - first_voxels &&
                      (directory < first_voxels || directory >= first_voxels + bytes);
    if (!fits) {
      fail("description",
           fmt::format("ImageJ stack of {} images of {} bytes behind a single page header, in a file of {} bytes",
                       images, page, file_size_),
           first_voxels > 0 ? "the file is truncated; write or copy it again" : "save it as BigTIFF or HDF5");
    }
    pages.behind = first_voxels;
  }

  void read_behind(std::uint64_t first, const VoxelBox& box, std::byte* voxels) const {
    const std::size_t bytes = size_of(format_.type()), row = static_cast<std::size_t>(box.extent.x) * bytes;
    const ReadableFile stored(file_);
    for (index_t y = 0; y < box.extent.y; ++y) {
      const auto from =
          static_cast<std::uint64_t>((page_ * format_.height + box.begin.y + y) * format_.width + box.begin.x);
      std::byte* const to = voxels + static_cast<std::size_t>(y) * row;
      if (stored.read_at(first + from * bytes, {to, row}) != row) fail("voxels", "too few", "the file is truncated");
      if (TIFFIsByteSwapped(tiff_.get())) swap_bytes(to, format_.type(), static_cast<std::size_t>(box.extent.x));
    }
  }

  /// Returns the spacing that an OME-TIFF or ImageJ stored. ImageJ has pixels per unit along X and Y, and the distance
  /// of slices.
  static std::optional<Spacing> spacing(const TiffDescription& description, double per_y, double per_x) {
    if (!description.imagej) return description.spacing;
    if (!(description.slice_distance > 0) || !(per_x > 0) || !(per_y > 0)) return std::nullopt;
    return Spacing{{description.slice_distance, 1 / per_y, 1 / per_x}, description.unit};
  }

  void read_strips(const VoxelBox& box, std::byte* voxels) {
    const index_t rows_per_strip =
        std::min(field<std::uint32_t>(TIFFTAG_ROWSPERSTRIP).value_or(format_.height), format_.height);
    if (rows_per_strip == 0) fail("rows per strip", "0", "the file is damaged");
    const std::size_t row_bytes = format_.row_bytes(format_.width);
    const index_t width = format_.width, height = format_.height;
    Buffer buffer;
    for (index_t row = box.begin.y / rows_per_strip * rows_per_strip; row < box.end().y; row += rows_per_strip) {
      const index_t rows = std::min(rows_per_strip, height - row);
      const VoxelBox strip{{0, row, 0}, {1, rows, width}};
      const std::size_t bytes = row_bytes * static_cast<std::size_t>(rows);
      // A strip whose rows are all wanted, from end to end, is decoded where it belongs.
      const bool direct = !format_.converts() && intersection(strip, box) == strip;
      // The buffer is no larger than the page, whose size was checked against the file.
      if (!direct && !buffer) buffer.reset(new std::byte[row_bytes * static_cast<std::size_t>(rows_per_strip)]);
      std::byte* const target =
          direct ? voxels + static_cast<std::size_t>(row - box.begin.y) * row_bytes : buffer.get();
      const auto number = TIFFComputeStrip(tiff_.get(), static_cast<std::uint32_t>(row), 0);
      const auto got = TIFFReadEncodedStrip(tiff_.get(), number, target, static_cast<tmsize_t>(bytes));
      if (std::cmp_not_equal(got, bytes)) {
        fail(fmt::format("strip {}", number),
             fmt::format("{} of {} bytes could be read", std::max<tmsize_t>(got, 0), bytes),
             "the file is truncated or damaged; write or copy it again");
      }
      if (!direct) copy_rows(buffer.get(), row_bytes, strip, voxels, box);
    }
  }

  /// Copies what a strip or a tile and the box have in common.
  void copy_rows(const std::byte* stored, std::size_t row_bytes, const VoxelBox& stored_box, std::byte* voxels,
                 const VoxelBox& box) const {
    const std::size_t bytes = size_of(format_.type());
    if (!format_.converts()) return copy_overlap(stored, stored_box, voxels, box, bytes);
    const auto width = static_cast<std::size_t>(stored_box.extent.x);
    std::vector<std::byte> row(width * bytes);
    const VoxelBox both = intersection(stored_box, box);
    for (index_t y = both.begin.y; y < both.end().y; ++y) {
      format_.convert(stored + static_cast<std::size_t>(y - stored_box.begin.y) * row_bytes, row.data(), width);
      copy_overlap(row.data(), {{0, y, stored_box.begin.x}, {1, 1, stored_box.extent.x}}, voxels, box, bytes);
    }
  }

  void read_tiles(const VoxelBox& box, std::byte* voxels) {
    const std::uint64_t tile_width = field<std::uint32_t>(TIFFTAG_TILEWIDTH).value_or(0);
    const std::uint64_t tile_height = field<std::uint32_t>(TIFFTAG_TILELENGTH).value_or(0);
    // Tiles may extend beyond the page, so their size is checked separately.
    const std::uint64_t page_bytes = format_.row_bytes(format_.width) * std::uint64_t{format_.height};
    const std::uint64_t limit = std::max<std::uint64_t>(4 * page_bytes, std::uint64_t{64} << 20);
    std::uint64_t bytes = 0;
    if (tile_width == 0 || tile_height == 0 || field<std::uint32_t>(TIFFTAG_TILEDEPTH).value_or(1) != 1 ||
        __builtin_mul_overflow(std::uint64_t{format_.row_bytes(tile_width)}, tile_height, &bytes) || bytes > limit ||
        bytes / expansion() > file_size_ || TIFFTileSize64(tiff_.get()) != bytes) {
      fail("tile size", fmt::format("{} x {}", tile_height, tile_width), "the file is damaged or truncated");
    }
    const auto high = static_cast<index_t>(tile_height), wide = static_cast<index_t>(tile_width);
    const Buffer buffer(new std::byte[bytes]);
    for (index_t y = box.begin.y / high * high; y < box.end().y; y += high) {
      for (index_t x = box.begin.x / wide * wide; x < box.end().x; x += wide) {
        const auto tile =
            TIFFComputeTile(tiff_.get(), static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), 0, 0);
        const auto got = TIFFReadEncodedTile(tiff_.get(), tile, buffer.get(), static_cast<tmsize_t>(bytes));
        if (std::cmp_not_equal(got, bytes)) {
          fail(fmt::format("tile {}", tile),
               fmt::format("{} of {} bytes could be read", std::max<tmsize_t>(got, 0), bytes),
               "the file is truncated or damaged; write or copy it again");
        }
        copy_rows(buffer.get(), format_.row_bytes(tile_width), {{0, y, x}, {1, high, wide}}, voxels, box);
      }
    }
  }

  path file_;
  std::uint64_t file_size_ = 0;
  Complaint complaint_;  // declared before the handle, which writes to it while closing
  TiffHandle tiff_;
  PageFormat format_;
  index_t page_ = 0;
  std::uint64_t least_size_ = 0;  // least number of bytes that the voxels of the pages so far take in the file
};

std::string_view name_of_codec(std::uint16_t codec) {
  switch (codec) {
    case COMPRESSION_NONE:
      return "not compressed";
    case COMPRESSION_PACKBITS:
      return "PackBits";
    case COMPRESSION_LZW:
      return "LZW";
    case COMPRESSION_LZMA:
      return "LZMA";
    case COMPRESSION_ZSTD:
      return "Zstandard";
    default:
      return "deflate";
  }
}

class TiffSource final : public VolumeSource {
 public:
  TiffSource(const VolumePath& path, bool alone) : VolumeSource(path) {
    auto reader = std::make_unique<TiffReader>(path.file);
    pages_ = reader->inspect(alone);
    info_.format = "TIFF";
    info_.channels = pages_.channels();
    info_.extent = {pages_.slices(), pages_.format.height, pages_.format.width};
    info_.type = pages_.format.type();
    info_.element_type = pages_.format.element_type();
    info_.notes = pages_.notes;
    info_.spacing = pages_.spacing;
    info_.chunk = {1, pages_.chunk_rows, pages_.chunk_columns};
    std::error_code error;
    info_.stored_bytes = std::filesystem::file_size(path.file, error);
    info_.details = name_of_codec(pages_.compression);
    check_extent(path.text(), info_);
    idle_.push_back(std::move(reader));
  }

 private:
  void do_read(ChannelRange channels, const VoxelBox& box, std::byte* voxels) const override {
    // libtiff's handles serve one thread at a time.
    auto reader = take();
    const auto plane = static_cast<std::size_t>(box.extent.y * box.extent.x) * size_of(info_.type);
    for (index_t c = 0; c < channels.count; ++c) {
      for (index_t z = 0; z < box.extent.z; ++z, voxels += plane) {
        reader->read(pages_.page(channels.begin + c, box.begin.z + z), pages_, box, voxels);
      }
    }
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(reader));
  }

  std::unique_ptr<TiffReader> take() const {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto reader = std::move(idle_.back());
        idle_.pop_back();
        return reader;
      }
    }
    return std::make_unique<TiffReader>(path().file);
  }

  TiffReader::Pages pages_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<TiffReader>> idle_;
};

}  // namespace

std::unique_ptr<VolumeSource> open_tiff(const VolumePath& path, bool alone) {
  return std::make_unique<TiffSource>(path, alone);
}

}  // namespace convolume::nets::io::detail
