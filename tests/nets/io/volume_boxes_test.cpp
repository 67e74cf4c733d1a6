// What every format must do: read any box, and take boxes in any order.
#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <thread>

#include "io_testing.hpp"

#include "nets/io/volume_sink.hpp"
#include "nets/io/volume_source.hpp"

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::io;
using namespace convolume::nets::testing;

namespace {

struct Case {
  const char* name;
  bool channels;  ///< takes more than one channel
  std::vector<VoxelType> types;
};

const std::vector<VoxelType> all_types{VoxelType::uint8,   VoxelType::int8,   VoxelType::uint16, VoxelType::int16,
                                       VoxelType::uint32,  VoxelType::int32,  VoxelType::uint64, VoxelType::int64,
                                       VoxelType::float32, VoxelType::float64};
const std::vector<VoxelType> tiff_types{VoxelType::uint8,  VoxelType::int8,    VoxelType::uint16, VoxelType::int16,
                                        VoxelType::uint32, VoxelType::float32, VoxelType::float64};

std::vector<Case> cases() {
  return {{"a.tif", false, tiff_types},
          {"a.h5:/deep/raw", true, all_types},
          {"a.nii", true, all_types},
          {"a.nii.gz", true, all_types},
          {"a.zarr", true, all_types},
          {"b.zarr:/s0", true, all_types},
          {"slices/*.png", false, {VoxelType::uint8, VoxelType::uint16}},
          {"slices_tiff/s_*.tif", false, tiff_types}};
}

/// The voxels of a whole volume, [c][z][y][x].
struct Volume {
  index_t channels;
  Extent3 extent;
  VoxelType type;
  std::vector<std::byte> voxels;

  Volume(index_t c, Extent3 e, VoxelType t)
      : channels(c), extent(e), type(t), voxels(static_cast<std::size_t>(c * e.volume()) * size_of(t)) {
    std::minstd_rand random(7);
    // Every byte pattern is a float, but not all of them compare equal to themselves.
    if (is_floating(t)) {
      std::vector<std::uint16_t> numbers(static_cast<std::size_t>(c * e.volume()));
      for (auto& number : numbers) number = static_cast<std::uint16_t>(random());
      convert_voxels(reinterpret_cast<const std::byte*>(numbers.data()), VoxelType::uint16, voxels.data(), t,
                     numbers.size());
    } else {
      for (auto& byte : voxels) byte = static_cast<std::byte>(random());
    }
  }

  std::vector<std::byte> box(ChannelRange range, const VoxelBox& part) const {
    const auto count = static_cast<std::size_t>(part.extent.volume()) * size_of(type);
    std::vector<std::byte> result(static_cast<std::size_t>(range.count) * count);
    for (index_t c = 0; c < range.count; ++c) {
      copy_overlap(voxels.data() + static_cast<std::size_t>((range.begin + c) * extent.volume()) * size_of(type),
                   {{0, 0, 0}, extent}, result.data() + static_cast<std::size_t>(c) * count, part, size_of(type));
    }
    return result;
  }
};

std::vector<std::byte> read(const VolumeSource& source, ChannelRange range, const VoxelBox& box) {
  std::vector<std::byte> voxels(static_cast<std::size_t>(range.count * box.extent.volume()) *
                                source.info().bytes_per_voxel());
  source.read(range, box, voxels);
  return voxels;
}

VolumePath path_of(const Directory& directory, const char* name) {
  VolumePath path = split_volume_path((directory / name).string());
  std::filesystem::create_directories(path.file.parent_path());
  return path;
}

void write(const VolumePath& path, const Volume& volume, SinkOptions options = {}) {
  options.channels = volume.channels;
  options.extent = volume.extent;
  options.type = volume.type;
  const auto sink = create_volume(path, options);
  sink->write({0, volume.channels}, {{0, 0, 0}, volume.extent}, volume.voxels);
  sink->finish();
}

/// Returns the boxes of a grid that does not agree with chunks, in a random order.
std::vector<VoxelBox> shuffled_boxes(const Extent3& extent, const Extent3& step) {
  std::vector<VoxelBox> boxes;
  for (index_t z = 0; z < extent.z; z += step.z) {
    for (index_t y = 0; y < extent.y; y += step.y) {
      for (index_t x = 0; x < extent.x; x += step.x) {
        boxes.push_back(
            {{z, y, x},
             {std::min(step.z, extent.z - z), std::min(step.y, extent.y - y), std::min(step.x, extent.x - x)}});
      }
    }
  }
  std::shuffle(boxes.begin(), boxes.end(), std::minstd_rand(3));
  return boxes;
}

}  // namespace

