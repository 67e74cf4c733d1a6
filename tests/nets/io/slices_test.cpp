#include <array>
#include <fstream>
#include <vector>

#include "io_testing.hpp"
#include <fmt/format.h>
#include <png.h>
#include <zlib.h>

#include "nets/io/png_file.hpp"
#include "nets/io/volume.hpp"
#include "nets/io/volume_formats.hpp"
#include "nets/io/volume_sink.hpp"
#include "nets/io/volume_source.hpp"

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::io;
using namespace convolume::nets::testing;

namespace {

void write_png(const std::filesystem::path& file, const detail::PngInfo& info, std::uint8_t first) {
  std::vector<std::byte> pixels(static_cast<std::size_t>(info.height * info.width * info.channels * info.bits / 8));
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::byte>(first + i);
  const auto encoded = detail::encode_png(file, info, pixels);
  write_bytes(file, {reinterpret_cast<const char*>(encoded.data()), encoded.size()});
}

std::string slices_refusal(const std::filesystem::path& pattern) {
  const auto message = message_of<FormatError>([&] { read_volume(pattern); });
  CHECK(contains(message, pattern.parent_path().string()));
  return message;
}

}  // namespace

TEST_CASE("slices are read in the order of their numbers", "[io][slices]") {
  const Directory directory;
  for (const int number : {9, 10, 11}) {
    write_png(directory / fmt::format("s{}.png", number), {2, 3, 1, 8}, static_cast<std::uint8_t>(number));
  }
  const auto volume = read_volume(directory / "s*.png");
  REQUIRE(volume.shape() == Shape5{1, 1, {3, 2, 3}});
  CHECK(volume.data()[0] == 9);
  CHECK(volume.data()[6] == 10);
  CHECK(volume.data()[17] == 16);
}

TEST_CASE("colour PNG are three channels, and 16 bits keep their values", "[io][slices]") {
  const Directory directory;
  write_png(directory / "0.png", {2, 3, 3, 8}, 100);
  const auto colour = read_volume(directory / "*.png");
  REQUIRE(colour.shape() == Shape5{1, 3, {1, 2, 3}});
  CHECK(colour.view()(0, 1, 0, 0, 0) == 101);
  CHECK(colour.view()(0, 2, 0, 1, 2) == 117);
  const Directory deep;
  write_png(deep / "0.png", {1, 2, 1, 16}, 1);
  CHECK(inspect_volume(deep / "*.png").element_type == "uint16");
  CHECK(read_volume(deep / "*.png").data()[1] == 0x0403);
}

TEST_CASE("a PNG file alone is a volume of one slice, and other files are none", "[io][slices]") {
  const Directory directory;
  write_png(directory / "any name.png", {2, 3, 3, 8}, 100);
  const auto volume = read_volume(directory / "any name.png");
  REQUIRE(volume.shape() == Shape5{1, 3, {1, 2, 3}});
  CHECK(volume.view()(0, 1, 0, 0, 0) == 101);
  std::ofstream(directory / "text.png") << "no picture";
  CHECK(contains(slices_refusal(directory / "text.png"), "the file is no PNG"));
}

TEST_CASE("folders of slices with gaps, twins or mixtures are refused", "[io][slices]") {
  const Directory directory;
  write_png(directory / "s1.png", {2, 3, 1, 8}, 0);
  write_png(directory / "s3.png", {2, 3, 1, 8}, 0);
  CHECK(contains(slices_refusal(directory / "s*.png"), "2 is missing: 3 follows 1"));
  write_png(directory / "s02.png", {2, 3, 1, 8}, 0);
  CHECK(read_volume(directory / "s*.png").shape().extent.z == 3);
  write_png(directory / "s2.png", {2, 3, 1, 8}, 0);
  CHECK(contains(slices_refusal(directory / "s*.png"), "2 stands for two files"));
  std::filesystem::remove(directory / "s2.png");
  write_png(directory / "s3.png", {2, 4, 1, 8}, 0);
  CHECK(contains(slices_refusal(directory / "s*.png"), "all slices must be equal"));
  write_png(directory / "s3.png", {2, 3, 1, 16}, 0);
  CHECK(contains(slices_refusal(directory / "s*.png"), "all slices must be equal"));
  write_bytes(directory / "sum.png", "x");
  CHECK(contains(slices_refusal(directory / "s*.png"), "'sum.png' has no number"));
  CHECK(contains(message_of<IoError>([&] { read_volume(directory / "t*.png"); }), "no file matches"));
  CHECK(contains(message_of<IoError>([&] { read_volume(directory / "no" / "*.png"); }), "no folder"));
}

