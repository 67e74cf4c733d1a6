#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "io_testing.hpp"
#include <tiffio.h>

#include "nets/io/volume.hpp"
#include "nets/io/volume_source.hpp"

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::io;
using namespace convolume::nets::testing;

namespace {

constexpr std::uint32_t width = 37, height = 21, pages = 3;

struct Recipe {
  const char* mode = "w";
  std::uint16_t bits = 8, sample_format = SAMPLEFORMAT_UINT, compression = COMPRESSION_NONE;
  bool tiled = false;
  std::uint16_t samples = 1, photometric = PHOTOMETRIC_MINISBLACK, predictor = PREDICTOR_NONE;
  std::uint32_t rows_per_strip = 8;
  std::function<void(TIFF*, std::uint32_t)> adjust = [](TIFF*, std::uint32_t) {};
};

template <class T>
T value_at(std::uint32_t z, std::uint32_t y, std::uint32_t x) {
  const auto i = static_cast<std::int64_t>((z * height + y) * width + x);
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(i) * T(0.25) - 100;
  if constexpr (std::is_signed_v<T>) return static_cast<T>(i % 200 - 100);
  return static_cast<T>(i * 7);
}

/// Writes a file with libtiff itself, so that the reader is not tested only with files from our own writer.
template <class T>
void make_tiff(const std::filesystem::path& file, const Recipe& recipe) {
  TIFF* const tiff = TIFFOpen(file.c_str(), recipe.mode);
  REQUIRE(tiff != nullptr);
  for (std::uint32_t z = 0; z < pages; ++z) {
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, width);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, height);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, recipe.bits);
    TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, recipe.sample_format);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, recipe.samples);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, recipe.photometric);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, recipe.compression);
    if (recipe.predictor != PREDICTOR_NONE) TIFFSetField(tiff, TIFFTAG_PREDICTOR, recipe.predictor);
    if (recipe.tiled) {
      TIFFSetField(tiff, TIFFTAG_TILEWIDTH, 16u);
      TIFFSetField(tiff, TIFFTAG_TILELENGTH, 16u);
    } else {
      TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, recipe.rows_per_strip);
    }
    recipe.adjust(tiff, z);
    if (recipe.tiled) {
      for (std::uint32_t y = 0; y < height; y += 16) {
        for (std::uint32_t x = 0; x < width; x += 16) {
          std::vector<T> tile;
          for (std::uint32_t i = 0; i < 256; ++i) tile.push_back(value_at<T>(z, y + i / 16, x + i % 16));
          REQUIRE(TIFFWriteTile(tiff, tile.data(), x, y, 0, 0) > 0);
        }
      }
    } else {
      for (std::uint32_t y = 0; y < height; ++y) {
        std::vector<T> row;
        for (std::uint32_t x = 0; x < width * recipe.samples; ++x) row.push_back(value_at<T>(z, y, x));
        REQUIRE(TIFFWriteScanline(tiff, row.data(), y, 0) > 0);
      }
    }
    REQUIRE(TIFFWriteDirectory(tiff));
  }
  TIFFClose(tiff);
}

/// The byte of a tile's row of booleans in which a column lies.
std::uint8_t tile_byte(std::uint32_t z, std::uint32_t y, std::uint32_t x) {
  // Tiles have 16 x 16 pixels in two bytes per row, and make_tiff() gives libtiff a tile's bytes one after the other.
  const std::uint32_t byte = (y % 16) * 2 + x % 16 / 8;
  return value_at<std::uint8_t>(z, y / 16 * 16 + byte / 16, x / 16 * 16 + byte % 16);
}

template <class T>
void check_read(const std::filesystem::path& file, const char* type) {
  const auto info = inspect_volume(file);
  CHECK(info.extent == Extent3{pages, height, width});
  CHECK(info.element_type == type);
  const auto volume = read_volume(file);
  REQUIRE(volume.shape() == Shape5{1, 1, {pages, height, width}});
  bool same = true;
  for (std::uint32_t z = 0; z < pages; ++z) {
    for (std::uint32_t y = 0; y < height; ++y) {
      for (std::uint32_t x = 0; x < width; ++x) {
        same = same && volume.view()(0, 0, z, y, x) == static_cast<float>(value_at<T>(z, y, x));
      }
    }
  }
  CHECK(same);
}

