// Arrays that are filled chunk by chunk, what inference writes into them, and the columns that fit into memory.
#include <cstring>
#include <fstream>
#include <limits>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "nets/infer/inference_manifest.hpp"
#include "nets/infer/inference_windows.hpp"
#include "nets/infer/part_sink.hpp"
#include "nets/infer/predictor.hpp"
#include "nets/io/partial_zarr.hpp"
#include "nets/io/volume_source.hpp"
#include "nets/spec/net_spec.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;

const io::SinkOptions small{.channels = 2, .extent = {5, 9, 11}, .type = io::VoxelType::uint16, .chunk = {3, 4, 6}};

std::vector<std::byte> voxels_of(const io::ChunkPlace& place) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(place.box.extent.volume()) * 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i + static_cast<std::size_t>(place.number));
  return bytes;
}

/// Stages all chunks, or every second one.
void stage_all(io::PartialZarr& zarr, index_t step = 1) {
  zarr.grid().for_each({0, 2}, {{0, 0, 0}, small.extent}, [&](const io::ChunkPlace& place) {
    if (place.number % step == 0 && !zarr.has(place)) zarr.stage(place, voxels_of(place));
  });
}

bool says(const std::function<void()>& body, const std::vector<std::string>& parts) {
  try {
    body();
  } catch (const Error& error) {
    const std::string text = error.what();
    INFO(text);
    for (const std::string& part : parts) CHECK(text.find(part) != std::string::npos);
    return true;
  }
  return false;
}

NetSpec three_classes() {
  return parse_net(
      "name = 'net'\n[input]\npatch = [4, 20, 20]\n[[node]]\nname = 'a'\ntype = 'conv'\nout_channels = 3\nkernel = [1, "
      "3, 3]\n[loss]\nkind = 'softmax_cross_entropy'\n",
      "net.toml");
}

}  // namespace

TEST_CASE("published chunks survive the process that wrote them, staged ones do not", "[part]") {
  const test::TemporaryFolder folder;
  const fs::path place = folder / "v.zarr.part";
  {
    const auto zarr = io::PartialZarr::create(place, small, "a manifest");
    stage_all(*zarr, 2);
    CHECK(zarr->finished() == 0);
    zarr->publish();
    CHECK(zarr->finished() == zarr->grid().count() / 2);
    stage_all(*zarr);  // never published
    CHECK_FALSE(zarr->has(io::VoxelBox{{0, 0, 0}, small.extent}));
  }
  {
    const auto zarr = io::PartialZarr::open(place);
    CHECK(zarr->manifest() == "a manifest");
    CHECK(zarr->finished() == zarr->grid().count() / 2);
    CHECK(zarr->extent() == small.extent);
    stage_all(*zarr);
    zarr->publish();
    CHECK(zarr->has(io::VoxelBox{{0, 0, 0}, small.extent}));
    zarr->move_to({folder / "v.zarr", ""});
  }
  CHECK_FALSE(fs::exists(place));
  const auto source = io::open_volume(io::VolumePath{folder / "v.zarr", ""});
  CHECK(source->info().channels == 2);
  const auto grid = io::ChunkGrid(2, small.extent, 1, small.chunk);
  grid.for_each({0, 2}, {{0, 0, 0}, small.extent}, [&](const io::ChunkPlace& chunk) {
    std::vector<std::byte> read(voxels_of(chunk).size());
    source->read({chunk.c, 1}, chunk.box, read);
    CHECK(read == voxels_of(chunk));
  });
  std::vector<std::string> hidden;
  for (const auto& entry : fs::directory_iterator(folder / "v.zarr")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".")) hidden.push_back(name);
  }
  std::sort(hidden.begin(), hidden.end());
  CHECK(hidden == std::vector<std::string>{".zarray", ".zattrs"});
}

