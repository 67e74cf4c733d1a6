#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "io_testing.hpp"

#include "nets/io/volume.hpp"
#include "nets/io/volume_source.hpp"

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::io;
using namespace convolume::nets::testing;

TEST_CASE("equal volumes give equal bytes at any time", "[io][volume]") {
  const Directory directory;
  const auto volume = ramp({1, 1, {2, 3, 4}});
  for (const char* dataset : {"/volume", "/deep/er/volume", "flat"}) {
    for (const char* name : {"first.h5", "second.h5"}) std::filesystem::remove(directory / name);
    write_volume(VolumePath{directory / "first.h5", dataset}, volume);
    std::this_thread::sleep_for(std::chrono::milliseconds(1050));  // HDF5 stores times in seconds
    write_volume(VolumePath{directory / "second.h5", dataset}, volume);
    CHECK(read_bytes(directory / "first.h5") == read_bytes(directory / "second.h5"));
  }
}

TEST_CASE("float volumes come back bit for bit, from dense and strided views", "[io][volume]") {
  const Directory directory;
  for (const char* name : {"volume.tif", "volume.TIFF", "volume.h5", "volume.hdf5"}) {
    const auto file = directory / name;
    for (const Extent3 extent : {Extent3{1, 1, 1}, Extent3{3, 5, 7}, Extent3{20, 70, 130}}) {
      CAPTURE(name, to_string(extent));
      const auto volume = ramp({1, 1, extent}, 0.37f);
      write_volume(file, volume);
      CHECK(equal(read_volume(file), volume));
      CHECK(inspect_volume(file).element_type == "float32");
      CHECK(inspect_volume(file).extent == extent);
      const std::string first = read_bytes(file);
      write_volume(file, volume);
      CHECK(read_bytes(file) == first);
    }
    const auto large = ramp({1, 1, {4, 6, 8}});
    auto inner = large.view();
    inner.shape.extent = {2, 3, 4};
    inner.data = &inner(0, 0, 1, 2, 3);
    inner.stride = {0, 0, 48, 8, 1};
    write_volume(file, inner);
    CHECK(equal(read_volume(file), inner));
  }
  CHECK(directory.files() == 4);
}

TEST_CASE("uint8 output rounds and clamps 0..1", "[io][volume]") {
  const Directory directory;
  Tensor<float> volume({1, 1, {1, 2, 3}});
  const float values[] = {-0.5f, 0.0f, 0.5f, 0.2f, 1.0f, 7.0f};
  const float expected[] = {0, 0, 128, 51, 255, 255};
  std::copy(std::begin(values), std::end(values), volume.data());
  for (const char* name : {"bytes.tif", "bytes.h5"}) {
    write_volume(directory / name, volume, {.element_type = ElementType::uint8});
    CHECK(inspect_volume(directory / name).element_type == "uint8");
    const auto read = read_volume(directory / name);
    CHECK(std::equal(std::begin(expected), std::end(expected), read.data()));
  }
  volume.data()[3] = std::numeric_limits<float>::quiet_NaN();
  for (const char* name : {"nan.tif", "nan.h5"}) {
    CHECK_THROWS_AS(write_volume(directory / name, volume, {.element_type = ElementType::uint8}), NumericalError);
    CHECK_FALSE(std::filesystem::exists(directory / name));
  }
}

TEST_CASE("volumes that a format cannot hold are refused with a remedy", "[io][volume]") {
  const Directory directory;
  const auto two = ramp({1, 2, {2, 3, 4}});
  CHECK(contains(message_of<InvalidArgument>([&] { write_volume(directory / "two.tif", two); }), "HDF5"));
  CHECK(contains(message_of<InvalidArgument>([&] { write_volume(directory / "two.png", two); }), ".h5"));
  CHECK_THROWS_AS(write_volume(directory / "none.h5", {}), InvalidArgument);
  CHECK_THROWS_AS(write_volume(directory / "batch.h5", ramp({2, 1, {2, 3, 4}})), InvalidArgument);
  CHECK_THROWS_AS(write_volume(directory / "empty.h5", ramp({1, 1, {0, 3, 4}})), InvalidArgument);
  CHECK_THROWS_AS(write_volume(VolumePath{directory / "name.h5", "/a/"}, two), InvalidArgument);
  CHECK(contains(message_of<IoError>([&] { write_volume(directory / "no/such/dir.h5", two); }), "does not exist"));
  std::filesystem::create_directory(directory / "directory.tif");
  CHECK_THROWS_AS(write_volume(directory / "directory.tif", ramp({1, 1, {2, 3, 4}})), IoError);
  CHECK(directory.files() == 1);
}

TEST_CASE("a full disk leaves the old volume and nothing else", "[io][volume]") {
  const Directory directory;
  const auto old = ramp({1, 1, {2, 3, 4}});
  Tensor<float> large({1, 1, {4, 64, 64}});
  for (index_t i = 0; i < large.elements(); ++i) large.data()[i] = static_cast<float>(i * 7919 % 10007);
  for (const char* name : {"old.tif", "old.h5"}) {
    const auto file = directory / name;
    write_volume(file, old);
    const std::string before = read_bytes(file);
    const auto files = directory.files();
    std::string message;
    {
      const FullDisk full(4096);
      message = message_of<IoError>([&] { write_volume(file, large); });
    }
    CHECK(contains(message, file.string()));
    CHECK(contains(message, "File too large"));
    CHECK(read_bytes(file) == before);
    CHECK(directory.files() == files);
  }
  const auto full = message_of<IoError>([&] { write_volume("/dev/full/x.tif", old); });
  CHECK(contains(full, "/dev/full/x.tif"));
}

TEST_CASE("a file with other datasets is not replaced", "[io][volume]") {
  const Directory directory;
  const auto volume = ramp({1, 1, {2, 3, 4}});
  const VolumePath first{directory / "a.h5", "/first"};
  write_volume(first, volume);
  write_volume(first, volume);
  CHECK(contains(message_of<IoError>([&] { write_volume(VolumePath{first.file, "/second"}, volume); }), "/first too"));
  CHECK(equal(read_volume(first), volume));
}

TEST_CASE("path and dataset are told apart", "[io][volume]") {
  const auto is = [](const char* text, const char* file, const char* inside) {
    const VolumePath path = split_volume_path(text);
    return path.file == file && path.inside == inside;
  };
  CHECK(is("file.h5:/raw", "file.h5", "/raw"));
  CHECK(is("/a:b/file.HDF5:g/raw", "/a:b/file.HDF5", "g/raw"));
  CHECK(is("file.h5", "file.h5", ""));
  CHECK(is("a:/b.tif", "a:/b.tif", ""));
  CHECK(is("a.zarr:/s0/1", "a.zarr", "/s0/1"));
  CHECK(is("", "", ""));
}