template <class T>
void check_everywhere(const char* type, std::uint16_t sample_format) {
  const Directory directory;
  const auto file = directory / "stack.tif";
  constexpr auto bits = static_cast<std::uint16_t>(8 * sizeof(T));
  const auto predictor = sample_format == SAMPLEFORMAT_IEEEFP ? PREDICTOR_FLOATINGPOINT : PREDICTOR_HORIZONTAL;
  for (const char* mode : {"wl", "wb", "wl8", "wb8"}) {
    for (const bool tiled : {false, true}) {
      for (const int compression : {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_PACKBITS, COMPRESSION_ADOBE_DEFLATE,
                                    COMPRESSION_LZMA, COMPRESSION_ZSTD}) {
        if (!TIFFIsCODECConfigured(static_cast<std::uint16_t>(compression))) continue;
        CAPTURE(type, mode, tiled, compression);
        Recipe recipe{mode, bits, sample_format, static_cast<std::uint16_t>(compression), tiled};
        // libtiff 4.5 writes big-endian files with the floating-point predictor in a form that it cannot read back.
        const bool unreadable = predictor == PREDICTOR_FLOATINGPOINT && mode[1] == 'b';
        if (compression == COMPRESSION_LZW && !unreadable) recipe.predictor = static_cast<std::uint16_t>(predictor);
        make_tiff<T>(file, recipe);
        check_read<T>(file, type);
      }
    }
  }
}

/// Returns the message of the FormatError. Nothing may reach the standard error stream.
std::string tiff_refusal(const Directory& directory, const std::filesystem::path& file,
                         const ReadOptions& options = {}) {
  StandardError printed(directory / "stderr");
  const auto message = message_of<FormatError>([&] { read_volume(file, options); });
  CHECK(printed.text().empty());
  CHECK(contains(message, file.string()));
  return message;
}

}  // namespace

TEST_CASE("TIFF stacks of every type, byte order, layout and lossless compression are read", "[io][tiff]") {
  check_everywhere<std::uint8_t>("uint8", SAMPLEFORMAT_UINT);
  check_everywhere<std::int8_t>("int8", SAMPLEFORMAT_INT);
  check_everywhere<std::uint16_t>("uint16", SAMPLEFORMAT_UINT);
  check_everywhere<std::int16_t>("int16", SAMPLEFORMAT_INT);
  check_everywhere<std::uint32_t>("uint32", SAMPLEFORMAT_UINT);
  check_everywhere<std::int32_t>("int32", SAMPLEFORMAT_INT);
  check_everywhere<float>("float32", SAMPLEFORMAT_IEEEFP);
  check_everywhere<double>("float64", SAMPLEFORMAT_IEEEFP);
}

