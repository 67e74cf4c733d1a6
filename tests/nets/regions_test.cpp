// Overlapping regions: labels that hold them, patches, scores, and the training of one channel per region.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "testing/patches.hpp"
#include "testing/temporary_folder.hpp"
#include "testing/training_session.hpp"
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "convolume/error.hpp"
#include "convolume/nets.hpp"
#include "nets/eval/scores.hpp"
#include "nets/io/volume.hpp"
#include "nets/report/volume_slices.hpp"

namespace convolume::nets {
namespace {

constexpr Extent3 extent{6, 24, 24};
// Region 1 holds the stored values 1, 2 and 3, region 2 holds 2 and 3, region 3 holds 1 and 3.
const std::vector<std::vector<int>> listed{{1, 2, 3}, {2, 3}, {1, 3}};
const std::string regions_key = "regions = [[1, 2, 3], [2, 3], [1, 3]]\n";

/// The stored label of a voxel, from 0 to 4. The value 4 is ignored where a test says so.
int stored_label(index_t i) {
  const index_t z = i / (extent.y * extent.x), y = i / extent.x % extent.y, x = i % extent.x;
  return static_cast<int>((z + y / 5 + x / 4) % 5);
}

bool lies_in(int stored, index_t region) {
  const auto& values = listed[static_cast<std::size_t>(region)];
  return std::find(values.begin(), values.end(), stored) != values.end();
}

class RegionFolder : public test::TemporaryFolder {
 public:
  RegionFolder() {
    Tensor<float> image({1, 1, extent}), label({1, 1, extent});
    for (index_t i = 0; i < label.elements(); ++i) {
      label.data()[i] = static_cast<float>(stored_label(i));
      image.data()[i] = static_cast<float>(stored_label(i)) + 0.3f * static_cast<float>(i % 7);
    }
    io::write_volume(*this / "image.h5", image.view());
    io::write_volume(*this / "label.h5", label.view());
  }
  std::filesystem::path describe(const std::string& label, const std::string& more = "") const {
    const auto file = *this / "data.toml";
    std::ofstream(file) << "name = 'd'\n[[train]]\nimage = 'image.h5'\nlabel = 'label.h5'\n[label]\n" << label << more;
    return file;
  }
  Dataset load(const std::string& label, const DatasetOptions& options = {}, const std::string& more = "") const {
    return load_dataset(describe(label, more), options);
  }
};

/// Returns test::small_net with other outputs.
std::string net_with(index_t channels, const std::string& loss) {
  std::string net = test::small_net;
  const std::string outputs = "out_channels = 1";
  net.replace(net.rfind(outputs), outputs.size(), "out_channels = " + std::to_string(channels));
  return net + "\n[loss]\n" + loss;
}

}  // namespace

TEST_CASE("a label holds the regions of each voxel", "[regions]") {
  const RegionFolder folder;
  const Dataset data = folder.load(regions_key + "ignore = [4]\n");
  CHECK(data.regions == 3);
  std::vector<std::uint64_t> count(4);
  std::uint64_t ignored = 0;
  for (index_t i = 0; i < extent.volume(); ++i) {
    const int stored = stored_label(i);
    const float label = data.train[0].label.value(i);
    if (stored == 4) {
      ++ignored;
      CHECK(label == ignored_label);
      continue;
    }
    count[0] += stored == 0;
    for (index_t r = 0; r < 3; ++r) {
      CHECK(in_region(label, r) == lies_in(stored, r));
      count[static_cast<std::size_t>(r) + 1] += lies_in(stored, r);
    }
  }
  const LabelSummary& summary = *data.train[0].labels;
  REQUIRE(summary.classes.size() == 4);
  CHECK(summary.ignored == ignored);
  for (std::size_t c = 0; c < 4; ++c) {
    CHECK(summary.classes[c].count == count[c]);
    CHECK(summary.classes[c].positions.size() == (c == 0 ? 0 : count[c]));
    for (const std::uint64_t at : summary.classes[c].positions) {
      CHECK(lies_in(stored_label(static_cast<index_t>(at)), static_cast<index_t>(c) - 1));
    }
  }
  // Volumes whose voxels stay in their files have the same.
  const Dataset streamed = folder.load(regions_key + "ignore = [4]\n", {.volume_bytes = 0});
  REQUIRE(streamed.train[0].files);
  CHECK(*streamed.train[0].labels == summary);
  CHECK(streamed.digest == data.digest);
  const StoredVolume label = streamed.train[0].files->read_label({{0, 0, 0}, extent}, std::pmr::get_default_resource());
  for (index_t i = 0; i < extent.volume(); ++i) CHECK(label.value(i) == data.train[0].label.value(i));
}

TEST_CASE("the data digest tells regions apart, even if no voxel does", "[regions]") {
  const RegionFolder folder;
  const std::string digest = folder.load("regions = [[1, 2], [2]]\n").digest;
  CHECK(folder.load("regions = [[1, 2], [2]]\n").digest == digest);
  for (const char* other : {"regions = [[1, 2], [2, 1]]\n", "regions = [[2], [1, 2]]\n", "regions = [[1, 2]]\n",
                            "regions = [[1, 2], [2]]\nignore = [9]\n"}) {
    CHECK(folder.load(other).digest != digest);
  }
}

TEST_CASE("regions that make no sense are refused by key and line", "[regions]") {
  const RegionFolder folder;
  const auto refused = [&](const std::string& label, const std::string& says) {
    CHECK_THROWS_AS(folder.load(label), ConfigError);
    CHECK_THROWS_WITH(folder.load(label), Catch::Contains("data.toml:6") && Catch::Contains(says));
  };
  refused("regions = [[1], [2]]\npositive = [1]\n", "'regions' and 'positive' exclude each other");
  refused("regions = [[1], [2]]\nclasses = [0, 1, 2]\n", "'regions' and 'classes' exclude each other");
  refused("regions = []\n", "there are 0 regions");
  refused("regions = [[1], []]\n", "region 2 is empty");
  refused("regions = [['a']]\n", "array of numbers");
  std::string many = "[1]";
  for (int i = 0; i < 24; ++i) many += ", [1]";
  refused("regions = [" + many + "]\n", "there are 25 regions");
}

TEST_CASE("patches are centred on regions that are drawn uniformly", "[regions][patches]") {
  Tensor<float> image({1, 1, {9, 40, 40}}), label({1, 1, {9, 40, 40}});
  image.fill(0);
  label.fill(0);
  // Region 1 is a row of 20 voxels. Region 2 is one voxel of it.
  for (index_t x = 10; x < 30; ++x) label.view()(0, 0, 5, 12, x) = 1;
  label.view()(0, 0, 5, 12, 20) = 3;
  Dataset data;
  data.regions = 2;
  data.train.push_back({StoredVolume(std::move(image)), StoredVolume(std::move(label)), {}, "v"});
  LabelSpec spec;
  spec.regions = {{1.0}, {2.0}};
  data.train[0].labels =
      std::make_shared<LabelSummary>(*summarise_labels(pieces_of(data.train[0].label), spec, nullptr));
  data.sampling.foreground = 1;
  int on_row = 0, on_voxel = 0;
  constexpr int draws = 2000;
  for (std::uint64_t i = 0; i < draws; ++i) {
    const Extent3 centre = PatchDraw::draw(data, {3, 8, 8}, 1, i, 0).origin + Extent3{1, 4, 4};
    on_row += centre.z == 5 && centre.y == 12 && centre.x >= 10 && centre.x < 30 ? 1 : 0;
    on_voxel += centre == Extent3{5, 12, 20} ? 1 : 0;
  }
  CHECK(on_row == draws);
  CHECK(std::abs(on_voxel - (0.5 + 0.5 / 20) * draws) < 90);
  data.train[0].labels = std::make_shared<LabelSummary>();
  CHECK_THROWS_WITH(check_patch(data, {3, 8, 8}), Catch::Contains("no training volume has a voxel of a region"));
}

TEST_CASE("each channel of a patch is the patch of its region", "[regions][patches]") {
  const RegionFolder folder;
  const std::string more = R"(
    [augment]
    flip = ["z", "y", "x"]
    rotate90 = true
    rotate = { probability = 0.5, degrees = [30, 20, 10] }
    scale = { probability = 0.5, range = [0.7, 1.4] }
    elastic = { probability = 0.5, grid = [4, 8, 8], sigma = 1.5 }
    misalign = { probability = 0.5, pixels = 3 }
    [sampling]
    pad = "zero"
    )";
  const Dataset data = folder.load(regions_key + "ignore = [4]\n", {}, more);
  std::vector<Dataset> binary;
  for (const char* positive : {"1, 2, 3", "2, 3", "1, 3"}) {
    binary.push_back(folder.load(fmt::format("positive = [{}]\nignore = [4]\n", positive), {}, more));
  }
  const Extent3 patch{4, 16, 16}, label_begin{1, 2, 3}, label_extent{2, 11, 9};
  Tensor<float> image({1, 1, patch}), label({1, 3, label_extent}), mask({1, 1, label_extent});
  PatchLoader loader(data, patch, label_begin, label_extent, true, std::pmr::get_default_resource());
  for (std::uint64_t i = 0; i < 20; ++i) {
    const PatchDraw draw = PatchDraw::draw(data, patch, 7, i, 0);
    const LabelledVolume& volume = data.train[0];
    loader.begin(draw, PatchMap(draw, data.augment, patch, volume.spacing),
                 {.image = &volume.image, .label = &volume.label, .mask = nullptr, .box = {{0, 0, 0}, extent}});
    for (index_t share = 0; share < 2; ++share) loader.load(share, 2);
    for (index_t share = 0; share < 2; ++share) loader.place({image, label, mask}, share, 2);
    for (index_t r = 0; r < 3; ++r) {
      const auto one = test::make_patch(binary[static_cast<std::size_t>(r)], draw, patch, label_begin, label_extent);
      const auto* const channel = label.data() + r * label_extent.volume();
      CHECK(std::equal(one.label.data(), one.label.data() + label_extent.volume(), channel));
      CHECK(std::equal(one.mask.data(), one.mask.data() + label_extent.volume(), mask.data()));
    }
  }
}