TEST_CASE("every format returns the voxels of every type, whole and in boxes, with channels", "[io][boxes]") {
  for (const Case& format : cases()) {
    for (const VoxelType type : format.types) {
      for (const index_t channels : {1, 3}) {
        if (channels > 1 && !format.channels) continue;
        CAPTURE(format.name, std::string(name_of(type)), channels);
        const Directory directory;
        const VolumePath path = path_of(directory, format.name);
        const Volume volume(channels, {7, 21, 37}, type);
        write(path, volume, {.chunk = {3, 8, 16}});
        const auto source = open_volume(path);
        CHECK(source->info().channels == channels);
        CHECK(source->info().extent == volume.extent);
        CHECK(source->info().type == type);
        CHECK(source->stored_bytes() > 0);
        CHECK(read(*source, {0, channels}, {{0, 0, 0}, volume.extent}) == volume.voxels);
        for (const VoxelBox& box : {VoxelBox{{0, 0, 0}, {1, 1, 1}}, VoxelBox{{6, 20, 36}, {1, 1, 1}},
                                    VoxelBox{{2, 5, 3}, {3, 9, 20}}, VoxelBox{{1, 0, 0}, {4, 21, 37}}}) {
          CHECK(read(*source, {0, channels}, box) == volume.box({0, channels}, box));
          CHECK(read(*source, {channels - 1, 1}, box) == volume.box({channels - 1, 1}, box));
        }
      }
    }
  }
}

TEST_CASE("every format takes boxes in any order, with little memory too", "[io][boxes]") {
  for (const Case& format : cases()) {
    for (const std::size_t memory : {std::size_t{1} << 20, std::size_t{2000}}) {
      CAPTURE(format.name, memory);
      const Directory directory;
      const VolumePath path = path_of(directory, format.name);
      const Volume volume(format.channels ? 2 : 1, {9, 20, 33}, VoxelType::uint16);
      const auto sink = create_volume(path, {.channels = volume.channels,
                                             .extent = volume.extent,
                                             .type = volume.type,
                                             .chunk = {4, 8, 16},
                                             .memory = memory});
      for (const VoxelBox& box : shuffled_boxes(volume.extent, {2, 7, 10})) {
        for (index_t c = volume.channels - 1; c >= 0; --c) sink->write({c, 1}, box, volume.box({c, 1}, box));
      }
      CHECK_THROWS_AS(open_volume(path), Error);  // nothing has the name before all is complete
      sink->finish();
      const auto source = open_volume(path);
      CHECK(read(*source, {0, volume.channels}, {{0, 0, 0}, volume.extent}) == volume.voxels);
    }
  }
}