TEST_CASE("an array in progress is refused to a second process, and a folder that exists to a new one", "[part]") {
  const test::TemporaryFolder folder;
  const fs::path place = folder / "v.part";
  CHECK(says([&] { io::PartialZarr::open(place); }, {"v.part", "nothing to resume"}));
  const auto zarr = io::PartialZarr::create(place, small, "m");
  CHECK(says([&] { io::PartialZarr::create(place, small, "m"); }, {"v.part", "exists"}));
  CHECK(says([&] { io::PartialZarr::open(place); }, {"v.part", "another process"}));
  fs::create_directory(folder / "empty.part");
  CHECK(says([&] { io::PartialZarr::open(folder / "empty.part"); }, {"empty.part", "cannot be resumed"}));
}

TEST_CASE("an array that moves into a Zarr makes its groups and keeps the others", "[part]") {
  const test::TemporaryFolder folder;
  for (const char* inside : {"/p/q/s0", "/s1/", "/s1"}) {
    const auto zarr = io::PartialZarr::create(folder / "v.part", small, "m");
    stage_all(*zarr);
    zarr->publish();
    zarr->move_to({folder / "v.zarr", inside});
    CHECK(io::open_volume(io::VolumePath{folder / "v.zarr", inside})->info().extent == small.extent);
  }
  for (const char* group : {"v.zarr", "v.zarr/p", "v.zarr/p/q"}) CHECK(fs::exists(folder.path() / group / ".zgroup"));
  CHECK_FALSE(fs::exists(folder / "v.zarr/s1/.zgroup"));
}