TEST_CASE("scores of regions match their definition", "[regions][metrics]") {
  constexpr index_t regions = 4;
  constexpr double threshold = 0.4;
  const RandomKey key{.seed = 3};
  Tensor<float> prediction({1, regions, extent}), label({1, 1, extent}), mask({1, 1, extent});
  const index_t voxels = extent.volume();
  auto random = [&, i = std::uint64_t{0}](std::uint64_t n) mutable { return uniform_below(key, i++, n); };
  for (index_t v = 0; v < voxels; ++v) {
    label.data()[v] = static_cast<float>(random(8));  // region 4 is absent from the label
    if (random(10) == 0) label.data()[v] = ignored_label;
    mask.data()[v] = random(5) == 0 ? 0.0f : 1.0f;
    for (index_t r = 0; r < regions; ++r) {
      prediction.data()[r * voxels + v] = r == 3 ? 0.1f : static_cast<float>(random(100)) / 100;
    }
  }
  std::int64_t counted = 0, positives = 0, wrong = 0, hits[regions] = {}, predicted[regions] = {}, actual[regions] = {};
  for (index_t v = 0; v < voxels; ++v) {
    if (label.data()[v] == ignored_label || mask.data()[v] == 0) continue;
    ++counted;
    const int bits = static_cast<int>(label.data()[v]);
    positives += bits != 0;
    for (index_t r = 0; r < regions; ++r) {
      const bool p = static_cast<double>(prediction.data()[r * voxels + v]) >= threshold, t = (bits >> r & 1) != 0;
      hits[r] += p && t;
      predicted[r] += p;
      actual[r] += t;
      wrong += p != t;
    }
  }
  ScoreSums sums({.regions = regions}, threshold);
  // In two boxes of planes.
  for (const auto& planes : {std::pair<index_t, index_t>{0, 2}, {2, extent.z}}) {
    const auto part = [&](const Tensor<float>& tensor) {
      View<const float> view = tensor.view();
      view.data += planes.first * view.stride[2];
      view.shape.extent.z = planes.second - planes.first;
      return view;
    };
    sums.add(part(prediction), part(label), part(mask));
  }
  const Scores scores = sums.result();
  CHECK(scores.voxels == counted);
  CHECK(scores.positives == positives);
  CHECK(scores.at("pixel_error") == Approx(static_cast<double>(wrong) / static_cast<double>(regions * counted)));
  double dice = 0, iou = 0;
  for (index_t r = 0; r < 3; ++r) {
    const auto both = static_cast<double>(predicted[r] + actual[r]), hit = static_cast<double>(hits[r]);
    CHECK(scores.at(fmt::format("dice_{}", r + 1)) == Approx(2 * hit / both));
    CHECK(scores.at(fmt::format("iou_{}", r + 1)) == Approx(hit / (both - hit)));
    dice += 2 * hit / both / 3;
    iou += hit / (both - hit) / 3;
  }
  CHECK(scores.at("dice") == Approx(dice));
  CHECK(scores.at("iou") == Approx(iou));
  CHECK(std::isnan(scores.at("dice_4")));
  CHECK(std::isnan(scores.at("iou_4")));
  std::vector<std::string> names;
  for (const Score& score : scores.values) names.push_back(score.name);
  CHECK(names == score_names({.regions = regions}));
  prediction.data()[5 * voxels / 2] = std::numeric_limits<float>::quiet_NaN();
  mask.fill(1);
  label.fill(0);
  CHECK_THROWS_WITH(sums.add(prediction.view(), label.view(), {}), Catch::Contains("region 3"));
  CHECK_THROWS_AS(ScoreSums({.regions = 2}, 0.5).result(), InvalidArgument);
}

