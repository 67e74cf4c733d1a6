#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <sstream>
#include <vector>

#include "io_testing.hpp"

#include "nets/io/volume.hpp"

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::io;
using namespace convolume::nets::testing;

namespace {

std::optional<std::filesystem::path> data_directory() {
  if (const char* const path = std::getenv("CONVOLUME_DATA_DIR"); path != nullptr && *path != '\0') return path;
  std::cout << "SKIPPED: CONVOLUME_DATA_DIR is not set\n";
  return std::nullopt;
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, '\t');) fields.push_back(field);
  return fields;
}

template <class T>
std::string bytes_as(const Tensor<float>& volume) {
  std::string bytes;
  for (index_t i = 0; i < volume.elements(); ++i) {
    const auto value = static_cast<T>(volume.data()[i]);
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes.append(raw, sizeof(T));
  }
  return bytes;
}

std::string bytes_as(const std::string& type, const Tensor<float>& volume) {
  return type == "uint8"    ? bytes_as<std::uint8_t>(volume)
         : type == "int8"   ? bytes_as<std::int8_t>(volume)
         : type == "uint16" ? bytes_as<std::uint16_t>(volume)
         : type == "int16"  ? bytes_as<std::int16_t>(volume)
                            : bytes_as<float>(volume);
}

std::string md5_of(const Directory& directory, const std::string& bytes) {
  write_bytes(directory / "bytes", bytes);
  const std::string command =
      "md5sum < " + (directory / "bytes").string() + " > " + (directory / "sum").string() + " 2> /dev/null";
  if (std::system(command.c_str()) != 0) return {};
  return read_bytes(directory / "sum").substr(0, 32);
}

}  // namespace

TEST_CASE("foreign TIFF files decode to the bytes of their manifest", "[io][data]") {
  const auto data = data_directory();
  if (!data) return;
  const Directory directory;
  std::istringstream manifest(read_bytes(*data / "formats" / "manifest.tsv"));
  int read = 0, refused = 0;
  for (std::string line; std::getline(manifest, line);) {
    const auto fields = split(line);
    if (fields.size() < 5 || fields[0] == "file") continue;
    const auto file = *data / "formats" / fields[0];
    CAPTURE(file.string());
    if (!contains(fields[0], ".tif")) {
      CHECK_THROWS_AS(read_volume(file), FormatError);
      continue;
    }
    if (std::count(fields[1].begin(), fields[1].end(), ',') != 1) {
      CHECK(contains(message_of<FormatError>([&] { read_volume(file); }), "samples per pixel"));
      ++refused;
      continue;
    }
    const auto info = inspect_volume(file);
    CHECK(info.element_type == fields[2]);
    std::ostringstream shape;
    shape << '(' << info.extent.y << ", " << info.extent.x << ')';
    CHECK(shape.str() == fields[1]);
    CHECK(info.extent.z == 1);
    const std::string sum = md5_of(directory, bytes_as(info.element_type, read_volume(file)));
    if (!sum.empty()) CHECK(sum == fields[4]);
    ++read;
  }
  CHECK(read >= 7);
  CHECK(refused >= 2);
  CHECK_NOTHROW(read_volume(*data / "formats" / "tiled-oversize-gray-i8.tif"));
}

TEST_CASE("the ISBI stacks are read", "[io][data]") {
  const auto data = data_directory();
  if (!data) return;
  for (const char* name : {"train-volume.tif", "train-labels.tif", "test-volume.tif"}) {
    const auto info = inspect_volume(*data / "isbi2012" / name);
    CHECK(info.extent == Extent3{30, 512, 512});
    CHECK(info.element_type == "uint8");
  }
  const auto labels = read_volume(*data / "isbi2012" / "train-labels.tif");
  index_t membrane = 0, cell = 0;
  for (index_t i = 0; i < labels.elements(); ++i) {
    membrane += labels.data()[i] == 0;
    cell += labels.data()[i] == 255;
  }
  CHECK(membrane + cell == labels.elements());
  CHECK(static_cast<double>(membrane) / static_cast<double>(labels.elements()) == Approx(0.22).margin(0.01));
}
