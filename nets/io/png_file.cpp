#include "nets/io/png_file.hpp"

#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include <fmt/format.h>
#include <png.h>

#include "core/files.hpp"
#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io::detail {
namespace {

/// What libpng calls back with. libpng reports errors by longjmp, so no function that has called setjmp has an object
/// with a destructor behind it.
struct Callbacks {
  const ReadableFile* file = nullptr;
  std::uint64_t at = 0;
  std::vector<std::byte>* out = nullptr;
  char message[200] = {};
  std::exception_ptr failure;

  static void on_error(png_structp png, png_const_charp text) {
    auto& self = *static_cast<Callbacks*>(png_get_error_ptr(png));
    std::snprintf(self.message, sizeof self.message, "%s", text);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void read(png_structp png, png_bytep bytes, std::size_t count) {
    auto& self = *static_cast<Callbacks*>(png_get_io_ptr(png));
    std::size_t got = 0;
    try {
      got = self.file->read_at(self.at, {reinterpret_cast<std::byte*>(bytes), count});
    } catch (...) {
      self.failure = std::current_exception();
    }
    self.at += got;
    if (got != count) png_error(png, "it ends too early");
  }
  static void write(png_structp png, png_bytep bytes, std::size_t count) {
    auto& self = *static_cast<Callbacks*>(png_get_io_ptr(png));
    const auto* const first = reinterpret_cast<const std::byte*>(bytes);
    bool done = false;
    try {
      self.out->insert(self.out->end(), first, first + count);
      done = true;
    } catch (const std::exception&) {
    }
    if (!done) png_error(png, "memory ran out");
  }
  static void flush(png_structp) {}
};

std::size_t row_bytes_of(const PngInfo& info) {
  return static_cast<std::size_t>(info.width * info.channels * info.bits / 8);
}

/// A libpng reader that has read the header.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& name) : file_(name) {
    callbacks_.file = &file_;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &callbacks_, Callbacks::on_error, Callbacks::on_warning);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
    png_set_read_fn(png_, &callbacks_, Callbacks::read);
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  PngInfo header() {
    if (!read_header()) fail();
    const auto type = png_get_color_type(png_, info_);
    const int stored = png_get_bit_depth(png_, info_);
    PngInfo found{static_cast<index_t>(png_get_image_height(png_, info_)),
                  static_cast<index_t>(png_get_image_width(png_, info_)),
                  type == PNG_COLOR_TYPE_RGB ? 3 : 1,
                  std::max(8, stored),
                  stored,
                  type == PNG_COLOR_TYPE_PALETTE,
                  {}};
    png_colorp colours = nullptr;
    int count = 0;
    if (found.palette && png_get_PLTE(png_, info_, &colours, &count) != 0) {
      for (int i = 0; i < count; ++i) {
        for (const png_byte part : {colours[i].red, colours[i].green, colours[i].blue}) {
          found.colours += static_cast<char>(part);
        }
      }
    }
    const std::string name = file_.path().string();
    if (type != PNG_COLOR_TYPE_GRAY && type != PNG_COLOR_TYPE_RGB && !found.palette) {
      fail_format(name, "colour type", "with alpha", "store gray or RGB without alpha");
    }
    if (type == PNG_COLOR_TYPE_GRAY && (stored == 2 || stored == 4)) {
      fail_format(name, "bit depth", std::to_string(stored), "store 1, 8 or 16 bits");
    }
    if (png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE) {
      fail_format(name, "interlace method", "Adam7", "store it without interlacing");
    }
    require_stored_data(found);
    return found;
  }

  /// Decodes rows [begin, begin + count).
  void rows(std::byte* pixels, std::size_t row_bytes, index_t begin, index_t count) {
    if (!read_rows(pixels, row_bytes, begin, count)) fail();
  }