TEST_CASE("regions are trained with the same bits on 1 and 3 threads, and from files", "[regions]") {
  const RegionFolder folder;
  const std::string label = regions_key + "ignore = [4]\n", more = "[augment]\nflip = ['y']\nrotate90 = true\n";
  const Dataset data = folder.load(label, {}, more), in_files = folder.load(label, {.volume_bytes = 0}, more);
  for (const char* loss : {"kind = 'binary_cross_entropy'\n", "kind = 'dice'\n",
                           "kind = 'binary_cross_entropy'\nrebalance = true\npositive_weight = 2\n"}) {
    CAPTURE(loss);
    const std::string net = net_with(3, loss);
    test::Session one(data, 1, net.c_str()), many(data, 3, net.c_str()), streamed(in_files, 2, net.c_str());
    for (test::Session* session : {&one, &many, &streamed}) session->steps(6);
    CHECK(one.weights() == many.weights());
    CHECK(one.weights() == streamed.weights());
  }
}

TEST_CASE("one region is trained as a binary label is, bit for bit", "[regions]") {
  const RegionFolder folder;
  const Dataset region = folder.load("regions = [[1, 3]]\n"), binary = folder.load("positive = [1, 3]\n");
  for (const char* loss : {"rebalance = true\n", "kind = 'dice'\n"}) {
    const std::string net = net_with(1, loss);
    test::Session one(region, 1, net.c_str()), other(binary, 1, net.c_str());
    one.steps(4);
    other.steps(4);
    CHECK(one.weights() == other.weights());
  }
}

