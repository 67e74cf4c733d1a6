#include <array>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "io_testing.hpp"
#include <hdf5.h>

#include "nets/io/volume.hpp"

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::io;
using namespace convolume::nets::testing;

namespace {

/// An HDF5 file written with the C API directly.
class File {
 public:
  explicit File(const std::filesystem::path& path)
      : id_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  ~File() { H5Fclose(id_); }
  hid_t id() const { return id_; }

  void add(const char* name, hid_t type, std::vector<hsize_t> size, hid_t creation = H5P_DEFAULT, bool filled = true) {
    const hid_t space = H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr);
    const hid_t links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    const hid_t dataset = H5Dcreate2(id_, name, type, space, links, creation, H5P_DEFAULT);
    REQUIRE(dataset >= 0);
    if (filled) {
      std::vector<float> values;
      hsize_t count = 1;
      for (const hsize_t n : size) count *= n;
      for (hsize_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
      REQUIRE(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    }
    H5Dclose(dataset);
    H5Pclose(links);
    H5Sclose(space);
  }

 private:
  hid_t id_;
};

std::string refusal(const Directory& directory, const VolumePath& path, const ReadOptions& options = {}) {
  StandardError printed(directory / "stderr");
  const auto message = message_of<FormatError>([&] { read_volume(path, options); });
  CHECK(printed.text().empty());
  CHECK(contains(message, path.file.string()));
  return message;
}
std::string refusal(const Directory& directory, const std::filesystem::path& file, const ReadOptions& options = {}) {
  return refusal(directory, VolumePath{file, ""}, options);
}

}  // namespace

TEST_CASE("HDF5 datasets of every type are read", "[io][hdf5]") {
  const Directory directory;
  const auto file = directory / "types.h5";
  const std::vector<std::pair<hid_t, const char*>> types{
      {H5T_STD_U8LE, "uint8"},     {H5T_STD_I8LE, "int8"},     {H5T_STD_U16BE, "uint16"}, {H5T_STD_I16LE, "int16"},
      {H5T_STD_U32LE, "uint32"},   {H5T_STD_I32BE, "int32"},   {H5T_STD_U64LE, "uint64"}, {H5T_STD_I64LE, "int64"},
      {H5T_IEEE_F32BE, "float32"}, {H5T_IEEE_F64LE, "float64"}};
  const auto expected = ramp({1, 1, {2, 3, 5}});
  for (const auto& [type, name] : types) {
    CAPTURE(name);
    File(file).add("/a/raw", type, {2, 3, 5});
    CHECK(inspect_volume(file).element_type == name);
    CHECK(inspect_volume(VolumePath{file, "a/raw"}).extent == Extent3{2, 3, 5});
    CHECK(equal(read_volume(file), expected));
    CHECK(equal(read_volume(VolumePath{file, "/a/raw"}), expected));
  }
}

TEST_CASE("a dataset is chosen by name, or because it is the only volume", "[io][hdf5]") {
  const Directory directory;
  const auto file = directory / "several.h5";
  {
    File writer(file);
    writer.add("/plane", H5T_STD_U8LE, {4, 4});
    writer.add("/group/raw", H5T_STD_U8LE, {2, 3, 4});
    H5Lcreate_hard(writer.id(), "/", writer.id(), "/group/loop", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/group/raw", writer.id(), "/alias", H5P_DEFAULT, H5P_DEFAULT);
  }
  {
    const auto message = refusal(directory, file);  // the loop makes the dataset appear under several names
    CHECK(contains(message, "which dataset?"));
    CHECK(contains(message, "/group/raw"));
  }
  {
    File writer(file);
    writer.add("/plane", H5T_STD_U8LE, {4, 4});
    writer.add("/group/raw", H5T_STD_U8LE, {2, 3, 4});
    H5Lcreate_soft("/group/raw", writer.id(), "/alias", H5P_DEFAULT, H5P_DEFAULT);
  }
  CHECK(read_volume(file).shape().extent == Extent3{2, 3, 4});
  CHECK(read_volume(VolumePath{file, "/alias"}).shape().extent == Extent3{2, 3, 4});
  const auto missing = refusal(directory, VolumePath{file, "/nothing"});
  CHECK(contains(missing, "dataset /nothing: name: not in the file"));
  CHECK(contains(missing, "/group/raw"));
  CHECK(contains(refusal(directory, VolumePath{file, "/group"}), "a group or type"));
  CHECK(contains(refusal(directory, VolumePath{file, "/plane"}), "rank: 2"));
  File(file).add("/plane", H5T_STD_U8LE, {4, 4});
  CHECK(contains(refusal(directory, file), "no 3-D dataset"));
}

TEST_CASE("HDF5 datasets that are no volume are refused by name", "[io][hdf5]") {
  const Directory directory;
  const auto file = directory / "bad.h5";
  SECTION("complex numbers") {
    const hid_t complex = H5Tcreate(H5T_COMPOUND, 8);
    H5Tinsert(complex, "r", 0, H5T_IEEE_F32LE);
    H5Tinsert(complex, "i", 4, H5T_IEEE_F32LE);
    File(file).add("/raw", complex, {2, 3, 4}, H5P_DEFAULT, false);
    H5Tclose(complex);
    CHECK(contains(refusal(directory, file), "element type: compound"));
  }
  SECTION("text") {
    File(file).add("/raw", H5T_C_S1, {2, 3, 4}, H5P_DEFAULT, false);
    CHECK(contains(refusal(directory, file), "element type: text"));
  }
  SECTION("a zero extent") {
    File(file).add("/raw", H5T_STD_U8LE, {2, 0, 4}, H5P_DEFAULT, false);
    CHECK(contains(refusal(directory, file), "size: 2 x 0 x 4"));
  }
  SECTION("declared but never written") {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const std::array<hsize_t, 3> chunk{16, 16, 16};
    H5Pset_chunk(creation, 3, chunk.data());
    File(file).add("/raw", H5T_STD_U8LE, {1000, 1000, 1000}, creation, false);
    H5Pclose(creation);
    CHECK(contains(refusal(directory, file), "0 bytes stored"));
  }
  SECTION("more voxels than memory") {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const std::array<hsize_t, 3> chunk{1, 1, 1u << 20};
    H5Pset_chunk(creation, 3, chunk.data());
    File(file).add("/raw", H5T_STD_U8LE, {1u << 20, 1u << 20, 1u << 20}, creation, false);
    H5Pclose(creation);
    CHECK(contains(refusal(directory, file), "1048576 x 1048576 x 1048576 of uint8 declared, 0 bytes stored"));
  }
  SECTION("more voxels than numbers") {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const std::array<hsize_t, 3> chunk{1, 1, 1u << 20};
    H5Pset_chunk(creation, 3, chunk.data());
    File(file).add("/raw", H5T_STD_U8LE, {1u << 20, 1u << 22, 1u << 22}, creation, false);
    H5Pclose(creation);
    CHECK(contains(refusal(directory, file), "more than 2^63 bytes"));
  }
  SECTION("enormous chunks") {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const std::array<hsize_t, 3> chunk{1, 30000, 30000};
    H5Pset_chunk(creation, 3, chunk.data());
    {
      const std::array<hsize_t, 3> size{1, 2, 2}, most{1, H5S_UNLIMITED, H5S_UNLIMITED};
      File writer(file);
      const hid_t space = H5Screate_simple(3, size.data(), most.data());
      H5Dclose(H5Dcreate2(writer.id(), "/raw", H5T_STD_U8LE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
      H5Sclose(space);
    }
    H5Pclose(creation);
    CHECK(contains(refusal(directory, file), "chunk size: 1 x 30000 x 30000"));
  }
  SECTION("data in another file") {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(creation, "/etc/passwd", 0, 24);
    File(file).add("/raw", H5T_STD_U8LE, {2, 3, 4}, creation, false);
    H5Pclose(creation);
    CHECK(contains(refusal(directory, file), "external: the data are in other, raw files"));
  }
  SECTION("values that are not finite") {
    auto volume = ramp({1, 1, {2, 3, 4}});
    volume.view()(0, 0, 0, 1, 2) = -std::numeric_limits<float>::infinity();
    write_volume(file, volume);
    CHECK(contains(refusal(directory, file), "voxel (z 0, y 1, x 2) is -inf"));
    CHECK_NOTHROW(read_volume(file, {.require_finite = false}));
  }
  SECTION("an empty file, and text") {
    write_bytes(file, "");
    CHECK(contains(refusal(directory, file), "empty"));
    write_bytes(file, "some text that is no HDF5 file");
    CHECK(contains(refusal(directory, file), "not a readable HDF5 file"));
  }
}

TEST_CASE("several channels are stored as [c][z][y][x]", "[io][hdf5]") {
  const Directory directory;
  const auto file = directory / "channels.h5";
  const auto volume = ramp({1, 3, {17, 5, 6}});
  write_volume(VolumePath{file, "/deep/in/here"}, volume);
  CHECK(equal(read_volume(file), volume));
  const hid_t id = H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(id, "/deep/in/here", H5P_DEFAULT);
  const hid_t space = H5Dget_space(dataset);
  std::array<hsize_t, 4> size{};
  REQUIRE(H5Sget_simple_extent_dims(space, size.data(), nullptr) == 4);
  CHECK(size == std::array<hsize_t, 4>{3, 17, 5, 6});
  Tensor<float> read(volume.shape());
  CHECK(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, read.data()) >= 0);
  CHECK(equal(read, volume));
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(id);
}

TEST_CASE("a truncated HDF5 file is refused wherever it ends", "[io][hdf5]") {
  const Directory directory;
  const auto file = directory / "cut.h5";
  write_volume(file, ramp({1, 1, {4, 9, 11}}));
  const std::string whole = read_bytes(file);
  for (std::size_t length = 1; length < whole.size(); length += 11) {
    CAPTURE(length, whole.size());
    write_bytes(file, std::string_view(whole).substr(0, length));
    refusal(directory, file);
  }
}

TEST_CASE("a flipped bit in the voxels of our HDF5 files is noticed", "[io][hdf5]") {
  const Directory directory;
  const auto file = directory / "flip.h5";
  const auto volume = ramp({1, 1, {4, 9, 11}});
  write_volume(file, volume);
  const std::string whole = read_bytes(file);
  // Floats are stored as they are. A checksum follows the chunk.
  const auto chunk = whole.find(std::string_view(reinterpret_cast<const char*>(volume.data()), 64));
  REQUIRE(chunk != whole.npos);
  for (std::size_t at = chunk; at < chunk + 60; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write_bytes(file, damaged);
    CHECK(contains(refusal(directory, file), "data: cannot be read"));
  }
}

TEST_CASE("HDF5 files can be used from several threads, and the caller's error handler stays", "[io][hdf5]") {
  const Directory directory;
  H5E_auto2_t before = nullptr, after = nullptr;
  void *before_data = nullptr, *after_data = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &before, &before_data);
  std::array<bool, 4> good{};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < good.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto file = directory / ("thread" + std::to_string(i) + ".h5");
      const auto volume = ramp({1, 1, {3, 8, 9}}, static_cast<float>(i));
      good[i] = true;
      for (int round = 0; round < 10; ++round) {
        write_volume(file, volume);
        good[i] = good[i] && equal(read_volume(file), volume);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const bool each : good) CHECK(each);
  H5Eget_auto2(H5E_DEFAULT, &after, &after_data);
  CHECK(before == after);
}

TEST_CASE("an HDF5 file is replaced only if nothing else in it would be lost", "[io][hdf5]") {
  const Directory directory;
  const auto file = directory / "a.h5";
  const auto volume = ramp({1, 1, {2, 3, 4}});
  const auto kept = [&](const char* says) {
    const std::string before = read_bytes(file);
    StandardError printed(directory / "stderr");
    const auto message = message_of<IoError>([&] { write_volume(VolumePath{file, "/raw"}, volume); });
    CHECK(printed.text().empty());
    CHECK(contains(message, file.string()));
    CHECK(contains(message, says));
    CHECK(read_bytes(file) == before);
  };
  for (const std::vector<hsize_t>& size : {std::vector<hsize_t>{5}, {4, 5}, {2, 3, 4, 5}, {1, 2, 3, 4, 5}}) {
    CAPTURE(size.size());
    {
      File writer(file);
      writer.add("/raw", H5T_STD_U8LE, {2, 3, 4});
      writer.add("/group/other", H5T_STD_U8LE, size);
    }
    kept("/group/other too");
  }
  {
    File writer(file);
    writer.add("/1/2/3/4/5/6/7/8/9/10/other", H5T_STD_U8LE, {4});
  }
  kept("too many or unreadable objects");
  {
    File writer(file);
    for (int i = 0; i < 5000; ++i) {
      H5Gclose(H5Gcreate2(writer.id(), std::to_string(i).c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    }
  }
  kept("too many or unreadable objects");
  {
    File writer(file);
    writer.add("/raw", H5T_STD_U8LE, {2, 3, 4});
    H5Lcreate_external("b.h5", "/raw", writer.id(), "/elsewhere", H5P_DEFAULT, H5P_DEFAULT);
  }
  kept("/elsewhere too");
  write_bytes(file, "measurements of a year");
  kept("not a readable HDF5 file");
  File(file).add("/raw", H5T_STD_U8LE, {2, 3, 4});
  write_volume(VolumePath{file, "raw"}, volume);
  CHECK(equal(read_volume(file), volume));
}

TEST_CASE("booleans and enumerations are read as their numbers", "[io][hdf5]") {
  const Directory directory;
  const auto file = directory / "a.h5";
  for (const bool boolean : {true, false}) {
    const hid_t type = H5Tenum_create(boolean ? H5T_STD_I8LE : H5T_STD_U8LE);
    const char* const names[] = {boolean ? "FALSE" : "background", boolean ? "TRUE" : "cell", "membrane"};
    for (unsigned char value = 0; value < (boolean ? 2 : 3); ++value) H5Tenum_insert(type, names[value], &value);
    {
      File writer(file);
      const hsize_t size[] = {1, 2, 3};
      const hid_t space = H5Screate_simple(3, size, nullptr);
      const hid_t dataset = H5Dcreate2(writer.id(), "raw", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
      const unsigned char values[] = {0, 1, 1, 0, 1, static_cast<unsigned char>(boolean ? 0 : 2)};
      REQUIRE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
      H5Dclose(dataset);
      H5Sclose(space);
    }
    H5Tclose(type);
    CHECK(inspect_volume(file).element_type == (boolean ? "bool" : "uint8"));
    const auto volume = read_volume(file);
    const std::vector<float> expected{0, 1, 1, 0, 1, boolean ? 0.0f : 2.0f};
    for (std::size_t i = 0; i < 6; ++i) CHECK(volume.data()[i] == expected[i]);
  }
}

TEST_CASE("chunks of the filter lzf are decoded, and damaged ones are refused", "[io][hdf5]") {
  const Directory directory;
  const auto file = directory / "a.h5";
  // A run of literals: its length less one, and the bytes. A reference: 8 bytes from 1 byte back.
  std::string chunk("\x03\x05\x06\x07\x08", 5);
  chunk += std::string("\xc0\x00", 2);
  const std::vector<float> expected{5, 6, 7, 8, 8, 8, 8, 8, 8, 8, 8, 8};
  const auto write = [&](const std::string& bytes) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk_size[] = {1, 3, 4}, begin[] = {0, 0, 0};
    const unsigned values[] = {4, 0x106, 12};
    H5Pset_chunk(creation, 3, chunk_size);
    H5Zunregister(32000);  // our filter only decodes, so HDF5 makes a dataset with it only if it does not know it
    H5Pset_filter(creation, 32000, H5Z_FLAG_OPTIONAL, 3, values);
    File writer(file);
    const hid_t space = H5Screate_simple(3, chunk_size, nullptr);
    const hid_t dataset = H5Dcreate2(writer.id(), "raw", H5T_STD_U8LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    REQUIRE(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, begin, bytes.size(), bytes.data()) >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Pclose(creation);
  };
  write(chunk);
  const auto volume = read_volume(file);
  for (std::size_t i = 0; i < 12; ++i) CHECK(volume.data()[i] == expected[i]);
  for (const std::string& damaged : {chunk.substr(0, 6), std::string("\x40\x30\x30", 3), std::string(1, '\0')}) {
    write(damaged);
    CHECK(contains(refusal(directory, file), "data: cannot be read"));
  }
}
