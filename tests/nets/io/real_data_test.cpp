#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <sstream>
#include <vector>

#include "io_testing.hpp"

#include "nets/io/volume.hpp"
#include "nets/io/volume_source.hpp"

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

std::string md5_of(const Directory& directory, const std::string& bytes) {
  write_bytes(directory / "bytes", bytes);
  const std::string command =
      "md5sum < " + (directory / "bytes").string() + " > " + (directory / "sum").string() + " 2> /dev/null";
  if (std::system(command.c_str()) != 0) return {};
  return read_bytes(directory / "sum").substr(0, 32);
}

/// Returns all voxels in the order [x][y][z][c] of NumPy's view of a NIfTI file, or as [c][z][y][x].
std::string voxels_of(const VolumeSource& source, bool transposed) {
  const VolumeInfo& info = source.info();
  const Extent3& e = info.extent;
  const auto bytes = static_cast<std::size_t>(info.bytes_per_voxel());
  std::vector<std::byte> voxels(static_cast<std::size_t>(info.channels * e.volume()) * bytes);
  source.read({0, info.channels}, {{0, 0, 0}, e}, voxels);
  std::string text;
  const auto add = [&](index_t c, index_t z, index_t y, index_t x) {
    const auto at = static_cast<std::size_t>(((c * e.z + z) * e.y + y) * e.x + x) * bytes;
    text.append(reinterpret_cast<const char*>(voxels.data()) + at, bytes);
  };
  if (!transposed) return {reinterpret_cast<const char*>(voxels.data()), voxels.size()};
  for (index_t x = 0; x < e.x; ++x) {
    for (index_t y = 0; y < e.y; ++y) {
      for (index_t z = 0; z < e.z; ++z) {
        for (index_t c = 0; c < info.channels; ++c) add(c, z, y, x);
      }
    }
  }
  return text;
}

/// Returns the text with the bytes of each element reversed.
std::string swapped(std::string text, VoxelType type) {
  swap_bytes(reinterpret_cast<std::byte*>(text.data()), type, text.size() / size_of(type));
  return text;
}

}  // namespace

TEST_CASE("foreign TIFF and NIfTI files decode to the bytes of their manifest", "[io][data]") {
  const auto data = data_directory();
  if (!data) return;
  const Directory directory;
  std::istringstream manifest(read_bytes(*data / "formats" / "manifest.tsv"));
  int tiff = 0, nifti = 0, refused = 0;
  for (std::string line; std::getline(manifest, line);) {
    const auto fields = split(line);
    if (fields.size() < 5 || fields[0] == "file") continue;
    const auto file = *data / "formats" / fields[0];
    CAPTURE(file.string());
    const bool is_tiff = contains(fields[0], ".tif");
    const auto commas = std::count(fields[1].begin(), fields[1].end(), ',');
    if (is_tiff && commas != 1) {
      CHECK(contains(message_of<FormatError>([&] { read_volume(file); }), "samples per pixel"));
      ++refused;
      continue;
    }
    const auto source = open_volume(VolumePath{file, ""});
    const VolumeInfo& info = source->info();
    const bool big = fields[2] == ">i2";
    CHECK(info.element_type == (big ? "int16" : fields[2]));
    const Extent3& e = info.extent;
    std::ostringstream shape;
    if (is_tiff) {
      shape << '(' << e.y << ", " << e.x << ')';
      CHECK(e.z == 1);
    } else {
      shape << '(' << e.x << ", " << e.y << ", " << e.z;
      if (commas == 3) shape << ", " << info.channels;
      shape << ')';
      CHECK(info.geometry.has_value());
    }
    CHECK(shape.str() == fields[1]);
    const std::string bytes = voxels_of(*source, !is_tiff);
    const std::string sum = md5_of(directory, big ? swapped(bytes, info.type) : bytes);
    if (!sum.empty()) CHECK(sum == fields[4]);
    ++(is_tiff ? tiff : nifti);
  }
  CHECK(tiff >= 7);
  CHECK(nifti == 4);
  CHECK(refused >= 2);
  CHECK_NOTHROW(read_volume(*data / "formats" / "tiled-oversize-gray-i8.tif"));
}

TEST_CASE("the images and labels of the hippocampus set are read, and their geometries agree", "[io][data]") {
  const auto data = data_directory();
  if (!data) return;
  int pairs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*data / "hippocampus" / "images")) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".nii.gz")) continue;
    CAPTURE(name);
    const auto image = open_volume(entry.path().string());
    const auto label = open_volume((*data / "hippocampus" / "labels" / name).string());
    CHECK(image->info().extent == label->info().extent);
    CHECK(distance_in_voxels(*image->info().geometry, *label->info().geometry, image->info().extent) < 1e-3);
    CHECK(image->info().spacing->unit == "mm");
    const auto classes = read_volume(label->path());
    const float most = *std::max_element(classes.data(), classes.data() + classes.elements());
    CHECK(most == 2);
    ++pairs;
  }
  CHECK(pairs == 20);
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
