// Tests volumes in memory: training on them and predicting them gives the bits of files with the same voxels.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <stop_token>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "convolume/error.hpp"
#include "convolume/nets.hpp"
#include "core/random.hpp"

namespace convolume::nets {
namespace {

const std::string net = R"(
name = "tiny"
[input]
patch = [4, 12, 12]
[[node]]
name = "a"
type = "conv"
out_channels = 3
kernel = [1, 3, 3]
padding = "same"
activation = "relu"
[[node]]
name = "logits"
type = "conv"
out_channels = 1
kernel = 3
padding = "same"
[optimizer]
kind = "sgd"
learning_rate = 0.01
[training]
batch = 1
iterations = 3
validate_every = 3
)";

std::string read(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const std::filesystem::path& file, const std::string& text) { std::ofstream(file) << text; }

/// An image and a label of uint8, and files with the same voxels.
struct Example {
  explicit Example(std::uint64_t seed = 1) {
    for (std::size_t i = 0; i < image.size(); ++i) {
      image[i] = static_cast<std::uint8_t>(uniform_below({.seed = seed, .a = 1}, i, 256));
      label[i] = image[i] > 127 ? 1 : 0;
    }
  }
  static constexpr Extent3 extent{6, 20, 24};
  std::vector<std::uint8_t> image = std::vector<std::uint8_t>(static_cast<std::size_t>(extent.volume()));
  std::vector<std::uint8_t> label = image;

  static ArrayView view(const std::vector<std::uint8_t>& voxels) {
    return {.voxels = voxels.data(), .type = "uint8", .extent = extent, .spacing = std::array{2.0, 1.0, 1.0}};
  }
  void save(const std::filesystem::path& folder) const {
    const ArrayVolume images(view(image)), labels(view(label));
    convert_volume({.input = images.path(), .output = folder / "image.nii", .type = ""});
    convert_volume({.input = labels.path(), .output = folder / "label.nii", .type = ""});
  }
};

std::string description(const std::string& image, const std::string& label) {
  std::string text = "name = \"test\"\n[spacing]\ntarget = [2.0, 1.5, 1.5]\n[augment]\nflip = [\"y\", \"x\"]\n";
  for (const char* split : {"train", "validation"}) {
    text += fmt::format("[[{}]]\nimage = \"{}\"\nlabel = \"{}\"\n", split, image, label);
  }
  return text;
}

/// A folder with the files of an example, a net, and a run on them in "files".
struct TrainedOnFiles {
  TrainedOnFiles() {
    const std::filesystem::path& at = folder.path();
    example.save(at);
    write(at / "net.toml", net);
    write(at / "data.toml", description("image.nii", "label.nii"));
    train({.net = at / "net.toml", .data = at / "data.toml", .out = at / "files", .threads = 1});
  }
  test::TemporaryFolder folder;
  Example example;
};

}  // namespace

TEST_CASE("training on arrays writes the checkpoint of training on files with the same voxels") {
  const TrainedOnFiles files;
  const Example& example = files.example;
  const auto at = [&](const char* name) { return files.folder.path() / name; };

  const ArrayVolume image(Example::view(example.image)), label(Example::view(example.label));
  TrainOptions options{.net = at("net.toml"), .data = "arrays", .out = at("arrays"), .threads = 2};
  options.data_text = description(image.path(), label.path());
  train(options);
  CHECK(read(at("files") / "checkpoints/last.safetensors") == read(at("arrays") / "checkpoints/last.safetensors"));

  options.resume = true;
  options.iterations = 4;
  SECTION("and is resumed on the same voxels under another path") {
    const std::vector<std::uint8_t> copy = example.image;
    const ArrayVolume again(Example::view(copy));
    options.data_text = description(again.path(), label.path());
    CHECK(train(options).iteration == 4);
  }
  SECTION("and is not resumed on other voxels") {
    const Example others(2);
    const ArrayVolume other(Example::view(others.image)), other_label(Example::view(others.label));
    options.data_text = description(other.path(), other_label.path());
    CHECK_THROWS_WITH(train(options), Catch::Contains("was trained on other data"));
  }
}