TEST_CASE("TIFF pages that are no gray volume are refused by name", "[io][tiff]") {
  const Directory directory;
  const auto file = directory / "bad.tif";
  const auto message_for = [&](const Recipe& recipe) {
    make_tiff<std::uint8_t>(file, recipe);
    return tiff_refusal(directory, file);
  };
  Recipe recipe;
  SECTION("colour") {
    recipe.samples = 3;
    recipe.photometric = PHOTOMETRIC_RGB;
    const auto message = message_for(recipe);
    CHECK(contains(message, "page 0: samples per pixel: 3"));
    CHECK(contains(message, "convert the file to gray"));
  }
  SECTION("two gray samples") {
    recipe.samples = 2;
    CHECK(contains(message_for(recipe), "samples per pixel: 2"));
  }
  SECTION("palette") {
    recipe.photometric = PHOTOMETRIC_PALETTE;
    recipe.adjust = [](TIFF* tiff, std::uint32_t) {
      static std::array<std::uint16_t, 256> map{};
      TIFFSetField(tiff, TIFFTAG_COLORMAP, map.data(), map.data(), map.data());
    };
    CHECK(contains(message_for(recipe), "colour palette"));
  }
  SECTION("0 is white") {
    recipe.photometric = PHOTOMETRIC_MINISWHITE;
    CHECK(contains(message_for(recipe), "MinIsWhite"));
  }
  SECTION("unknown photometric") {
    recipe.photometric = PHOTOMETRIC_MASK;
    CHECK(contains(message_for(recipe), "photometric: 4"));
  }
  SECTION("four bits") {
    recipe.bits = 4;
    CHECK(contains(message_for(recipe), "bits per sample: 4"));
  }
  SECTION("floats of eight bits") {
    recipe.sample_format = SAMPLEFORMAT_IEEEFP;
    CHECK(contains(message_for(recipe), "bits per sample: 8 of float"));
  }
  SECTION("complex") {
    recipe.sample_format = SAMPLEFORMAT_COMPLEXIEEEFP;
    recipe.bits = 64;
    make_tiff<double>(file, recipe);
    CHECK(contains(tiff_refusal(directory, file), "complex"));
  }
  SECTION("lossy compression") {
    recipe.compression = COMPRESSION_JPEG;
    if (TIFFIsCODECConfigured(COMPRESSION_JPEG)) CHECK(contains(message_for(recipe), "compression: scheme 7"));
  }
  SECTION("several slices in one page") {
    recipe.adjust = [](TIFF* tiff, std::uint32_t) { TIFFSetField(tiff, TIFFTAG_IMAGEDEPTH, 2u); };
    StandardError quiet(directory / "stderr0");
    make_tiff<std::uint8_t>(file, recipe);
    quiet.text();
    CHECK(contains(tiff_refusal(directory, file), "ImageDepth: 2"));
  }
  SECTION("a page of another size") {
    recipe.adjust = [](TIFF* tiff, std::uint32_t z) {
      if (z == 2) TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, width - 1);
    };
    const auto message = message_for(recipe);
    CHECK(contains(message, "page 2: size or type: 21 x 36 uint8, the first page has 21 x 37 uint8"));
  }
  SECTION("a page of another type") {
    recipe.adjust = [](TIFF* tiff, std::uint32_t z) {
      if (z == 1) TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_INT);
    };
    CHECK(contains(message_for(recipe), "page 1: size or type: 21 x 37 int8"));
  }
}

TEST_CASE("files that are no TIFF volume are refused", "[io][tiff]") {
  const Directory directory;
  const auto file = directory / "file.tif";
  CHECK(contains(message_of<IoError>([&] { read_volume(file); }), "No such file"));
  CHECK(contains(message_of<FormatError>([&] { inspect_volume(directory / ""); }), "a folder"));
  CHECK(contains(message_of<IoError>([&] { read_volume("/dev/zero"); }), "not a regular file"));
  write_bytes(file, "");
  CHECK(contains(tiff_refusal(directory, file), "empty"));
  write_bytes(file, "hello, world, this is text");
  CHECK(contains(tiff_refusal(directory, file), "TIFF header"));
  using namespace std::string_view_literals;
  write_bytes(file, "II*\0\0\0\0\0"sv);  // no first page
  CHECK(contains(tiff_refusal(directory, file), "first page cannot be read"));
  write_bytes(file, "II*\0\x08\0\0\0\0\0\0\0\0\0"sv);  // a page without entries
  tiff_refusal(directory, file);
  write_bytes(directory / "file.nii", "neither of them"sv);
  const auto message = tiff_refusal(directory, directory / "file.nii");
  for (const char* format : {"slices: ", "Zarr: ", "TIFF: ", "NIfTI: ", "HDF5: "}) CHECK(contains(message, format));
}

TEST_CASE("a truncated TIFF is refused wherever it ends", "[io][tiff]") {
  const Directory directory;
  const auto file = directory / "cut.tif";
  for (const int compression : {COMPRESSION_NONE, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_LZW}) {
    for (const bool tiled : {false, true}) {
      Recipe recipe;
      recipe.compression = static_cast<std::uint16_t>(compression);
      recipe.tiled = tiled;
      make_tiff<std::uint8_t>(file, recipe);
      const std::string whole = read_bytes(file);
      for (std::size_t length = 1; length < whole.size(); length += 13) {
        CAPTURE(compression, tiled, length, whole.size());
        write_bytes(file, std::string_view(whole).substr(0, length));
        tiff_refusal(directory, file);
      }
    }
  }
}

