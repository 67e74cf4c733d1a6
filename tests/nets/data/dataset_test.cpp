#include "nets/data/dataset.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <span>
#include <tuple>

#include "testing/patches.hpp"
#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>
#include <unistd.h>

#include "convolume/error.hpp"
#include "nets/io/volume.hpp"
#include "nets/io/volume_sink.hpp"

namespace convolume::nets {
namespace {

/// A temporary folder for volumes and descriptions.
class DatasetFolder : public test::TemporaryFolder {
 public:
  void volume(const std::string& name, const Extent3& extent, const std::function<float(index_t)>& value) const {
    Tensor<float> tensor({1, 1, extent});
    for (index_t i = 0; i < tensor.elements(); ++i) tensor.data()[i] = value(i);
    io::write_volume(*this / name, tensor.view());
  }
  std::filesystem::path description(const std::string& text) const {
    const auto file = *this / "data.toml";
    std::ofstream(file) << text;
    return file;
  }
  Dataset load(const std::string& text) const { return load_dataset(description(text)); }
  /// Returns the error message of load_dataset; "ConfigError " precedes the text of a ConfigError.
  std::string complaint(const std::string& text) const {
    try {
      load(text);
    } catch (const ConfigError& error) {
      return std::string("ConfigError ") + error.what();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  }
};

float itself(index_t i) { return static_cast<float>(i); }

/// Returns a data set of one volume whose image and label hold the index of each voxel.
Dataset indexed(const Extent3& extent, const AugmentSpec& augment) {
  Dataset data;
  data.name = "indexed";
  data.augment = augment;
  LabelledVolume volume;
  for (StoredVolume* part : {&volume.image, &volume.label}) {
    *part = Tensor<float>({1, 1, extent});
    for (index_t i = 0; i < part->elements(); ++i) part->data()[i] = itself(i);
  }
  volume.name = "volume";
  data.train.push_back(std::move(volume));
  return data;
}

auto key_of(const PatchDraw& d) {
  return std::tuple(d.volume, d.origin.z, d.origin.y, d.origin.x, d.flip[0], d.flip[1], d.flip[2], d.transpose);
}

}  // namespace

TEST_CASE("volumes, labels, masks and slices are read", "[dataset]") {
  const DatasetFolder folder;
  const Extent3 extent{6, 3, 4};
  folder.volume("image.tif", extent, itself);
  folder.volume("label.tif", extent, [](index_t i) { return static_cast<float>(i % 3); });
  folder.volume("mask.h5", extent, [](index_t i) { return static_cast<float>(i % 2); });
  const Dataset data = folder.load(
      "name = 'd'\n[[train]]\nimage = 'image.tif'\nlabel = 'label.tif'\nmask = 'mask.h5:/volume'\nslices = [2, 5]\n"
      "[[train]]\nimage = '" +
      (folder.path() / "image.tif").string() +
      "'\nlabel = 'label.tif'\n"
      "[[validation]]\nimage = 'image.tif'\nlabel = 'label.tif'\nslices = [5, 6]\n"
      "[label]\npositive = [0, 2]\n[intensity]\nnormalise = 'none'\n[augment]\nflip = ['z', 'x']\n");
  CHECK(data.name == "d");
  REQUIRE(data.train.size() == 2);
  REQUIRE(data.validation.size() == 1);
  const LabelledVolume& cut = data.train[0];
  CHECK(cut.name == "image.tif");
  REQUIRE(cut.image.shape() == Shape5{1, 1, {3, 3, 4}});
  REQUIRE(cut.label.shape() == cut.image.shape());
  REQUIRE(cut.mask.shape() == cut.image.shape());
  bool right = true;
  for (index_t i = 0; i < cut.image.elements(); ++i) {
    const index_t whole = i + 2 * 12;
    right = right && cut.image.value(i) == static_cast<float>(whole) &&
            cut.label.value(i) == (whole % 3 == 1 ? 0.0f : 1.0f) && cut.mask.value(i) == static_cast<float>(whole % 2);
  }
  CHECK(right);
  CHECK(data.train[1].image.shape().extent == extent);
  CHECK_FALSE(static_cast<bool>(data.train[1].mask));
  CHECK(data.validation[0].image.value(0) == 60);
  CHECK(data.augment.flip_z);
  CHECK_FALSE(data.augment.flip_y);
  CHECK(data.augment.flip_x);
  CHECK_FALSE(data.augment.rotate90);
  CHECK(data.intensity.normalise == Normalise::none);
}

TEST_CASE("labels are taken as they are unless values are named", "[dataset]") {
  const DatasetFolder folder;
  folder.volume("v.tif", {1, 2, 3}, itself);
  const std::string volumes = "name = 'd'\n[[train]]\nimage = 'v.tif'\nlabel = 'v.tif'\n";
  CHECK(folder.load(volumes).train[0].label.value(5) == 5);
  const Dataset mapped = folder.load(volumes + "[label]\npositive = [5, 1.0]\n");
  for (index_t i = 0; i < 6; ++i) CHECK(mapped.train[0].label.value(i) == (i == 5 || i == 1 ? 1.0f : 0.0f));
}

TEST_CASE("paths name environment variables", "[dataset]") {
  const DatasetFolder folder;
  folder.volume("v.tif", {1, 2, 3}, itself);
  const std::string text = "name = 'd'\n[[train]]\nimage = '${CONVOLUME_TEST_FOLDER}/v.tif'\nlabel = 'v.tif'\n";
  ::unsetenv("CONVOLUME_TEST_FOLDER");
  const std::string message = folder.complaint(text);
  INFO(message);
  CHECK(message.find("ConfigError " + (folder.path() / "data.toml").string() + ":3:") == 0);
  CHECK(message.find("CONVOLUME_TEST_FOLDER is not set") != std::string::npos);
  ::setenv("CONVOLUME_TEST_FOLDER", folder.path().c_str(), 1);
  CHECK(folder.load(text).train.size() == 1);
  // A value that contains its own name is a path like any other, and causes no loop.
  ::setenv("CONVOLUME_TEST_FOLDER", "${CONVOLUME_TEST_FOLDER}", 1);
  CHECK_THAT(folder.complaint("name = \"x\"\n[[train]]\nimage = \"${CONVOLUME_TEST_FOLDER}/a.tif\"\nlabel = \"b\"\n"),
             Catch::Contains("${CONVOLUME_TEST_FOLDER}/a.tif"));
  ::unsetenv("CONVOLUME_TEST_FOLDER");
}

TEST_CASE("descriptions that do not serve are refused by file, line and key", "[dataset]") {
  const DatasetFolder folder;
  folder.volume("v.tif", {4, 3, 3}, itself);
  folder.volume("w.tif", {4, 3, 2}, itself);
  const std::string head = "name = 'd'\n", good = "[[train]]\nimage = 'v.tif'\nlabel = 'v.tif'\n";  // lines 1, 2 to 4
  const auto refuses = [&](const std::string& text, int line, std::initializer_list<std::string> words) {
    const std::string message = folder.complaint(text);
    INFO(text);
    INFO(message);
    const std::string place =
        (folder.path() / "data.toml").string() + (line > 0 ? ":" + std::to_string(line) : "") + ":";
    CHECK(message.find("ConfigError " + place) == 0);
    for (const std::string& word : words) CHECK(message.find(word) != std::string::npos);
  };
  CHECK(folder.complaint(head + good) == "nothing");
  refuses(good, 0, {"'name' is missing"});
  refuses(head, 0, {"[[train]]"});
  refuses(head + "[[validation]]\nimage = 'v.tif'\nlabel = 'v.tif'\n", 0, {"[[train]]"});
  refuses("name = 'd'\n[train\n", 2, {});
  refuses(head + "[[train]]\nlabel = 'v.tif'\n", 2, {"'image' is missing"});
  refuses(head + "[[train]]\nimage = 'v.tif'\n", 2, {"'label' is missing"});
  refuses(head + "[[train]]\nimage = 'v.tif'\nlabel = 'w.tif'\n", 2, {"label", "4 x 3 x 2", "4 x 3 x 3"});
  refuses(head + good + "mask = 'w.tif'\n", 2, {"mask", "4 x 3 x 2"});
  refuses(head + "[[train]]\nimage = '${OPEN/v.tif'\nlabel = 'v.tif'\n", 3, {"image", "not closed"});
  refuses("colour = 3\n" + head + good, 1, {"colour"});
  refuses(head + good + "weight = 3\n", 5, {"weight", "volumes = \"weights\""});
  refuses(head + good + "colour = 3\n", 5, {"colour", "image"});
  refuses(head + good + "[label]\nnegative = [1]\n", 6, {"negative"});
  refuses(head + good + "[label]\npositive = 1\n", 6, {"positive", "array"});
  refuses(head + good + "[intensity]\nnormalise = 'page'\n", 6, {"normalise", "page", "volume"});
  refuses(head + good + "[augment]\nflip = ['t']\n", 6, {"flip", "'t'"});
  refuses(head + good + "[augment]\nrotate = true\n", 6, {"rotate"});
  refuses(head + "[synthetic]\nextent = [0, 4, 4]\n[[train]]\n", 3, {"extent"});
  refuses(head + "[synthetic]\nblurr = 1\n[[train]]\n", 3, {"blurr"});
  refuses(head + "[synthetic]\nextent = [2, 4, 4]\n[[train]]\nimage = 'v.tif'\n", 5, {"image"});
  for (const std::string slices : {"[1]", "[0, 1, 2]", "[2, 1]", "[2, 2]", "[0, 5]", "[-1, 2]", "[-0.5, 2]", "[0, 2.5]",
                                   "[nan, 2]", "[0, inf]", "[0, 1e300]", "['a', 'b']", "3"}) {
    refuses(head + good + "slices = " + slices + "\n", 5, {"slices"});
  }
  const std::string missing = folder.complaint(head + "[[train]]\nimage = 'missing.tif'\nlabel = 'v.tif'\n");
  INFO(missing);
  CHECK(missing.find((folder.path() / "missing.tif").string()) == 0);
  CHECK_THROWS_AS(folder.load(head + "[[train]]\nimage = 'missing.tif'\nlabel = 'v.tif'\n"), IoError);
  CHECK_THROWS_AS(folder.load(head + "[[train]]\nimage = 'data.toml'\nlabel = 'v.tif'\n"), FormatError);
  CHECK_THROWS_AS(load_dataset(folder.path() / "nothing.toml"), IoError);
}

TEST_CASE("the synthetic volume is cut into splits", "[dataset]") {
  const DatasetFolder folder;
  const Dataset data = folder.load(
      "name = 'd'\n[synthetic]\nextent = [6, 16, 16]\nseed = 3\n[[train]]\nslices = [0, 4]\n"
      "[[validation]]\nslices = [4, 6]\n[intensity]\nnormalise = 'none'\n");
  CHECK(data.train[0].image.shape().extent == Extent3{4, 16, 16});
  CHECK(data.validation[0].label.shape().extent == Extent3{2, 16, 16});
  const Dataset whole = folder.load(
      "name = 'd'\n[synthetic]\nextent = [6, 16, 16]\nseed = 3\n[[train]]\n[intensity]\nnormalise = 'none'\n");
  const auto& image = whole.train[0].image;
  REQUIRE(image.shape().extent == Extent3{6, 16, 16});
  CHECK(std::equal(image.data(), image.data() + 4 * 256, data.train[0].image.data()));
  CHECK(std::equal(image.data() + 4 * 256, image.data() + 6 * 256, data.validation[0].image.data()));
  const Dataset other = folder.load("name = 'd'\n[synthetic]\nextent = [6, 16, 16]\nseed = 4\n[[train]]\n");
  CHECK(other.digest != whole.digest);
}

TEST_CASE("images are interpolated cubically if [spacing] says so", "[dataset]") {
  const DatasetFolder folder;
  folder.volume("v.tif", {4, 6, 6}, [](index_t i) { return static_cast<float>(i * i % 13); });
  const std::string table = "image = 'v.tif'\nlabel = 'v.tif'\nspacing = [1, 1, 1]\n";
  const auto text = [&](const std::string& image) {
    return "name = 'd'\n[spacing]\ntarget = [1, 1.5, 1.5]\n" + image + "[[train]]\n" + table + "[[validation]]\n" +
           table;
  };
  const Dataset linear = folder.load(text("")), cubic = folder.load(text("image = 'cubic'\n"));
  CHECK(folder.load(text("image = 'linear'\n")).digest == linear.digest);
  CHECK(cubic.digest != linear.digest);
  CHECK(cubic.cubic);
  Resampling how = *cubic.train[0].resampling;
  CHECK(how.cubic);
  CHECK_FALSE(linear.train[0].resampling->cubic);
  for (const Dataset* data : {&linear, &cubic}) {
    how.cubic = data == &cubic;
    const LabelledVolume& volume = data->validation[0];
    const auto image = volume.image.floats(std::pmr::get_default_resource());
    const auto expected = resample(how, image.view(), std::pmr::get_default_resource());
    const auto found = volume.resampled.floats(std::pmr::get_default_resource());
    CHECK(std::equal(found.data(), found.data() + found.elements(), expected.data()));
  }
  CHECK_THAT(folder.complaint(text("image = 'quintic'\n")), Catch::Contains("quintic") && Catch::Contains("cubic"));
}

TEST_CASE("a digest is of voxels and settings", "[dataset]") {
  const DatasetFolder folder;
  folder.volume("v.tif", {2, 3, 3}, itself);
  folder.volume("w.tif", {2, 3, 3}, [](index_t i) { return i == 17 ? 17.5f : itself(i); });
  folder.volume("m.tif", {2, 3, 3}, [](index_t i) { return static_cast<float>(i % 2); });
  const auto text = [](const std::string& image, const std::string& label) {
    return "name = 'd'\n[[train]]\nimage = '" + image + "'\nlabel = '" + label + "'\n";
  };
  const std::string digest = folder.load(text("v.tif", "v.tif")).digest;
  CHECK(folder.load(text("v.tif", "v.tif")).digest == digest);
  CHECK(folder.load("# again\n" + text("v.tif", "v.tif")).digest == digest);
  std::set<std::string> digests{digest};
  for (const std::string& other :
       {text("w.tif", "v.tif"), text("v.tif", "w.tif"), text("v.tif", "v.tif") + "mask = 'm.tif'\n",
        text("v.tif", "v.tif") + "slices = [0, 1]\n", text("v.tif", "v.tif") + "[label]\npositive = [3]\n",
        text("v.tif", "v.tif") + "[augment]\nflip = ['x']\n", text("v.tif", "v.tif") + "[augment]\nflip = ['y']\n",
        text("v.tif", "v.tif") + "[augment]\nrotate90 = true\n",
        text("v.tif", "v.tif") + "[augment]\nlow_resolution = { probability = 0.25, factor = [1.5, 3] }\n",
        text("v.tif", "v.tif") + "[augment]\nlow_resolution = { probability = 0.25, factor = [1.5, 2] }\n",
        text("v.tif", "v.tif") + "[intensity]\nnormalise = 'none'\n"}) {
    INFO(other);
    CHECK(digests.insert(folder.load(other).digest).second);
  }
}

TEST_CASE("normalised volumes have mean 0 and variance 1 in every channel", "[dataset]") {
  Tensor<float> voxels({1, 2, {3, 17, 11}});
  for (index_t i = 0; i < voxels.elements(); ++i)
    voxels.data()[i] = 1000 + static_cast<float>((i * 7919) % 251 + i / 561);
  StoredVolume volume = StoredVolume::view_of(voxels);
  normalise(volume, {.normalise = Normalise::none});
  CHECK(volume.value(5) == voxels.data()[5]);
  normalise(volume);
  for (index_t c = 0; c < 2; ++c) {
    double sum = 0, squares = 0;
    for (index_t i = 0; i < 561; ++i) {
      const double value = static_cast<double>(volume.value(c * 561 + i));
      sum += value;
      squares += value * value;
    }
    CHECK(sum / 561 == Approx(0).margin(1e-6));
    CHECK(squares / 561 == Approx(1).epsilon(1e-6));
  }
  CHECK((volume.value(1) > volume.value(0)) == (voxels.data()[1] > voxels.data()[0]));
  voxels.fill(3);
  CHECK_THROWS_WITH(normalise(volume), Catch::Contains("all equal to 3") && Catch::Contains("normalise = \"none\""));
}

TEST_CASE("volumes stay in their stored type, and labels keep their ids apart", "[dataset]") {
  const DatasetFolder folder;
  // Neighbouring ids beyond 2^53, which neither floats nor doubles tell apart, and CREMI's background.
  const std::vector<std::uint64_t> ids{0, 1, std::uint64_t{1} << 60, (std::uint64_t{1} << 60) + 1, ~std::uint64_t{0},
                                       7};
  const auto write = [&](const std::string& name, io::VoxelType type, const auto& voxels) {
    const auto sink = io::create_volume({folder / name, ""}, {.extent = {1, 2, 3}, .type = type});
    sink->write({0, 1}, {{0, 0, 0}, {1, 2, 3}}, std::as_bytes(std::span(voxels)));
    sink->finish();
  };
  write("ids.h5", io::VoxelType::uint64, ids);
  write("image.nii.gz", io::VoxelType::uint16, std::vector<std::uint16_t>{1, 2, 3, 4, 5, 60000});
  write("signed.nii", io::VoxelType::int16, std::vector<std::int16_t>{-1, 0, 1, 2, -300, 300});
  const auto labels = [&](const std::string& file, const std::string& positive) {
    const Dataset data = folder.load("name = 'd'\n[[train]]\nimage = 'image.nii.gz'\nlabel = '" + file +
                                     "'\n[label]\npositive = [" + positive + "]\n");
    CHECK(data.train[0].image.type() == io::VoxelType::uint16);
    std::vector<float> values(6);
    data.train[0].label.gather(0, 6, values.data());
    return values;
  };
  CHECK(labels("ids.h5", "-1") == std::vector<float>{0, 0, 0, 0, 1, 0});
  CHECK(labels("ids.h5", "0, 7") == std::vector<float>{1, 0, 0, 0, 0, 1});
  CHECK(labels("ids.h5", "1152921504606846976") == std::vector<float>{0, 0, 1, 0, 0, 0});
  CHECK(labels("signed.nii", "-1, 300") == std::vector<float>{1, 0, 0, 0, 0, 1});
  CHECK(labels("image.nii.gz", "60000") == std::vector<float>{0, 0, 0, 0, 0, 1});
}

TEST_CASE("classes and ignored values are told by stored values", "[dataset]") {
  const DatasetFolder folder;
  folder.volume("v.tif", {1, 2, 3}, itself);
  const std::string head = "name = 'd'\n[[train]]\nimage = 'v.tif'\nlabel = 'v.tif'\n[label]\n";
  const auto values = [&](const std::string& label) {
    const Dataset data = folder.load(head + label);
    std::vector<float> all(6);
    data.train[0].label.gather(0, 6, all.data());
    return all;
  };
  CHECK(values("classes = [0, 1, [2, 3]]\nignore = [4, 5]\n") ==
        std::vector<float>{0, 1, 2, 2, ignored_label, ignored_label});
  CHECK(values("positive = [1]\nignore = [5]\n") == std::vector<float>{0, 1, 0, 0, 0, ignored_label});
  CHECK(values("ignore = [3]\n") == std::vector<float>{0, 1, 2, ignored_label, 4, 5});
  CHECK_THAT(
      folder.complaint(head + "classes = [0, 1, [2, 3]]\n"),
      Catch::Contains("(0, 1, 1)") && Catch::Contains("is 4") && Catch::Contains("[label] classes, or in ignore"));
  CHECK_NOTHROW(check_labels(folder.load(head + "classes = [0, 1, [2, 3]]\nignore = [4, 5]\n"), 3));
  CHECK_THAT(folder.complaint(head + "classes = [0, 1]\npositive = [1]\n"), Catch::Contains("exclude each other"));
  CHECK_THAT(folder.complaint(head + "classes = [0, ['a']]\n"), Catch::Contains("array of numbers"));
  CHECK_THAT(folder.complaint(head + "ignore = 3\n"), Catch::Contains("array of numbers"));
}

TEST_CASE("images with channels are drawn with all of them, and must agree with the net", "[dataset]") {
  Tensor<float> voxels({1, 3, {2, 4, 5}});
  for (index_t i = 0; i < voxels.elements(); ++i) voxels.data()[i] = itself(i);
  Dataset data;
  data.name = "colours";
  data.train.push_back({StoredVolume::view_of(voxels), StoredVolume(Tensor<float>({1, 1, {2, 4, 5}})), {}, "v"});
  CHECK_NOTHROW(check_channels(data, 3));
  CHECK_THROWS_WITH(check_channels(data, 1),
                    Catch::Contains("'v' has 3 channels") && Catch::Contains("input.channels"));
  PatchDraw draw;
  draw.origin = {1, 2, 1};
  draw.flip[2] = true;
  const Tensor<float> patch = std::move(test::make_patch(data, draw, {1, 2, 3}).image);
  for (index_t c = 0; c < 3; ++c) CHECK(patch.view()(0, c, 0, 1, 0) == itself(((c * 2 + 1) * 4 + 3) * 5 + 3));
}

TEST_CASE("a draw is a pure function of seed, iteration and sample", "[dataset]") {
  const Dataset data = indexed({9, 20, 20}, {true, true, true, true});
  const Extent3 patch{4, 8, 8};
  std::set<decltype(key_of(PatchDraw{}))> seen;
  std::size_t draws = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    for (std::uint64_t iteration = 0; iteration < 10; ++iteration) {
      for (index_t sample = 0; sample < 3; ++sample) {
        const auto draw = key_of(PatchDraw::draw(data, patch, seed, iteration, sample));
        CHECK(draw == key_of(PatchDraw::draw(data, patch, seed, iteration, sample)));
        seen.insert(draw);
        ++draws;
      }
    }
  }
  CHECK(seen.size() > draws * 9 / 10);  // there are 16,224 different draws
}

TEST_CASE("draws cover places, volumes and turns, and no others", "[dataset]") {
  const auto turns = [](const AugmentSpec& augment) {
    const Dataset data = indexed({4, 6, 6}, augment);
    std::set<std::tuple<bool, bool, bool, bool>> seen;
    for (std::uint64_t i = 0; i < 400; ++i) {
      const auto d = PatchDraw::draw(data, {2, 4, 4}, 1, i, 0);
      seen.emplace(d.flip[0], d.flip[1], d.flip[2], d.transpose);
    }
    return seen;
  };
  CHECK(turns({}).size() == 1);
  CHECK(turns({true, true, true, true}).size() == 16);
  CHECK(turns({true, true, true, false}).size() == 8);
  const auto flip_x = turns({false, false, true, false});
  CHECK(flip_x.size() == 2);
  CHECK(flip_x.contains({false, false, true, false}));
  // All eight symmetries of a square in Y-X, and no flip along Z.
  const auto rotations = turns({false, false, false, true});
  CHECK(rotations.size() == 8);
  CHECK(std::none_of(rotations.begin(), rotations.end(), [](const auto& turn) { return std::get<0>(turn); }));

  Dataset data = indexed({4, 6, 5}, {});
  data.train.push_back(std::move(indexed({2, 4, 7}, {}).train[0]));
  data.sampling.volumes = VolumeChoice::by_size;
  const Extent3 patch{2, 4, 4};
  std::set<decltype(key_of(PatchDraw{}))> places;
  int in_second = 0;
  const int draws = 2000;
  for (std::uint64_t i = 0; i < draws; ++i) {
    const auto d = PatchDraw::draw(data, patch, 1, i, 1);
    REQUIRE(d.volume < 2);
    const Extent3 extent = data.train[d.volume].image.shape().extent;
    for (int axis = 0; axis < 3; ++axis) {
      REQUIRE(d.origin[axis] >= 0);
      REQUIRE(d.origin[axis] + patch[axis] <= extent[axis]);
    }
    places.insert(key_of(d));
    in_second += d.volume == 1 ? 1 : 0;
  }
  CHECK(places.size() == 3 * 3 * 2 + 1 * 1 * 4);
  CHECK(std::abs(in_second - draws * 4 / 22) < 100);  // more than five standard deviations
}

TEST_CASE("image and label are turned alike, as the draw says", "[dataset]") {
  const Extent3 extent{5, 9, 8}, patch{3, 5, 5}, offset{1, 2, 1};
  const Dataset data = indexed(extent, {true, true, true, true});
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto d = PatchDraw::draw(data, patch, 5, i, 0);
    const auto [image, label, mask] = test::make_patch(data, d, patch, offset, patch - offset - Extent3{0, 1, 0});
    bool turned = true, aligned = true;
    for (index_t z = 0; z < patch.z; ++z) {
      for (index_t y = 0; y < patch.y; ++y) {
        for (index_t x = 0; x < patch.x; ++x) {
          Extent3 from = d.transpose ? Extent3{z, x, y} : Extent3{z, y, x};
          for (int axis = 0; axis < 3; ++axis) {
            if (d.flip[axis]) from[axis] = patch[axis] - 1 - from[axis];
          }
          from = from + d.origin;
          turned = turned && image.view()(0, 0, z, y, x) == itself((from.z * extent.y + from.y) * extent.x + from.x);
        }
      }
    }
    const Extent3 out = label.shape().extent;
    for (index_t z = 0; z < out.z; ++z) {
      for (index_t y = 0; y < out.y; ++y) {
        for (index_t x = 0; x < out.x; ++x) {
          aligned =
              aligned && label.view()(0, 0, z, y, x) == image.view()(0, 0, z + offset.z, y + offset.y, x + offset.x);
        }
      }
    }
    REQUIRE(turned);
    REQUIRE(aligned);
  }
}

TEST_CASE("patches must fit into volumes, and be square to turn", "[dataset]") {
  Dataset data = indexed({4, 8, 9}, {});
  CHECK_NOTHROW(check_patch(data, {4, 8, 9}));
  CHECK(PatchDraw::draw(data, {4, 8, 9}, 1, 2, 3).origin == Extent3{0, 0, 0});
  CHECK_THROWS_AS(check_patch(data, {5, 8, 9}), ConfigError);
  CHECK_THROWS_WITH(check_patch(data, {4, 9, 9}), Catch::Contains("'volume'") && Catch::Contains("4 x 8 x 9") &&
                                                      Catch::Contains("4 x 9 x 9") && Catch::Contains("input.patch"));
  data.augment.rotate90 = true;
  CHECK_NOTHROW(check_patch(data, {4, 8, 8}));
  CHECK_THROWS_WITH(check_patch(data, {4, 7, 8}), Catch::Contains("'indexed'") && Catch::Contains("square"));
  data.train.push_back(std::move(indexed({3, 8, 9}, {}).train[0]));
  CHECK_THROWS_AS(check_patch(data, {4, 8, 8}), ConfigError);
}

}  // namespace convolume::nets