TEST_CASE("a predictor of arrays has the bits of an inference of files, for each kind of voxels and with resampling") {
  const TrainedOnFiles files;
  const Example& example = files.example;
  const auto at = [&](const char* name) { return files.folder.path() / name; };

  InferOptions options{.checkpoint = at("files") / "checkpoints/last.safetensors"};
  options.patch = Extent3{4, 8, 8};
  options.flip = {false, true, false};
  int number = 0;
  for (const bool labels : {false, true}) {
    for (const bool as_uint8 : {false, true}) {
      if (labels && as_uint8) continue;
      CAPTURE(labels, as_uint8);
      options.labels = labels;
      options.as_uint8 = as_uint8;
      VolumePredictor predictor(options);
      InferOptions to_file = options;
      to_file.volume = at("image.nii").string();
      to_file.output = at("") / fmt::format("out{}.h5", ++number);
      to_file.threads = 2;
      REQUIRE(infer(to_file));

      const auto shape = predictor.output_for(Example::view(example.image));
      CHECK(shape.type == (labels || as_uint8 ? "uint8" : "float32"));
      CHECK(shape.channels == 1);
      CHECK(shape.extent == Example::extent);
      std::vector<float> prediction(example.image.size(), -1);
      for (int call = 0; call < 2; ++call) REQUIRE(predictor.predict(Example::view(example.image), prediction.data()));
      // Scores of a volume against itself would hide differences, so the voxels are written and compared as bytes.
      const ArrayView view{.voxels = prediction.data(), .type = shape.type, .extent = shape.extent};
      const ArrayVolume ours(view);
      convert_volume({.input = ours.path(), .output = at("ours.npy.zarr"), .type = ""});
      convert_volume({.input = to_file.output.string(), .output = at("theirs.npy.zarr"), .type = ""});
      std::size_t chunks = 0;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(at("ours.npy.zarr"))) {
        if (!entry.is_regular_file() || entry.path().filename().string().starts_with(".z")) continue;
        ++chunks;
        CHECK(read(entry.path()) ==
              read(at("theirs.npy.zarr") / std::filesystem::relative(entry.path(), at("ours.npy.zarr"))));
      }
      CHECK(chunks > 0);
      std::filesystem::remove_all(at("ours.npy.zarr"));
      std::filesystem::remove_all(at("theirs.npy.zarr"));
    }
  }
  options.labels = options.as_uint8 = false;
  SECTION("a region is predicted as into a file") {
    options.begin = Extent3{1, 4, 6};
    options.end = Extent3{5, 18, 21};
    options.patch = Extent3{2, 4, 4};
    options.memory = 0;
    VolumePredictor predictor(options);
    const auto shape = predictor.output_for(Example::view(example.image));
    REQUIRE(shape.extent == Extent3{4, 14, 15});
    std::vector<float> part(static_cast<std::size_t>(shape.extent.volume()), -1);
    REQUIRE(predictor.predict(Example::view(example.image), part.data()));
    InferOptions to_file = options;
    to_file.volume = at("image.nii").string();
    to_file.output = at("part.h5");
    REQUIRE(infer(to_file));
    const ArrayVolume ours({.voxels = part.data(), .extent = shape.extent});
    CHECK(evaluate_files({.prediction = ours.path(), .label = at("part.h5").string(), .threshold = 0.5})
              .at("pixel_error") == 0);
    CHECK(std::count(part.begin(), part.end(), -1.0F) == 0);
  }
  SECTION("a stop request ends a prediction") {
    std::stop_source stop;
    stop.request_stop();
    VolumePredictor predictor(options);
    std::vector<float> prediction(example.image.size());
    CHECK(!predictor.predict(Example::view(example.image), prediction.data(), stop.get_token()));
    CHECK(!convert_volume({.input = at("image.nii").string(),
                           .output = at("stopped.tif").string(),
                           .type = "",
                           .stop = stop.get_token()}));
    CHECK(!std::filesystem::exists(at("stopped.tif")));
  }
  SECTION("an interrupted inference of an array is not continued with other voxels") {
    const ArrayVolume volume(Example::view(example.image));
    std::stop_source stop;
    InferOptions to_file = options;
    to_file.volume = volume.path();
    to_file.output = at("interrupted.h5");
    to_file.patch = Extent3{2, 4, 4};
    to_file.stop = stop.get_token();
    to_file.on_progress = [&](double) { stop.request_stop(); };
    REQUIRE(!infer(to_file));
    if (std::filesystem::exists(at("interrupted.h5.part"))) {
      std::vector<std::uint8_t> changed = example.image;
      changed[changed.size() / 2] ^= 1;
      const ArrayVolume other(Example::view(changed));
      to_file.volume = other.path();
      to_file.resume = true;
      to_file.stop = {};
      to_file.on_progress = {};
      CHECK_THROWS_AS(infer(to_file), InvalidArgument);
    }
  }
  SECTION("a wrong number of channels is named") {
    VolumePredictor predictor(options);
    ArrayView two = Example::view(example.image);
    two.channels = 2;
    two.extent.z = 3;
    CHECK_THROWS_AS(predictor.output_for(two), ShapeMismatch);
  }
}

TEST_CASE("arrays may have any strides, and their path ends with them") {
  const test::TemporaryFolder folder;
  const Example example;
  std::vector<std::uint8_t> turned(example.image.rbegin(), example.image.rend());
  ArrayView view = Example::view(turned);
  view.voxels = turned.data() + turned.size() - 1;  // all axes backwards
  view.stride = {{0, -20 * 24, -24, -1}};
  std::string path;
  {
    const ArrayVolume backwards(view), straight(Example::view(example.image));
    path = backwards.path();
    const Scores scores = evaluate_files({.prediction = backwards.path(), .label = straight.path(), .classes = 256});
    CHECK(scores.at("pixel_error") == 0);
  }
  CHECK_THROWS_AS(describe_volume(path), IoError);
  CHECK_THROWS_AS(ArrayVolume({.voxels = nullptr, .extent = {1, 1, 1}}), InvalidArgument);
  CHECK_THROWS_AS(ArrayVolume({.voxels = turned.data(), .extent = {1, 0, 1}}), InvalidArgument);
  CHECK_THROWS_AS(ArrayVolume({.voxels = turned.data(), .type = "half", .extent = {1, 1, 1}}), InvalidArgument);
}

}  // namespace convolume::nets