TEST_CASE("a damaged TIFF never crashes or over-allocates", "[io][tiff]") {
  const Directory directory;
  const auto file = directory / "flipped.tif";
  const ReadOptions small{.max_bytes = std::size_t{64} << 20};
  Recipe recipe;
  recipe.compression = COMPRESSION_ADOBE_DEFLATE;
  for (const bool tiled : {false, true}) {
    recipe.tiled = tiled;
    make_tiff<std::uint8_t>(file, recipe);
    const std::string whole = read_bytes(file);
    StandardError printed(directory / "stderr");
    for (std::size_t bit = 0; bit < 8 * whole.size(); bit += 11) {
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      write_bytes(file, damaged);
      try {
        read_volume(file, small);  // a flipped bit in a pixel is no error
      } catch (const FormatError&) {
      }
    }
    CHECK(printed.text().empty());
  }
}

TEST_CASE("sizes in a TIFF header are checked before memory is taken", "[io][tiff]") {
  const Directory directory;
  const auto file = directory / "huge.tif";
  for (const int compression : {COMPRESSION_NONE, COMPRESSION_ADOBE_DEFLATE}) {
    TIFF* const tiff = TIFFOpen(file.c_str(), "w");
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, 2000000000u);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 2000000000u);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, 1);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, compression);
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, 2000000000u);
    std::array<std::uint8_t, 64> data{};
    TIFFWriteRawStrip(tiff, 0, data.data(), data.size());
    TIFFClose(tiff);
    const auto message = tiff_refusal(directory, file);
    CAPTURE(message);
    CHECK((contains(message, "do not fit into a file of") || contains(message, "libtiff")));
  }
  make_tiff<std::uint8_t>(file, {});
  const auto message = tiff_refusal(directory, file, {.max_bytes = 4 * width * height * pages - 1});
  CHECK(contains(message, "3 x 21 x 37 voxels take 9324 bytes"));
  CHECK(contains(message, "max_bytes"));
  CHECK_NOTHROW(read_volume(file, {.max_bytes = 4 * width * height * pages}));
}

TEST_CASE("values that are not finite are refused with their place, or read on request", "[io][tiff]") {
  const Directory directory;
  const auto file = directory / "nan.tif";
  auto volume = ramp({1, 1, {2, 3, 5}});
  volume.view()(0, 0, 1, 2, 3) = std::numeric_limits<float>::quiet_NaN();
  write_volume(file, volume);
  CHECK(contains(tiff_refusal(directory, file), "voxel (z 1, y 2, x 3) is nan"));
  CHECK(std::isnan(read_volume(file, {.require_finite = false}).view()(0, 0, 1, 2, 3)));
}

TEST_CASE("a double beyond the range of float is refused", "[io][tiff]") {
  const Directory directory;
  const auto file = directory / "large.tif";
  TIFF* const tiff = TIFFOpen(file.c_str(), "w");
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, 2u);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 1u);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 64);
  TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_IEEEFP);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
  std::array<double, 2> row{1.0, 1e300};
  TIFFWriteScanline(tiff, row.data(), 0, 0);
  TIFFClose(tiff);
  CHECK(contains(tiff_refusal(directory, file), "x 1) is inf as float"));
}