TEST_CASE("a net learns regions that overlap", "[regions]") {
  const RegionFolder folder;
  const Dataset data = folder.load(regions_key);
  for (const char* loss : {"kind = 'binary_cross_entropy'\n", "kind = 'dice'\n"}) {
    const std::string net = net_with(3, loss);
    test::Session session(data, 2, net.c_str());
    const double first = *session.trainer.step();
    double last = first;
    for (int i = 0; i < 150; ++i) last = *session.trainer.step();
    CHECK(last < 0.7 * first);
  }
}

TEST_CASE("nets whose outputs do not fit the regions are refused", "[regions]") {
  const RegionFolder folder;
  const Dataset regions = folder.load(regions_key), plain = folder.load("positive = [1]\n");
  const auto refused = [](const Dataset& data, const std::string& net, const std::vector<std::string>& says) {
    const auto train = [&] { test::Session session(data, 1, net.c_str()); };
    CHECK_THROWS_AS(train(), ConfigError);
    for (const std::string& part : says) CHECK_THROWS_WITH(train(), Catch::Contains(part));
  };
  for (const char* loss : {"kind = 'binary_cross_entropy'\n", "kind = 'dice'\n"}) {
    refused(plain, net_with(3, loss), {"small.toml", "3 channels", "no [label] regions", "'d'"});
    refused(regions, net_with(2, loss), {"small.toml", "2 channels", "3 regions", "as many output channels"});
    refused(regions, net_with(1, loss), {"1 channels", "3 regions"});
  }
  refused(regions, net_with(3, "kind = 'softmax_cross_entropy'\n"), {"softmax_cross_entropy", "3 overlapping regions"});
  refused(regions, net_with(3, "kind = 'square'\n"), {"square", "binary_cross_entropy or dice"});
  refused(plain, net_with(3, "kind = 'square'\n"), {"3 channels", "use 1 channel"});
  CHECK_THROWS_WITH(folder.load("regions = [[1], [2], [77]]\n"),
                    Catch::Contains("the value 77 of region 3 occurs in no training volume"));
}