TEST_CASE("PNG that are palettes, transparent, interlaced or damaged are refused", "[io][slices]") {
  const Directory directory;
  write_png(directory / "0.png", {20, 30, 1, 8}, 0);
  const std::string whole = read_bytes(directory / "0.png");
  for (std::size_t length = 0; length + 12 < whole.size(); length += 5) {  // the end of the file is not needed
    CAPTURE(length);
    write_bytes(directory / "0.png", whole.substr(0, length));
    CHECK(contains(slices_refusal(directory / "*.png"), "0.png"));
  }
  const auto with_header = [&](std::size_t at, char value) {
    std::string bytes = whole;
    bytes[at] = value;
    const auto crc = crc32(0, reinterpret_cast<const Bytef*>(bytes.data() + 12), 17);
    for (std::size_t i = 0; i < 4; ++i) bytes[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
    write_bytes(directory / "0.png", bytes);
    return slices_refusal(directory / "*.png");
  };
  CHECK(contains(with_header(25, 6), "alpha"));
  CHECK(contains(with_header(25, 4), "alpha"));
  CHECK(contains(with_header(28, 1), "Adam7"));
  CHECK(contains(with_header(24, 4), "bit depth"));
}

TEST_CASE("a PNG is no larger than its file can hold, and boxes of it are decoded without the rest", "[io][slices]") {
  const Directory directory;
  write_png(directory / "0.png", {20, 30, 1, 8}, 0);
  const auto box = open_volume({directory / "*.png", ""});
  std::vector<std::byte> voxels(2 * 5);
  box->read({0, 1}, {{0, 17, 4}, {1, 2, 5}}, voxels);
  CHECK(voxels[0] == static_cast<std::byte>((17 * 30 + 4) % 256));
  CHECK(voxels[9] == static_cast<std::byte>((18 * 30 + 8) % 256));

  std::string bytes = read_bytes(directory / "0.png");
  for (const std::size_t at : {16, 20}) bytes.replace(at, 4, std::string("\0\0\x75\x30", 4));  // 30000
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(bytes.data() + 12), 17);
  for (std::size_t i = 0; i < 4; ++i) bytes[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
  write_bytes(directory / "0.png", bytes);
  const auto message = message_of<FormatError>([&] { open_volume({directory / "*.png", ""}); });
  CHECK(contains(message, "0.png: size: 30000 x 30000, 1 channels of 8 bits do not fit into a file of"));
}

TEST_CASE("slices are written into folders without others of their name", "[io][slices]") {
  const Directory directory;
  const auto volume = ramp({1, 1, {12, 2, 3}}, 1.0f / 255);
  write_volume(directory / "p*.png", volume, {.element_type = ElementType::uint8});
  CHECK(std::filesystem::exists(directory / "p00.png"));
  CHECK(std::filesystem::exists(directory / "p11.png"));
  CHECK(read_volume(directory / "p*.png").data()[70] == 70);
  CHECK(contains(
      message_of<IoError>([&] { write_volume(directory / "p*.png", volume, {.element_type = ElementType::uint8}); }),
      "matches already"));
  CHECK(contains(message_of<InvalidArgument>([&] { write_volume(directory / "f*.png", volume); }), "float32"));
  write_volume(directory / "f*.tif", volume);
  CHECK(equal(read_volume(directory / "f*.tif"), volume));
}

TEST_CASE("slices do not replace a file that appears meanwhile, and leave nothing behind then", "[io][slices]") {
  const Directory directory;
  const Extent3 extent{12, 2, 3};
  {
    const auto sink = create_volume({directory / "p*.png", ""}, {.extent = extent, .type = VoxelType::uint8});
    sink->write({0, 1}, {{0, 0, 0}, extent}, std::vector<std::byte>(72));
    write_bytes(directory / "p05.png", "important");
    CHECK(contains(message_of<IoError>([&] { sink->finish(); }), "p05.png: exists already"));
    CHECK(contains(message_of<IoError>([&] { sink->finish(); }), "an earlier write failed"));
  }
  CHECK(read_bytes(directory / "p05.png") == "important");
  CHECK(directory.files() == 1);
}

TEST_CASE("two volumes of slices are written into one folder at once", "[io][slices]") {
  const Directory directory;
  const Extent3 extent{2, 1, 3};
  const SinkOptions options{.extent = extent, .type = VoxelType::uint8};
  const auto first = create_volume({directory / "a*.png", ""}, options);
  {
    const auto second = create_volume({directory / "b*.png", ""}, options);
    second->write({0, 1}, {{0, 0, 0}, extent}, std::vector<std::byte>(6, std::byte{2}));
    second->finish();
  }
  first->write({0, 1}, {{0, 0, 0}, extent}, std::vector<std::byte>(6, std::byte{1}));
  first->finish();
  CHECK(read_volume(directory / "a*.png").data()[5] == 1);
  CHECK(read_volume(directory / "b*.png").data()[5] == 2);
}

TEST_CASE("a folder that cannot be listed is reported by name", "[io][slices]") {
  const Directory directory;
  CHECK(
      contains(message_of<IoError>([&] { detail::names_in(directory / "none"); }), "none: listing the folder failed"));
  const std::string name(1000, 'x');
  CHECK(contains(message_of<IoError>([&] { read_volume(directory / name / "*.png"); }), "no folder"));
  for (const char* file : {"a.tif", "*.png"}) {
    const VolumePath path{directory / name / file, ""};
    const SinkOptions options{.extent = {2, 3, 4}, .type = VoxelType::uint8};
    CHECK(contains(message_of<IoError>([&] { create_volume(path, options); }), "finding the folder"));
  }
}

TEST_CASE("booleans and the numbers of a palette are read from PNG of every depth", "[io][slices]") {
  const Directory directory;
  const auto chunk = [](const std::string& name, const std::string& data) {
    const auto number = [](std::size_t value) {
      std::string bytes;
      for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
      return bytes;
    };
    const std::string body = name + data;
    return number(data.size()) + body +
           number(crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())));
  };
  for (const auto& [depth, colour] :
       {std::pair(1, 0), std::pair(1, 3), std::pair(2, 3), std::pair(4, 3), std::pair(8, 3)}) {
    CAPTURE(depth, colour);
    // Pixel x of row y has the number (x + y) modulo the numbers of this depth, at most 16.
    const int numbers = std::min(16, 1 << depth);
    std::string rows;
    for (int y = 0; y < 3; ++y) {
      rows += '\0';
      std::string row(static_cast<std::size_t>((5 * depth + 7) / 8), '\0');
      for (int x = 0; x < 5; ++x) {
        const int bit = x * depth, value = (x + y) % numbers;
        row[static_cast<std::size_t>(bit / 8)] |= static_cast<char>(value << (8 - depth - bit % 8));
      }
      rows += row;
    }
    std::string packed(compressBound(rows.size()), '\0');
    uLongf size = packed.size();
    compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()), rows.size());
    std::string header("\0\0\0\5\0\0\0\3", 8);
    header += static_cast<char>(depth);
    header += static_cast<char>(colour);
    header += std::string(3, '\0');
    const std::string palette =
        colour == 3 ? chunk("PLTE", std::string(static_cast<std::size_t>(3 * numbers), 'p')) : "";
    const std::string file = "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + palette +
                             chunk("IDAT", packed.substr(0, size)) + chunk("IEND", "");
    std::filesystem::remove(directory / "1.png");
    write_bytes(directory / "0.png", file);
    write_bytes(directory / "._0.png", "hidden");
    const auto source = open_volume({directory / "*.png", ""});
    CHECK(source->info().element_type == (colour == 0 ? "bool" : "uint8"));
    CHECK(source->info().notes.size() == (colour == 0 ? 0u : 1u));
    std::vector<std::byte> voxels(2 * 3);
    source->read({0, 1}, {{0, 1, 2}, {1, 2, 3}}, voxels);
    for (int i = 0; i < 6; ++i) {
      CHECK(static_cast<int>(voxels[static_cast<std::size_t>(i)]) == (i % 3 + 2 + i / 3 + 1) % numbers);
    }
    if (colour == 0) continue;
    // The same number in two slices is the same colour. A palette may end earlier.
    const auto with_palette = [&](const std::string& colours) {
      std::string other = file;
      const std::string own = chunk("PLTE", std::string(static_cast<std::size_t>(3 * numbers), 'p'));
      write_bytes(directory / "1.png", other.replace(other.find(own), own.size(), chunk("PLTE", colours)));
    };
    with_palette(std::string(3 * 2, 'p'));
    CHECK(open_volume({directory / "*.png", ""})->info().extent.z == 2);
    with_palette("ppq" + std::string(3 * static_cast<std::size_t>(numbers - 1), 'p'));
    CHECK(contains(message_of<FormatError>([&] { open_volume({directory / "*.png", ""}); }), "palette"));
  }
}