TEST_CASE("booleans and floats of 16 bits are read, in strips and tiles of all forms", "[io][tiff]") {
  const Directory directory;
  const auto file = directory / "a.tif";
  for (const char* mode : {"wl", "wb"}) {
    for (const bool tiled : {false, true}) {
      for (const int compression : {COMPRESSION_NONE, COMPRESSION_ADOBE_DEFLATE}) {
        CAPTURE(mode, tiled, compression);
        // 0x3c00 is 1, and the fraction counts in 1/1024. 7 i stays below 1024 for the first 146 voxels of each row.
        Recipe half{mode, 16, SAMPLEFORMAT_IEEEFP, static_cast<std::uint16_t>(compression), tiled};
        make_tiff<std::uint16_t>(file, half);
        CHECK(inspect_volume(file).element_type == "float16");
        CHECK(inspect_volume(file).type == VoxelType::float32);
        const auto voxels = read_volume(file);
        bool same = true;
        for (index_t i = 0; i < voxels.elements(); ++i) {
          const auto bits = static_cast<std::uint16_t>(7 * i);
          const int exponent = bits >> 10 & 31;
          const double fraction = bits & 1023;
          const double value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
          same = same && voxels.data()[i] == static_cast<float>((bits & 0x8000) != 0 ? -value : value);
        }
        CHECK(same);
        // libtiff packs eight booleans into a byte, the first one highest.
        Recipe boolean{mode, 1, SAMPLEFORMAT_UINT, static_cast<std::uint16_t>(compression), tiled};
        make_tiff<std::uint8_t>(file, boolean);
        CHECK(inspect_volume(file).element_type == "bool");
        CHECK(inspect_volume(file).type == VoxelType::uint8);
        const auto source = open_volume({file, ""});
        std::vector<std::byte> box(2u * 5 * 9);
        source->read({0, 1}, {{1, 13, 3}, {2, 5, 9}}, box);
        for (std::uint32_t z = 0; z < 2; ++z) {
          for (std::uint32_t y = 0; y < 5; ++y) {
            for (std::uint32_t x = 0; x < 9; ++x) {
              const std::uint32_t column = 3 + x, row = 13 + y;
              // A tile's rows have two bytes, and a page's row as many as its pixels need.
              const std::uint8_t byte =
                  tiled ? tile_byte(1 + z, row, column) : value_at<std::uint8_t>(1 + z, row, column / 8);
              CHECK(static_cast<int>(box[(z * 5 + y) * 9 + x]) == (byte >> (7 - column % 8) & 1));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("integers of 64 bits are read", "[io][tiff]") {
  check_everywhere<std::uint64_t>("uint64", SAMPLEFORMAT_UINT);
  check_everywhere<std::int64_t>("int64", SAMPLEFORMAT_INT);
}

TEST_CASE("an ImageJ stack behind one page header is read whole", "[io][tiff]") {
  const Directory directory;
  const auto file = directory / "imagej.tif";
  const std::string text = "ImageJ=1.53t\nimages=3\nslices=3\n";
  for (const bool big : {false, true}) {
    const auto number = [&](std::uint32_t value, int bytes) {
      std::string digits;
      for (int i = 0; i < bytes; ++i) digits += static_cast<char>(value >> 8 * (big ? bytes - 1 - i : i) & 255);
      return digits;
    };
    const auto tag = [&](std::uint32_t id, std::uint32_t type, std::uint32_t count, std::uint32_t value) {
      return number(id, 2) + number(type, 2) + number(count, 4) +
             (type == 3 ? number(value, 2) + std::string(2, '\0') : number(value, 4));
    };
    constexpr std::uint32_t text_at = 8 + 2 + 8 * 12 + 4;
    const auto data_at = static_cast<std::uint32_t>(text_at + text.size() + 1);
    std::string bytes = (big ? "MM" : "II") + number(42, 2) + number(8, 4) + number(8, 2) + tag(256, 4, 1, 2) +
                        tag(257, 4, 1, 3) + tag(258, 3, 1, 16) +
                        tag(270, 2, static_cast<std::uint32_t>(text.size() + 1), text_at) + tag(262, 3, 1, 1) +
                        tag(273, 4, 1, data_at) + tag(278, 4, 1, 3) + tag(279, 4, 1, 12) + number(0, 4) + text + '\0';
    for (std::uint32_t i = 0; i < 18; ++i) bytes += number(1000 + i, 2);
    write_bytes(file, bytes);
    const auto volume = read_volume(file);
    REQUIRE(volume.shape() == Shape5{1, 1, {3, 3, 2}});
    for (index_t i = 0; i < 18; ++i) CHECK(volume.data()[i] == static_cast<float>(1000 + i));
    bytes.resize(bytes.size() - 2);
    write_bytes(file, bytes);
    CHECK(contains(tiff_refusal(directory, file), "the file is truncated"));
  }
}

TEST_CASE("the planes of an OME-TIFF have the places that its XML says", "[io][tiff]") {
  const Directory directory;
  const auto file = directory / "a.ome.tif";
  const auto write = [&](const std::string& order, const std::string& inside) {
    TIFF* const tiff = TIFFOpen(file.c_str(), "w");
    for (std::uint8_t page = 0; page < 6; ++page) {
      TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, 2u);
      TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 1u);
      TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8);
      TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
      const std::string xml = "<OME><Image><Pixels DimensionOrder=\"" + order +
                              "\" SizeZ=\"3\" SizeC=\"2\" SizeT=\"1\">" + inside + "</Pixels></Image></OME>";
      if (page == 0) TIFFSetField(tiff, TIFFTAG_IMAGEDESCRIPTION, xml.c_str());
      std::array<std::uint8_t, 2> row{page, page};
      TIFFWriteScanline(tiff, row.data(), 0, 0);
      TIFFWriteDirectory(tiff);
    }
    TIFFClose(tiff);
  };
  const auto pages = [&] {
    const auto source = open_volume({file, ""});
    REQUIRE(source->info().channels == 2);
    REQUIRE(source->info().extent == Extent3{3, 1, 2});
    std::vector<std::byte> voxels(12);
    source->read({0, 2}, {{0, 0, 0}, {3, 1, 2}}, voxels);
    std::vector<int> result;
    for (std::size_t i = 0; i < 12; i += 2) result.push_back(static_cast<int>(voxels[i]));
    return result;
  };
  using V = std::vector<int>;
  for (const char* order : {"XYZCT", "XYZTC", "XYTZC"}) {
    write(order, "");
    CHECK(pages() == V{0, 1, 2, 3, 4, 5});
  }
  for (const char* order : {"XYCZT", "XYTCZ", "XYCTZ"}) {
    write(order, "");
    CHECK(pages() == V{0, 2, 4, 1, 3, 5});
  }
  write("XYZCT",
        "<TiffData IFD=\"0\" FirstC=\"1\" PlaneCount=\"3\"/><TiffData IFD=\"3\" FirstZ=\"2\"/>"
        "<TiffData IFD=\"4\" PlaneCount=\"2\"/>");
  CHECK(pages() == V{4, 5, 3, 0, 1, 2});
  write("XYZCT", "<TiffData/>");
  CHECK(pages() == V{0, 1, 2, 3, 4, 5});
  write("XYZCT", "<TiffData IFD=\"0\" PlaneCount=\"5\"/>");
  CHECK(contains(tiff_refusal(directory, file), "TiffData"));
  write("XYZCT", "<TiffData IFD=\"4\" PlaneCount=\"3\"/>");
  CHECK(contains(tiff_refusal(directory, file), "TiffData"));
  write("ZCTXY", "");
  CHECK(contains(tiff_refusal(directory, file), "DimensionOrder"));
}

TEST_CASE("an ImageJ stack whose pages are not there is refused", "[io][tiff]") {
  const Directory directory;
  const auto file = directory / "imagej.tif";
  TIFF* const tiff = TIFFOpen(file.c_str(), "w");
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, 2u);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 1u);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
  TIFFSetField(tiff, TIFFTAG_IMAGEDESCRIPTION, "ImageJ=1.53t\nimages=40\nslices=40\n");
  std::array<std::uint8_t, 2> row{1, 2};
  TIFFWriteScanline(tiff, row.data(), 0, 0);
  TIFFClose(tiff);
  CHECK(contains(tiff_refusal(directory, file), "ImageJ stack of 40 images"));
}

TEST_CASE("a TIFF that gets another compression after it was opened is refused", "[io][tiff]") {
  const Directory directory;
  const auto file = directory / "a.tif";
  make_tiff<std::uint8_t>(file, {.tiled = true});
  const auto source = open_volume({file, ""});
  std::vector<std::byte> voxels(pages * height * width);
  const VoxelBox all{{0, 0, 0}, source->info().extent};
  source->read({0, 1}, all, voxels);

  std::string bytes = read_bytes(file);
  const std::string old("\x03\x01\x03\0\x01\0\0\0\x01\0", 10), jpeg("\x03\x01\x03\0\x01\0\0\0\x07\0", 10);
  std::size_t changed = 0;
  for (auto at = bytes.find(old); at != bytes.npos; at = bytes.find(old, at)) {
    bytes.replace(at, jpeg.size(), jpeg);
    ++changed;
  }
  REQUIRE(changed == pages);
  write_bytes(file, bytes);
  CHECK(contains(message_of<FormatError>([&] { source->read({0, 1}, all, voxels); }), "compression: "));
}