TEST_CASE("files of regions are scored, and options that contradict each other are refused", "[regions]") {
  const RegionFolder folder;
  Tensor<float> perfect({1, 3, extent});
  for (index_t i = 0; i < extent.volume(); ++i) {
    for (index_t r = 0; r < 3; ++r) {
      perfect.data()[r * extent.volume() + i] = lies_in(stored_label(i), r) ? 0.9f : 0.2f;
    }
  }
  io::write_volume(folder / "p.h5", perfect.view());
  EvaluateOptions options;
  options.prediction = folder / "p.h5";
  options.label = folder / "label.h5";
  options.ignore = {4};
  options.regions = {{1, 2, 3}, {2, 3}, {1, 3}};
  const Scores scores = evaluate_files(options);
  for (const char* name : {"dice", "iou_1", "dice_2", "dice_3"}) CHECK(scores.at(name) == 1);
  CHECK(scores.at("pixel_error") == 0);
  std::int64_t counted = 0;
  for (index_t i = 0; i < extent.volume(); ++i) counted += stored_label(i) != 4;
  CHECK(scores.voxels == counted);
  options.threshold = 0.95;
  CHECK(evaluate_files(options).at("dice") == 0);
  const auto refused = [&](const EvaluateOptions& wrong, const std::string& says) {
    CHECK_THROWS_AS(evaluate_files(wrong), Error);
    CHECK_THROWS_WITH(evaluate_files(wrong), Catch::Contains(says));
  };
  const auto with = [&](const auto& change) {
    EvaluateOptions changed = options;
    change(changed);
    return changed;
  };
  refused(with([](EvaluateOptions& o) { o.positive = {1}; }), "--positive and --regions exclude each other");
  refused(with([](EvaluateOptions& o) { o.classes = 3; }), "--classes 3");
  refused(with([](EvaluateOptions& o) { o.classes = 2; }), "not 0 or 1");
  refused(with([](EvaluateOptions& o) { o.regions.pop_back(); }), "2 regions are listed");
  refused(with([](EvaluateOptions& o) { o.regions[1].clear(); }), "region 2 is empty");
  refused(with([](EvaluateOptions& o) { o.threshold = std::nan(""); }), "threshold");
}

TEST_CASE("pictures of a report show the last region of a voxel", "[regions]") {
  const RegionFolder folder;
  const Dataset data = folder.load(regions_key + "ignore = [4]\n");
  VolumeSlices slices(data.train[0], {.regions = 3}, std::pmr::get_default_resource());
  Tensor<float> probabilities({1, 3, extent});
  probabilities.fill(0);
  slices.predict(probabilities.view());
  const auto none = slices.slices()[0].prediction;
  for (index_t i = 0; i < extent.volume(); ++i) probabilities.data()[extent.volume() + i] = 0.5f;
  slices.predict(probabilities.view());
  CHECK(slices.slices()[0].prediction != none);
  CHECK(slices.targets().regions == 3);
  const NetSpec spec = parse_net(net_with(3, ""), "net.toml");
  const Tensor<float> shown = foreground(spec, std::move(probabilities));
  CHECK(shown.shape() == Shape5{1, 1, extent});
  for (index_t i = 0; i < shown.elements(); ++i) CHECK(shown.data()[i] == 0.5f);
}

}  // namespace convolume::nets