TEST_CASE("stored voxels are probabilities, bytes or the most probable classes", "[part]") {
  const test::TemporaryFolder folder;
  const Extent3 extent{3, 2, 4};
  const index_t plane = 8, channels = 3;
  std::vector<float> p(static_cast<std::size_t>(channels * plane));
  for (std::size_t v = 0; v < 8; ++v) {
    p[v] = 0.2f;
    p[8 + v] = v % 2 == 0 ? 0.5f : 0.2f;
    p[16 + v] = v % 2 == 0 ? 0.3f : 0.6f;
  }
  const auto stored = [&](Stored how, index_t of_net) {
    const fs::path part = folder / "part";
    const auto zarr = io::PartialZarr::create(part, stored_as(how, of_net, extent), "m");
    PartSink sink(*zarr, how, of_net, "out");
    Scheduler scheduler(2);
    sink.begin({{0, 0, 0}, extent});
    CHECK(sink.needs({{0, 0, 0}, extent}));
    for (index_t z = 0; z < 3; ++z) sink.put(z, p.data(), plane);
    CHECK(sink.layer_end(0) == 3);
    sink.finished(3, scheduler);
    CHECK_FALSE(sink.needs({{0, 0, 0}, extent}));
    const auto source = io::open_volume(io::VolumePath{part, ""});
    auto volume = StoredVolume::read(*source, {{0, 0, 0}, extent}, std::pmr::get_default_resource());
    zarr->remove();
    return volume;
  };
  const StoredVolume labels = stored(Stored::classes, 3), bytes = stored(Stored::bytes, 3),
                     floats = stored(Stored::probabilities, 3);
  CHECK(labels.type() == io::VoxelType::uint8);
  CHECK(labels.shape().c == 1);
  CHECK(bytes.type() == io::VoxelType::uint8);
  CHECK(floats.type() == io::VoxelType::float32);
  for (index_t v = 0; v < extent.volume(); ++v) {
    CHECK(labels.value(v) == (v % 2 == 0 ? 1.0f : 2.0f));
    CHECK(bytes.value(v) == 51);
    CHECK(floats.value(24 + v) == (v % 2 == 0 ? 0.5f : 0.2f));
  }
  const StoredVolume binary = stored(Stored::binary, 3);
  CHECK(binary.type() == io::VoxelType::uint8);
  CHECK(binary.shape().c == 3);
  for (index_t v = 0; v < extent.volume(); ++v) {
    CHECK(binary.value(v) == 0);
    CHECK(binary.value(24 + v) == (v % 2 == 0 ? 1.0f : 0.0f));
    CHECK(binary.value(48 + v) == (v % 2 == 0 ? 0.0f : 1.0f));
  }
  p[0] = 0.5f;
  CHECK(stored(Stored::binary, 1).value(0) == 1);
  CHECK(stored_as(Stored::classes, 257, extent).type == io::VoxelType::uint16);
  p[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(stored(Stored::bytes, 1), NumericalError);
}

TEST_CASE("columns consist of whole chunks, fit into memory, and cover the region once", "[part]") {
  const NetSpec spec = three_classes();
  const io::VoxelBox region{{2, 10, 20}, {100, 700, 900}};
  const PatchGrid grid = make_patch_grid(spec, region.extent, {.patch = Extent3{8, 66, 66}});
  io::VolumeInfo volume;
  volume.extent = {110, 720, 1000};
  volume.type = io::VoxelType::uint8;
  volume.chunk = {64, 64, 64};
  const InferenceNeeds needs{.grid = grid,
                             .region = region,
                             .volume = volume,
                             .channels = 3,
                             .stored = stored_as(Stored::probabilities, 3, region.extent),
                             .threads = 2,
                             .fixed = std::size_t{10} << 20};
  const InferenceWindows whole = choose_windows(needs, std::size_t{1} << 40);
  CHECK(whole.columns.size() == 1);
  CHECK(whole.patches == grid.patches());
  std::size_t last = 1;
  for (std::size_t memory = whole.bytes; memory > std::size_t{40} << 20; memory = memory / 4 * 3) {
    const InferenceWindows windows = choose_windows(needs, memory);
    CHECK(windows.bytes <= memory);
    CHECK(windows.columns.size() >= last);
    CHECK(windows.patches == computed_patches(grid, windows.columns));
    last = windows.columns.size();
    index_t voxels = 0;
    for (const io::VoxelBox& column : windows.columns) {
      voxels += column.extent.volume();
      for (int axis = 1; axis < 3; ++axis) {
        CHECK(column.begin[axis] % 64 == 0);
        CHECK((column.end()[axis] % 64 == 0 || column.end()[axis] == region.extent[axis]));
      }
    }
    CHECK(voxels == region.extent.volume());
  }
  CHECK(last > 4);
  CHECK(says([&] { choose_windows(needs, std::size_t{11} << 20); }, {"--memory 11M", "needs at least"}));
}

TEST_CASE("a manifest names the fact that differs", "[part]") {
  const InferenceManifest manifest{.facts = {{"net", "abc"}, {"--patch", "8 x 8 x 8"}},
                                   .scaling = {{{0.1, 1.0 / 3}, {.shift = 2, .low = -1, .high = 3}}, 2},
                                   .numerics = "simd = AVX2\n"};
  const auto read = InferenceManifest::from_text("x.part", manifest.to_text());
  CHECK(read.facts == manifest.facts);
  CHECK(read.numerics == manifest.numerics);
  CHECK(read.scaling.list == manifest.scaling.list);
  CHECK(read.scaling.planes == 2);
  CHECK_NOTHROW(read.require_equal(manifest, "x.part"));
  InferenceManifest other = manifest;
  other.facts[1].second = "4 x 8 x 8";
  CHECK(says([&] { read.require_equal(other, "x.part"); }, {"x.part", "--patch '8 x 8 x 8'", "--patch '4 x 8 x 8'"}));
  other = manifest;
  other.numerics = "simd = SSE4\n";
  CHECK(says([&] { read.require_equal(other, "x.part"); }, {"x.part", "simd"}));
  for (const char* text : {"", "{}", "[1]", "{\"inference\": 2}", "{\"inference\": 1, \"facts\": 3}"}) {
    CHECK_THROWS_AS(InferenceManifest::from_text("x.part", text), FormatError);
  }
}

}  // namespace convolume::nets