TEST_CASE("several threads read one source", "[io][boxes]") {
  for (const Case& format : cases()) {
    CAPTURE(format.name);
    const Directory directory;
    const VolumePath path = path_of(directory, format.name);
    const Volume volume(1, {12, 40, 50}, VoxelType::uint8);
    write(path, volume, {.chunk = {4, 16, 16}});
    const auto source = open_volume(path);
    std::array<bool, 4> good{};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < good.size(); ++i) {
      threads.emplace_back([&, i] {
        bool same = true;
        for (const VoxelBox& box : shuffled_boxes(volume.extent, {5, 11 + static_cast<index_t>(i), 17})) {
          same = same && read(*source, {0, 1}, box) == volume.box({0, 1}, box);
        }
        good[i] = same;
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(std::all_of(good.begin(), good.end(), [](bool each) { return each; }));
  }
}

TEST_CASE("boxes beyond a volume and volumes that are not complete are refused", "[io][boxes]") {
  for (const Case& format : cases()) {
    CAPTURE(format.name);
    const Directory directory;
    const VolumePath path = path_of(directory, format.name);
    const Volume volume(1, {2, 4, 5}, VoxelType::uint8);
    {
      const auto sink = create_volume(path, {.extent = volume.extent, .type = volume.type});
      const VoxelBox first{{0, 0, 0}, {1, 4, 5}};
      sink->write({0, 1}, first, volume.box({0, 1}, first));
      CHECK_THROWS_AS(sink->write({0, 1}, {{1, 0, 0}, {2, 4, 5}}, std::vector<std::byte>(40)), InvalidArgument);
      CHECK_THROWS_AS(sink->write({1, 1}, first, std::vector<std::byte>(20)), InvalidArgument);
      CHECK_THROWS_AS(sink->write({0, 1}, {{1, 0, 0}, {1, 4, 5}}, std::vector<std::byte>(21)), InvalidArgument);
      CHECK(contains(message_of<InvalidArgument>([&] { sink->finish(); }), "20 of 40 voxels were written"));
    }
    CHECK_THROWS_AS(open_volume(path), Error);
    // Nothing is left of the part that was written.
    CHECK(std::filesystem::is_empty(path.file.parent_path()));
    write(path, volume);
    const auto source = open_volume(path);
    std::vector<std::byte> voxels(40);
    CHECK_THROWS_AS(source->read({0, 1}, {{0, 0, 1}, {2, 4, 5}}, voxels), InvalidArgument);
    CHECK_THROWS_AS(source->read({0, 2}, {{0, 0, 0}, {2, 4, 5}}, voxels), InvalidArgument);
    CHECK_THROWS_AS(source->read({0, 1}, {{0, 0, 0}, {1, 4, 5}}, voxels), InvalidArgument);
  }
}

TEST_CASE("equal voxels in the same order give equal bytes in every format", "[io][boxes]") {
  for (const char* name : {"a.tif", "a.h5", "a.nii", "a.nii.gz"}) {
    CAPTURE(name);
    const Directory first, second;
    const Volume volume(1, {9, 20, 33}, VoxelType::uint16);
    for (const Directory* directory : {&first, &second}) write(path_of(*directory, name), volume);
    CHECK(read_bytes(first / name) == read_bytes(second / name));
  }
  const Directory first, second;
  const Volume volume(1, {9, 20, 33}, VoxelType::uint16);
  for (const Directory* directory : {&first, &second}) write(path_of(*directory, "a.zarr"), volume);
  for (const char* name : {"a.zarr/.zarray", "a.zarr/.zattrs", "a.zarr/0.0.0"}) {
    CHECK(!read_bytes(first / name).empty());
    CHECK(read_bytes(first / name) == read_bytes(second / name));
  }
}

TEST_CASE("a full disk leaves what had the name, in every format", "[io][boxes]") {
  for (const Case& format : cases()) {
    if (contains(format.name, "*")) continue;  // slices are written into an empty folder
    CAPTURE(format.name);
    const Directory directory;
    const VolumePath path = path_of(directory, format.name);
    const Volume old(1, {2, 3, 4}, VoxelType::uint8), large(1, {8, 64, 64}, VoxelType::uint16);
    write(path, old);
    const auto files = directory.files();
    std::string message;
    {
      const FullDisk full(8192);
      message = message_of<IoError>([&] { write(path, large, {.chunk = {8, 64, 64}, .codec = Codec::automatic}); });
    }
    CHECK(contains(message, "File too large"));
    CHECK(directory.files() == files);
    CHECK(read(*open_volume(path), {0, 1}, {{0, 0, 0}, old.extent}) == old.voxels);
  }
}

TEST_CASE("spacing goes through every format that has a place for it", "[io][boxes]") {
  for (const char* name : {"a.tif", "a.h5", "a.nii", "a.nii.gz", "a.zarr"}) {
    CAPTURE(name);
    const Directory directory;
    const VolumePath path = path_of(directory, name);
    const Volume volume(1, {2, 3, 4}, VoxelType::uint8);
    write(path, volume, {.spacing = Spacing{{0.05, 0.004, 0.005}, "um"}});
    const auto spacing = open_volume(path)->info().spacing;
    REQUIRE(spacing.has_value());
    CHECK(spacing->unit == "um");
    CHECK(spacing->zyx[0] == Approx(0.05));
    CHECK(spacing->zyx[1] == Approx(0.004));
    CHECK(spacing->zyx[2] == Approx(0.005));
  }
}

TEST_CASE("units of length are converted, and unknown ones are not taken for micrometres", "[io][boxes]") {
  using Unit = std::pair<const char*, double>;
  for (const char* name : {"a.h5", "a.zarr"}) {
    for (const auto& [unit, micrometres] :
         {Unit{"nm", 1e-3}, Unit{"nanometer", 1e-3}, Unit{"angstrom", 1e-4}, Unit{"um", 1}, Unit{"micron", 1},
          Unit{"\u00b5m", 1}, Unit{"mm", 1e3}, Unit{"centimeter", 1e4}, Unit{"m", 1e6}, Unit{"kilometer", 1e9},
          Unit{"inch", 25400}, Unit{"yard", 914400}, Unit{"", 0}, Unit{"pixel", 0}, Unit{"second", 0}}) {
      CAPTURE(name, unit);
      const Directory directory;
      const VolumePath path = path_of(directory, name);
      write(path, Volume(1, {2, 3, 4}, VoxelType::uint8), {.spacing = Spacing{{4, 2, 1}, unit}});
      const auto spacing = open_volume(path)->info().spacing;
      REQUIRE(spacing.has_value() == (micrometres > 0));
      if (!spacing) continue;
      CHECK(spacing->unit == "um");
      CHECK(spacing->zyx[0] == Approx(4 * micrometres));
      CHECK(spacing->zyx[2] == Approx(micrometres));
    }
  }
}

TEST_CASE("a volume is not finished after a write that failed", "[io][boxes]") {
  for (const Case& format : cases()) {
    CAPTURE(format.name);
    const Directory directory;
    const VolumePath path = path_of(directory, format.name);
    const Volume volume(1, {2, 64, 64}, VoxelType::uint16);
    {
      const auto sink = create_volume(path, {.extent = volume.extent, .type = volume.type, .memory = 0});
      const auto write_plane = [&](index_t z) {
        const VoxelBox plane{{z, 0, 0}, {1, 64, 64}};
        sink->write({0, 1}, plane, volume.box({0, 1}, plane));
      };
      {
        const FullDisk full(16);
        CHECK_THROWS_AS((write_plane(1), write_plane(0)), IoError);
      }
      CHECK(contains(message_of<IoError>([&] { write_plane(1); }), "an earlier write failed"));
      CHECK(contains(message_of<IoError>([&] { sink->finish(); }), "an earlier write failed"));
    }
    CHECK(std::filesystem::is_empty(path.file.parent_path()));
  }
}

TEST_CASE("a volume with voxels that were written twice and others never is not finished", "[io][boxes]") {
  for (const char* name : {"a.tif", "a.h5", "a.nii.gz", "slices/*.png"}) {
    CAPTURE(name);
    const Directory directory;
    const VolumePath path = path_of(directory, name);
    const Volume volume(1, {2, 4, 5}, VoxelType::uint8);
    const auto sink = create_volume(path, {.extent = volume.extent, .type = volume.type, .chunk = {1, 4, 5}});
    const VoxelBox plane{{0, 0, 0}, {1, 4, 5}};
    for (int i = 0; i < 2; ++i) sink->write({0, 1}, plane, volume.box({0, 1}, plane));
    CHECK(contains(message_of<InvalidArgument>([&] { sink->finish(); }), "write each voxel once"));
  }
}

TEST_CASE("two volumes of one name are written at once, and the last to finish has the name", "[io][boxes]") {
  for (const char* name : {"a.tif", "a.h5", "a.nii", "a.nii.gz"}) {
    CAPTURE(name);
    const Directory directory;
    const VolumePath path = path_of(directory, name);
    const Volume one(1, {2, 4, 5}, VoxelType::uint8), two(1, {3, 6, 7}, VoxelType::uint16);
    const auto first = create_volume(path, {.extent = one.extent, .type = one.type});
    const auto second = create_volume(path, {.extent = two.extent, .type = two.type});
    first->write({0, 1}, {{0, 0, 0}, one.extent}, one.voxels);
    second->write({0, 1}, {{0, 0, 0}, two.extent}, two.voxels);
    second->finish();
    CHECK(read(*open_volume(path), {0, 1}, {{0, 0, 0}, two.extent}) == two.voxels);
    first->finish();
    CHECK(read(*open_volume(path), {0, 1}, {{0, 0, 0}, one.extent}) == one.voxels);
    CHECK(directory.files() == 1);
  }
}

TEST_CASE("a path that no format takes is refused with a reason per format", "[io][boxes]") {
  const Directory directory;
  write_bytes(directory / "notes.txt", "no volume");
  const auto message = message_of<FormatError>([&] { open_volume((directory / "notes.txt").string()); });
  for (const char* reason : {"slices: the path has no *", "Zarr: not a folder", "TIFF: does not begin",
                             "NIfTI: does not begin", "HDF5: does not begin"}) {
    CHECK(contains(message, reason));
  }
  const auto unknown = message_of<InvalidArgument>([&] {
    create_volume({directory / "a.mha", ""}, {.extent = {2, 3, 4}});
  });
  CHECK(contains(unknown, ".nii.gz"));
  CHECK(contains(message_of<FormatError>([&] { open_volume((directory / "").string()); }), "FOLDER/*.tif"));
}

TEST_CASE("conversion of voxels rounds, and says which voxel does not fit", "[io][boxes]") {
  const std::array<double, 6> from{0.4, 254.6, 255.4, 255.6, -0.6, 1e300};
  std::array<std::uint8_t, 6> to{};
  const auto bytes = [](auto& array) { return reinterpret_cast<std::byte*>(array.data()); };
  auto copy = from;
  CHECK(convert_voxels(bytes(copy), VoxelType::float64, bytes(to), VoxelType::uint8, 3) == 3);
  CHECK(convert_voxels(bytes(copy), VoxelType::float64, bytes(to), VoxelType::uint8, 6) == 3);
  CHECK(to == std::array<std::uint8_t, 6>{0, 255, 255, 255, 0, 255});
  std::array<std::uint64_t, 2> ids{(std::uint64_t{1} << 63) - 1, ~std::uint64_t{0}};
  std::array<std::int64_t, 2> numbers{};
  CHECK(convert_voxels(bytes(ids), VoxelType::uint64, bytes(numbers), VoxelType::int64, 2) == 1);
  CHECK(numbers[0] == std::numeric_limits<std::int64_t>::max());
  std::array<float, 2> edge{std::ldexp(1.0f, 63), std::nextafter(std::ldexp(1.0f, 63), 0.0f)};
  CHECK(convert_voxels(bytes(edge), VoxelType::float32, bytes(numbers), VoxelType::int64, 2) == 0);
  CHECK(numbers[1] == 9223371487098961920);
  CHECK_THROWS_AS(parse_voxel_type("float16"), InvalidArgument);
}