 private:
  [[noreturn]] void fail() const {
    if (callbacks_.failure) std::rethrow_exception(callbacks_.failure);
    fail_format(file_.path().string(), "PNG", callbacks_.message, "the file is damaged; write or copy it again");
  }
  /// Rejects pictures that cannot fit into the file, because a header may declare any size.
  void require_stored_data(const PngInfo& info) const {
    constexpr std::uint64_t deflate_ratio = 1032;  // 258 bytes from two bits
    std::uint64_t bytes = 0;
    const auto row = static_cast<std::uint64_t>((info.width * info.channels * info.stored_bits + 7) / 8);
    if (!__builtin_mul_overflow(row, static_cast<std::uint64_t>(info.height), &bytes) &&
        bytes / deflate_ratio <= file_.size()) {
      return;
    }
    fail_format(file_.path().string(), "size",
                fmt::format("{} x {}, {} channels of {} bits do not fit into a file of {} bytes", info.height,
                            info.width, info.channels, info.stored_bits, file_.size()),
                "the file is truncated or damaged; write or copy it again");
  }
  bool read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_info(png_, info_);
    return true;
  }
  bool read_rows(std::byte* pixels, std::size_t row_bytes, index_t begin, index_t count) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    if (std::endian::native == std::endian::little && png_get_bit_depth(png_, info_) == 16) png_set_swap(png_);
    if (png_get_bit_depth(png_, info_) < 8) png_set_packing(png_);  // one pixel per byte, with the value of the file
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != row_bytes) return false;
    for (index_t y = 0; y < begin; ++y) png_read_row(png_, nullptr, nullptr);
    for (index_t y = 0; y < count; ++y) {
      png_read_row(png_, reinterpret_cast<png_bytep>(pixels + static_cast<std::size_t>(y) * row_bytes), nullptr);
    }
    return true;
  }

  ReadableFile file_;
  Callbacks callbacks_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

bool write_all(png_structp png, png_infop header, const PngInfo& info, const std::byte* pixels) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_IHDR(png, header, static_cast<png_uint_32>(info.width), static_cast<png_uint_32>(info.height), info.bits,
               info.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, header);
  if (std::endian::native == std::endian::little && info.bits == 16) png_set_swap(png);
  for (index_t y = 0; y < info.height; ++y) {
    png_write_row(png, reinterpret_cast<png_const_bytep>(pixels + static_cast<std::size_t>(y) * row_bytes_of(info)));
  }
  png_write_end(png, header);
  return true;
}

}  // namespace

PngInfo inspect_png(const std::filesystem::path& file) { return Reader(file).header(); }

std::vector<std::byte> read_png(const std::filesystem::path& file, const PngInfo& info, index_t begin, index_t rows) {
  Reader reader(file);
  if (reader.header() != info) {
    fail_format(file.string(), "size or type", "changed since the folder was read", "do not write to it meanwhile");
  }
  std::vector<std::byte> pixels(static_cast<std::size_t>(rows) * row_bytes_of(info));
  reader.rows(pixels.data(), row_bytes_of(info), begin, rows);
  return pixels;
}

std::vector<std::byte> encode_png(const std::filesystem::path& file, const PngInfo& info,
                                  std::span<const std::byte> pixels) {
  std::vector<std::byte> out;
  Callbacks callbacks;
  callbacks.out = &out;
  png_structp png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, &callbacks, Callbacks::on_error, Callbacks::on_warning);
  png_infop header = png == nullptr ? nullptr : png_create_info_struct(png);
  if (header == nullptr) {
    png_destroy_write_struct(&png, nullptr);
    throw std::bad_alloc();
  }
  png_set_write_fn(png, &callbacks, Callbacks::write, Callbacks::flush);
  const bool written = write_all(png, header, info, pixels.data());
  png_destroy_write_struct(&png, &header);
  if (!written) throw IoError(fmt::format("{}: encoding the PNG failed: {}", file.string(), callbacks.message));
  return out;
}

}  // namespace convolume::nets::io::detail
