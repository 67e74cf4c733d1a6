// Data sets that are named by patterns, statistics that are kept, and what is refused.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "convolume/error.hpp"
#include "nets/data/dataset.hpp"
#include "nets/io/volume_sink.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;

class CaseFolder : public test::TemporaryFolder {
 public:
  /// Writes a volume whose voxels are first, first + 1, ... modulo `period`.
  void volume(const std::string& name, int first, int period, const Extent3& extent = {2, 4, 5},
              io::VoxelType type = io::VoxelType::uint8) const {
    const fs::path path = *this / name;
    fs::create_directories(path.parent_path());
    std::vector<std::uint16_t> wide;
    std::vector<std::uint8_t> narrow;
    for (int i = 0; i < extent.volume(); ++i) {
      wide.push_back(static_cast<std::uint16_t>(first + i % period));
      narrow.push_back(static_cast<std::uint8_t>(first + i % period));
    }
    const auto sink = io::create_volume({path, ""}, {.extent = extent, .type = type});
    sink->write({0, 1}, {{0, 0, 0}, extent},
                type == io::VoxelType::uint8 ? std::as_bytes(std::span(narrow)) : std::as_bytes(std::span(wide)));
    sink->finish();
  }
  Dataset load(const std::string& text, const DatasetOptions& options = {}) const {
    std::ofstream((*this / "data.toml").string()) << "name = 'd'\n" << text;
    return load_dataset(*this / "data.toml", options);
  }
  std::string complaint(const std::string& text) const {
    try {
      load(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  }
};

std::vector<std::string> names(const std::vector<LabelledVolume>& list) {
  std::vector<std::string> result;
  for (const LabelledVolume& volume : list) result.push_back(volume.name);
  return result;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a star stands for the same text in all paths of a table", "[cases]") {
  const CaseFolder folder;
  for (const int i : {1, 2, 10}) {
    folder.volume(fmt::format("images/case_{:02}_t1.nii", i), i, 7);
    folder.volume(fmt::format("t2/{:02}/scan.nii", i), 100 + i, 7, {2, 4, 5}, io::VoxelType::uint16);
    folder.volume(fmt::format("labels/{:02}.nii.gz", i), 0, 2);
  }
  const std::string table = "[[train]]\nimage = ['images/case_*_t1.nii', 't2/*/scan.nii']\nlabel = 'labels/*.nii.gz'\n";
  const Dataset all = folder.load(table + "[intensity]\nnormalise = 'none'\n");
  CHECK(names(all.train) == Names{"01", "02", "10"});
  CHECK(all.train[2].image.shape() == Shape5{1, 2, {2, 4, 5}});
  CHECK(all.train[2].image.type() == io::VoxelType::float32);  // bytes and words
  CHECK(all.train[2].image.value(3) == 13);
  CHECK(all.train[2].image.value(40 + 3) == 113);
  CHECK(all.train[2].label.value(3) == 1);
  CHECK(names(folder.load(table + "cases = ['10', '01']\n").train) == Names{"01", "10"});
  CHECK(names(folder.load(table + "not_cases = ['02']\n").train) == Names{"01", "10"});
  const Dataset boxed = folder.load(table + "box = [[1, 2], [0, 3], [2, 5]]\nspacing = [3, 1, 0.5]\n");
  CHECK(boxed.train[0].extent() == Extent3{1, 3, 3});
  CHECK(boxed.train[0].label.value(0) == 0);  // voxel (1, 0, 2) has number 22
  CHECK(boxed.train[0].spacing == std::array<double, 3>{3, 1, 0.5});

  const auto refuses = [&](const std::string& text, std::initializer_list<std::string> words) {
    const std::string message = folder.complaint(text);
    INFO(message);
    for (const std::string& word : words) CHECK(message.find(word) != std::string::npos);
  };
  refuses("[[train]]\nimage = 'images/x*.nii'\nlabel = 'labels/*.nii.gz'\n",
          {"data.toml:3:", "image", "matches no file"});
  refuses("[[train]]\nimage = 'nowhere/*.nii'\nlabel = 'labels/*.nii.gz'\n", {"data.toml:3:", "image", "nowhere"});
  refuses("[[train]]\nimage = 'images/case_*_t1.nii'\nlabel = 'labels/01.nii.gz'\n",
          {"data.toml:4:", "label", "no '*'"});
  refuses(table + "cases = ['03']\n", {"data.toml:5:", "cases", "'03'", "case_03_t1.nii"});
  refuses(table + "not_cases = ['01', '02', '10']\n", {"data.toml:5:", "not_cases", "no case is left"});
  refuses("[[train]]\nimage = 'labels/01.nii.gz'\nlabel = 'labels/01.nii.gz'\ncases = ['1']\n",
          {"data.toml:5:", "'*'"});
  refuses("[[train]]\nimage = 'a*b*c*'\nlabel = 'labels/*.nii.gz'\n", {"data.toml:3:", "3 stars"});
  refuses("[[train]]\nimage = []\nlabel = 'labels/*.nii.gz'\n", {"data.toml:3:", "image", "empty"});
  refuses(table + "box = [[0, 1], [0, 5], [0, 5]]\n", {"data.toml:5:", "box", "[0, 5]", "4 voxels along y"});
  refuses(table + "box = [[0, 1]]\n", {"data.toml:5:", "box"});
  refuses(table + "box = [[0, 1], [0, 4], [0, 5]]\nslices = [0, 1]\n", {"data.toml:6:", "slices", "exclude"});
  refuses(table + "spacing = [1, 1]\n", {"data.toml:5:", "spacing"});
  refuses(table + "weight = 0\n[sampling]\nvolumes = 'weights'\n", {"weight of every training volume is 0"});
  fs::remove(folder / "labels/02.nii.gz");
  refuses(table, {"data.toml:4:", "label", "02.nii.gz", "'02'", "not_cases"});
  CHECK(names(folder.load(table + "not_cases = ['02']\n").train) == Names{"01", "10"});
  folder.volume("images/case_10_t1.nii", 1, 7, {2, 4, 6});
  refuses(table + "cases = ['10']\n", {"case_10_t1.nii", "2 x 4 x 6", "scan.nii", "equal extents"});
}

TEST_CASE("a star in the name of pictures stands for slices, and another one for cases", "[cases]") {
  const CaseFolder folder;
  for (const std::string name : {"a", "b"}) {
    for (int z = 0; z < 3; ++z) folder.volume(name + "/image/" + std::to_string(z) + ".tif", 10 * z, 7, {1, 4, 5});
    folder.volume(name + "/label.tif", 0, 2, {3, 4, 5});
  }
  const Dataset one = folder.load("[[train]]\nimage = 'a/image/*.tif'\nlabel = 'a/label.tif'\n");
  REQUIRE(one.train.size() == 1);
  CHECK(one.train[0].extent() == Extent3{3, 4, 5});
  const Dataset two = folder.load("[[train]]\nimage = '*/image/*.tif'\nlabel = '*/label.tif'\n");
  CHECK(names(two.train) == Names{"a", "b"});
  CHECK(two.train[1].extent() == Extent3{3, 4, 5});
}

TEST_CASE("statistics are kept by path, size and time, and a changed file is named", "[cases]") {
  const CaseFolder folder;
  folder.volume("image.nii", 3, 11);
  folder.volume("label.nii", 0, 3);
  const std::string text = "[[train]]\nimage = 'image.nii'\nlabel = 'label.nii'\n[label]\npositive = [1, 2]\n";
  const fs::path kept = folder / "data.json";
  const Dataset first = folder.load(text, {.summaries = kept});
  REQUIRE(fs::exists(kept));
  const auto same = [&](const Dataset& other) {
    return other.digest == first.digest && *other.train[0].labels == *first.train[0].labels &&
           other.train[0].image.value(7) == first.train[0].image.value(7);
  };
  CHECK(same(folder.load(text, {.summaries = kept, .resume = true})));
  // What is kept is used, and not computed again: a changed entry shows.
  std::ifstream stream(kept.string());
  std::string contents((std::istreambuf_iterator<char>(stream)), {});
  const auto at = contents.find("\"count\":");
  REQUIRE(at != std::string::npos);
  std::ofstream(kept.string()) << contents.substr(0, at) << "\"count\":9" << contents.substr(at + 8);
  CHECK_FALSE(same(folder.load(text, {.summaries = kept, .resume = true})));
  CHECK(same(folder.load(text, {.summaries = kept, .resume = true, .verify = true})));
  // Other settings, and a file that is damaged, are no obstacle.
  CHECK(folder.load(text + "[intensity]\nnormalise = 'slice'\n", {.summaries = kept}).digest != first.digest);
  std::ofstream(kept.string()) << "damaged";
  CHECK(same(folder.load(text, {.summaries = kept, .resume = true})));

  fs::last_write_time(folder / "image.nii", fs::last_write_time(folder / "image.nii") - std::chrono::hours(1));
  CHECK_THROWS_WITH(folder.load(text, {.summaries = kept, .resume = true}),
                    Catch::Contains("image.nii: changed") && Catch::Contains("--verify-data"));
  CHECK(same(folder.load(text, {.summaries = kept, .resume = true, .verify = true})));
  CHECK(same(folder.load(text, {.summaries = kept, .resume = true})));  // the new time is kept
  folder.volume("image.nii", 4, 11);
  CHECK_FALSE(same(folder.load(text, {.summaries = kept, .resume = true, .verify = true})));
}

TEST_CASE("a data set is normalised as a whole, from memory or from files", "[cases]") {
  const CaseFolder folder;
  folder.volume("a.nii", 0, 40);
  folder.volume("b.nii", 100, 40);
  folder.volume("label.nii", 0, 2);
  const std::string text =
      "[[train]]\nimage = 'a.nii'\nlabel = 'label.nii'\n[[train]]\nimage = 'b.nii'\nlabel = 'label.nii'\n"
      "[[validation]]\nimage = 'a.nii'\nlabel = 'label.nii'\n[intensity]\nnormalise = 'dataset'\n";
  const Dataset data = folder.load(text);
  // 0 to 39 and 100 to 139: mean 69.5, variance 2500 + 133.25.
  const double deviation = std::sqrt(2633.25);
  CHECK(data.train[1].image.value(0) == Approx((100 - 69.5) / deviation));
  CHECK(data.validation[0].image.value(0) == Approx(-69.5 / deviation));
  REQUIRE(data.scaling.list.size() == 1);
  const Dataset streamed = folder.load(text, {.volume_bytes = 0});
  CHECK(streamed.scaling.list == data.scaling.list);
  CHECK(streamed.digest == data.digest);
  REQUIRE(streamed.train[0].files);
  CHECK(streamed.train[1].files->read_image({{1, 1, 1}, {1, 2, 3}}, std::pmr::get_default_resource()).value(0) ==
        data.train[1].image.value(26));
  CHECK_FALSE(streamed.validation[0].files);
  const Dataset clipped = folder.load(text + "clip = true\npercentiles = [10, 90]\n");
  CHECK(clipped.scaling.list[0].low == Approx(7.9));
  CHECK(clipped.scaling.list[0].high == Approx(131.1));
}

TEST_CASE("labels and volumes that cannot be used are named", "[cases]") {
  const CaseFolder folder;
  folder.volume("image.nii", 0, 40);
  folder.volume("label.nii", 0, 3);
  folder.volume("flat.nii", 5, 1);
  const std::string head = "[[train]]\nimage = 'image.nii'\nlabel = 'label.nii'\n";
  const Dataset data = folder.load(head);
  CHECK_NOTHROW(check_labels(data, 3));
  CHECK_THROWS_WITH(check_labels(data, 2), Catch::Contains("voxel (0, 0, 2) is 2") && Catch::Contains("from 0 to 1"));
  CHECK_THROWS_WITH(check_labels(data, 4), Catch::Contains("class 3 occurs in no training volume"));
  CHECK_THROWS_WITH(check_labels(data, 0), Catch::Contains("voxel (0, 0, 2) is 2") && Catch::Contains("positive"));
  // A class below 0 is named, also behind a class above 1.
  Dataset negative;
  negative.name = "negative";
  Tensor<float> label({1, 1, {1, 1, 4}});
  const float classes[] = {1, 2, 0, -1};
  std::copy_n(classes, 4, label.data());
  negative.train.push_back({StoredVolume(Tensor<float>({1, 1, {1, 1, 4}})), StoredVolume(std::move(label)), {}, "v"});
  negative.train[0].begin = {5, 0, 10};
  CHECK_THROWS_WITH(check_labels(negative, 3), Catch::Contains("voxel (5, 0, 13) is -1"));
  CHECK_THAT(folder.complaint("[[train]]\nimage = 'flat.nii'\nlabel = 'label.nii'\n"),
             Catch::Contains("'flat.nii'") && Catch::Contains("all equal to 5"));
  CHECK_THAT(folder.complaint(head + "[augment]\nnoise = { probability = 1.5, sigma = [0, 1] }\n"),
             Catch::Contains("data.toml:6:") && Catch::Contains("probability") && Catch::Contains("1.5"));
  CHECK_THAT(folder.complaint(head + "[augment]\nnoise = { sigma = [0, 1] }\n"),
             Catch::Contains("'probability' is missing"));
  CHECK_THAT(folder.complaint(head + "[augment]\nscale = { probability = 1, range = [2, 1] }\n"),
             Catch::Contains("range"));
  CHECK_THAT(folder.complaint(head + "[augment]\nrotate = { probability = 1, degrees = [1, 2] }\n"),
             Catch::Contains("degrees"));
  CHECK_THAT(folder.complaint(head + "[augment]\nlow_resolution = { probability = 1, factor = [0.5, 2] }\n"),
             Catch::Contains("factor") && Catch::Contains("between 1 and 16"));
  CHECK_THAT(folder.complaint(head + "[augment]\nblurr = { probability = 1 }\n"), Catch::Contains("blurr"));
  CHECK_THAT(folder.complaint(head + "[intensity]\npercentiles = [1, 99]\n"), Catch::Contains("clip = true"));
  CHECK_THAT(folder.complaint(head + "[sampling]\nforeground = 2\n"), Catch::Contains("foreground"));
}

}  // namespace convolume::nets
