// Classifiers from files to predictions: training, validation, checkpoints, resume, tables, and what is refused.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "testing/temporary_folder.hpp"
#include "testing/training_session.hpp"
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "convolume/error.hpp"
#include "convolume/nets.hpp"
#include "core/files.hpp"
#include "nets/eval/confusion_matrix.hpp"
#include "nets/graph/training_memory.hpp"
#include "nets/io/csv.hpp"
#include "nets/io/volume_sink.hpp"
#include "nets/report/case_pictures.hpp"
#include "nets/spec/checkpoint.hpp"
#include "nets/spec/net_shapes.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

const std::string body = R"(
[[node]]
name = "conv"
type = "conv"
out_channels = 4
kernel = [1, 3, 3]
activation = "relu"
[[node]]
name = "pool"
type = "max_pool"
window = [1, 2, 2]
[[node]]
name = "full"
type = "conv"
out_channels = 8
kernel = "all"
activation = "relu"
[[node]]
name = "logits"
type = "conv"
out_channels = 2
kernel = 1
)";
const std::string recipe = R"(
[loss]
kind = "softmax_cross_entropy"
[optimizer]
learning_rate = 0.01
[training]
batch = 4
iterations = 40
validate_every = 10
checkpoint_every = 20
best = "balanced_error"
)";
const std::string net = "name = 'c'\n[input]\npatch = [2, 8, 8]\n" + body + recipe;
const std::string data = R"(
name = "stripes"
[label]
class_of = "folder"
[augment]
flip = ["z", "y", "x"]
[[train]]
image = "train/*/*.nii"
[[validation]]
image = "test/*/*.nii"
)";

/// Volumes whose stripes run along X ("rows") or along Y ("columns").
class Stripes : public test::TemporaryFolder {
 public:
  Stripes() {
    for (int i = 0; i < 6; ++i) {
      for (const char* name : {"rows", "columns"}) volume(fmt::format("train/{}/{}.nii", name, i), name, i);
    }
    for (int i = 0; i < 3; ++i) {
      for (const char* name : {"rows", "columns"}) volume(fmt::format("test/{}/{}.nii", name, i), name, 7 + i);
    }
    write("net.toml", net);
    write("data.toml", data);
  }
  void volume(const std::string& file, const std::string& kind, int phase, const Extent3& extent = {3, 10, 11},
              index_t channels = 1) const {
    const fs::path path = *this / file;
    fs::create_directories(path.parent_path());
    std::vector<std::uint8_t> voxels;
    for (index_t i = 0; i < channels * extent.volume(); ++i) {
      const index_t y = i / extent.x % extent.y, x = i % extent.x;
      voxels.push_back(
          static_cast<std::uint8_t>(((kind == "rows" ? y : x) + phase) % 4 < 2 ? 200 + i % 7 : 20 + i % 5));
    }
    const auto sink =
        io::create_volume({path, ""}, {.channels = channels, .extent = extent, .type = io::VoxelType::uint8});
    sink->write({0, channels}, {{0, 0, 0}, extent}, std::as_bytes(std::span(voxels)));
    sink->finish();
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(*this / name) << text; }
  TrainResult train(const std::string& out, std::optional<std::int64_t> iterations = {}, bool resume = false,
                    int threads = 2) const {
    TrainOptions options;
    options.net = *this / "net.toml";
    options.data = *this / "data.toml";
    options.out = *this / out;
    options.iterations = iterations;
    options.resume = resume;
    options.threads = threads;
    return nets::train(options);
  }
  InferOptions infer_options(const std::string& run = "run") const {
    InferOptions options;
    options.checkpoint = *this / run / "checkpoints" / "last.safetensors";
    options.output = *this / "out.csv";
    options.volume = (*this / "test/rows/0.nii").string();
    return options;
  }
  std::vector<io::CsvRow> table() const { return io::parse_csv(read_file(*this / "out.csv", 1 << 20), "out.csv"); }
};

template <class Function>
std::string complaint(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

std::string net_complaint(const std::string& text) {
  return complaint([&] { infer_shapes(parse_net(text, "net.toml"), parse_net(text, "net.toml").patch); });
}

}  // namespace

TEST_CASE("a kernel of all voxels is resolved at the training patch") {
  const NetSpec spec = parse_net(net, "net.toml");
  const NetShapes shapes = infer_shapes(spec, spec.patch);
  CHECK(shapes.one_voxel());
  CHECK_FALSE(shapes.keeps_resolution());
  CHECK(spec.nodes[2].layer->title() == "conv 2 x 3 x 3 + relu");
  const NetSpec larger = parse_net(net, "net.toml", {"input.patch=[2, 12, 12]"});
  CHECK(larger.nodes[2].layer->title() == "conv 2 x 5 x 5 + relu");
  CHECK(larger.architecture() != spec.architecture());
}

TEST_CASE("a kernel of all voxels has no padding, stride or dilation, and is not transposed") {
  for (const char* key : {"padding = 1", "padding = \"same\"", "stride = 2", "dilation = 2"}) {
    const std::string text = replaced(net, "kernel = \"all\"", std::string("kernel = \"all\"\n") + key);
    CHECK_THAT(net_complaint(text), Contains("net.toml:") && Contains("leave '" + std::string(key).substr(0, 5)));
  }
  CHECK_THAT(net_complaint(replaced(net, "\"all\"", "\"most\"")), Contains("'most'") && Contains("\"all\""));
  const std::string transposed =
      replaced(net, "type = \"conv\"\nout_channels = 8", "type = \"transposed_conv\"\nout_channels = 8");
  CHECK_THAT(net_complaint(transposed), Contains("not transposed"));
}

TEST_CASE("an output of several voxels has the resolution of the input") {
  CHECK_THAT(net_complaint(replaced(net, "\"all\"", "1")), Contains("one voxel per 2 of the input"));
}

TEST_CASE("a classifier is trained, validated and kept by its balanced error") {
  const Stripes folder;
  const TrainResult result = folder.train("run");
  REQUIRE(result.validation);
  const Scores& scores = *result.validation;
  CHECK(scores.classes == std::vector<std::string>{"columns", "rows"});
  CHECK(scores.at("error") == 0);
  CHECK(scores.at("balanced_error") == 0);
  CHECK(scores.confusion == std::vector<std::vector<std::int64_t>>{{3, 0}, {0, 3}});
  CHECK(scores.voxels == 6);
  CHECK(result.best->score.name == "balanced_error");
  CHECK(result.best->score.value == 0);
  CHECK_THAT(read_file(result.metrics, 1 << 20), Contains("\"confusion\":[[3,0],[0,3]]"));
  const CheckpointHeader header = read_checkpoint_header(result.checkpoint);
  CHECK(header.class_names == scores.classes);
  CHECK_THAT(describe_checkpoint(result.checkpoint), Contains("columns, rows"));
}

TEST_CASE("a classifier that is resumed, or trained on another number of threads, has the same bits") {
  const Stripes folder;
  const auto bytes = [&](const std::string& run) {
    return read_file(folder / run / "checkpoints" / "last.safetensors", 1 << 24);
  };
  folder.train("whole", 12);
  folder.train("parts", 5);
  folder.train("parts", 12, true);
  CHECK(bytes("parts") == bytes("whole"));
  folder.train("one", 12, false, 1);
  CHECK(bytes("one") == bytes("whole"));
}

TEST_CASE("images that stay in their files give a classifier the same bits") {
  const Stripes folder;
  const Dataset in_memory = load_dataset(folder / "data.toml");
  const Dataset in_files = load_dataset(folder / "data.toml", {.volume_bytes = 0});
  CHECK(in_files.train.front().files != nullptr);
  CHECK(in_files.digest == in_memory.digest);
  test::Session one(in_memory, 1, net.c_str()), other(in_files, 1, net.c_str());
  one.steps(5);
  other.steps(5);
  CHECK(one.weights() == other.weights());
}

TEST_CASE("a run is not resumed with another table of classes") {
  const Stripes folder;
  std::string table = "case,class\n";
  for (const char* name : {"rows", "columns"}) {
    for (int i = 0; i < 6; ++i) table += fmt::format("train/{}/{}.nii,{}\n", name, i, name);
    for (int i = 0; i < 3; ++i) table += fmt::format("test/{}/{}.nii,{}\n", name, i, name);
  }
  folder.write("data.toml", replaced(data, "\"folder\"", "\"t.csv\""));
  folder.write("t.csv", table);
  folder.train("run", 2);
  folder.write("t.csv", replaced(table, "train/rows/3.nii,rows", "train/rows/3.nii,columns"));
  CHECK_THAT(complaint([&] { folder.train("run", 4, true); }), Contains("was trained on other data"));
  folder.write("t.csv", table);
  CHECK(folder.train("run", 4, true).iteration == 4);
}

TEST_CASE("the report of a classifier shows the confusion matrix and patches in the place of slices") {
  const Stripes folder;
  const TrainResult result = folder.train("run");
  CHECK(result.slice.empty());
  const std::string page = read_file(result.report, 1 << 26);
  CHECK_THAT(page, Contains("\"confusion\":[[3,0],[0,3]]") && Contains("\"volume\":null"));
  CHECK_THAT(page, Contains("{\"name\":\"test/rows/1.nii\",\"actual\":\"rows\",\"predicted\":\"rows\""));
  CHECK_THAT(page, Contains("[\"train\",\"rows\",\"6\"]"));
}

TEST_CASE("the report shows some cases of each pair of a true and a predicted class") {
  Tensor<float> voxels({1, 1, {3, 12, 12}});
  voxels.fill(1);
  const StoredVolume image(std::move(voxels));
  CasePictures pictures({1, 8, 8});
  for (int i = 0; i < 20; ++i) {
    for (const std::size_t number : {0, 1}) {
      pictures.add(fmt::format("case {}", i), image, number, number, std::pmr::get_default_resource());
    }
  }
  pictures.add("wrong", image, 1, 0, std::pmr::get_default_resource());
  CHECK(pictures.right().size() == 16);
  REQUIRE(pictures.wrong().size() == 1);
  CHECK(pictures.wrong().front().predicted == 0);
}

TEST_CASE("pictures of a report show a plane that the net reads") {
  Tensor<float> voxels({1, 1, {2, 8, 8}});
  voxels.fill(0);
  for (index_t i = 0; i < 64; ++i) voxels.data()[i] = static_cast<float>(i);  // the net reads plane 0 alone
  CasePictures pictures({1, 8, 8});
  pictures.add("planes", StoredVolume(std::move(voxels)), 0, 0, std::pmr::get_default_resource());
  Tensor<float> first({1, 1, {1, 8, 8}});
  for (index_t i = 0; i < 64; ++i) first.data()[i] = static_cast<float>(i);
  pictures.add("plane 0", StoredVolume(std::move(first)), 1, 1, std::pmr::get_default_resource());
  REQUIRE(pictures.right().size() == 2);
  CHECK(pictures.right()[0].image == pictures.right()[1].image);
}

TEST_CASE("the report says which classes the validation lacks") {
  const Stripes folder;
  fs::remove_all(folder / "test/rows");
  const std::string page = read_file(folder.train("run").report, 1 << 26);
  CHECK_THAT(page, Contains("1 of 2 classes") && Contains("no case of rows"));
}

TEST_CASE("the memory of training holds the validation of a classifier with the batch of training") {
  const NetSpec batch_of_4 = parse_net(net, "net.toml");
  const NetSpec batch_of_1 = parse_net(replaced(net, "batch = 4", "batch = 1"), "net.toml");
  CHECK(validation_batch(batch_of_4) == 4);
  CHECK(validation_network_bytes(batch_of_4, {}, 1) > validation_network_bytes(batch_of_1, {}, 1));
}

TEST_CASE("infer refuses less memory than the net of a classifier takes") {
  const Stripes folder;
  folder.train("run", 1);
  InferOptions options = folder.infer_options();
  options.memory = 1 << 10;
  CHECK_THAT(complaint([&] { infer(options); }), Contains("the net alone takes") && Contains("smaller --batch"));
}

TEST_CASE("infer writes a table of classes and probabilities") {
  const Stripes folder;
  folder.train("run");
  InferOptions options = folder.infer_options();
  options.cases = {(folder / "test/columns/1.nii").string(), (folder / "test/rows/2.nii").string()};
  CHECK(infer(options));
  const auto rows = folder.table();
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].fields == std::vector<std::string>{"case", "class", "probability columns", "probability rows"});
  CHECK(rows[1].fields[0] == options.volume);
  CHECK(rows[1].fields[1] == "rows");
  CHECK(rows[2].fields[1] == "columns");
  CHECK(rows[3].fields[1] == "rows");
  for (std::size_t i = 1; i < rows.size(); ++i) {
    CHECK(std::stod(rows[i].fields[2]) + std::stod(rows[i].fields[3]) == Approx(1));
  }
  // The bits do not depend on threads, and cases do not depend on each other.
  options.threads = 1;
  options.volume = options.cases.back();
  options.cases.clear();
  CHECK(infer(options));
  CHECK(folder.table()[1].fields == rows[3].fields);
}

TEST_CASE("images smaller than the patch need pad, which infer takes from the checkpoint") {
  const Stripes folder;
  folder.volume("test/rows/small.nii", "rows", 1, {1, 6, 11});
  CHECK_THAT(complaint([&] { folder.train("run"); }),
             Contains("test/rows/small.nii") && Contains("1 x 6 x 11") && Contains("pad"));
  folder.volume("train/rows/small.nii", "rows", 1, {2, 5, 9});
  for (const char* pad : {"mirror", "zero"}) {
    CAPTURE(pad);
    folder.write("data.toml", data + "[sampling]\npad = '" + pad + "'\n");
    CHECK(folder.train(pad).validation->voxels == 7);
    InferOptions options = folder.infer_options(pad);
    options.volume = (folder / "test/rows/small.nii").string();
    CHECK(infer(options));
    CHECK(folder.table()[1].fields[1] == "rows");
  }
  fs::remove(folder / "test/rows/small.nii");
  fs::remove(folder / "train/rows/small.nii");
  folder.write("data.toml", data);
  folder.train("run");
  folder.volume("small.nii", "rows", 1, {1, 6, 11});
  InferOptions options = folder.infer_options();
  options.volume = (folder / "small.nii").string();
  CHECK_THAT(complaint([&] { infer(options); }), Contains("small.nii") && Contains("[sampling] pad"));
}

TEST_CASE("nets and data sets that do not fit together are refused") {
  const Stripes folder;
  const auto refused = [&](const std::string& with_net, const std::string& with_data) {
    folder.write("net.toml", with_net);
    folder.write("data.toml", with_data);
    return complaint([&] { folder.train("run"); });
  };
  const std::string segmentation = replaced(replaced(net, "\"all\"", "1"), "window = [1, 2, 2]", "window = 1");
  CHECK_THAT(refused(segmentation, data), Contains("2 x 6 x 6") && Contains("kernel = \"all\""));
  CHECK_THAT(refused(replaced(net, "balanced_error", "dice"),
                     "name = 's'\n[synthetic]\nextent = [6, 32, 32]\n[[train]]\n[[validation]]\n"),
             Contains("is a classifier") && Contains("class_of"));
  CHECK_THAT(refused(replaced(net, "softmax_cross_entropy", "dice"), data), Contains("use softmax_cross_entropy"));
  CHECK_THAT(refused(replaced(net, "out_channels = 2", "out_channels = 3"), data),
             Contains("2 classes (columns, rows)") && Contains("channels of the net are 3"));
  CHECK_THAT(refused(replaced(net, "out_channels = 2", "out_channels = 1"), data),
             Contains("channels of the net are 1"));
  CHECK_THAT(refused(replaced(net, "batch = 4", "batch = 13"), data), Contains("12 training cases"));
  CHECK_THAT(refused(replaced(net, "balanced_error", "dice"), data), Contains("error, balanced_error"));
  folder.volume("train/rows/9.nii", "rows", 1, {3, 10, 11}, 2);
  CHECK_THAT(refused(net, data), Contains("train/rows/9.nii") && Contains("2 channels"));
}

TEST_CASE("a net with one output voxel of the input's resolution learns what the data set has") {
  const Stripes folder;
  const std::string both =
      replaced(replaced(net, "type = \"max_pool\"\nwindow = [1, 2, 2]", "type = \"dropout\"\nrate = 0.1"),
               "best = \"balanced_error\"", "");
  folder.write("net.toml", replaced(both, "iterations = 40", "iterations = 2"));
  CHECK(folder.train("classes").iteration == 2);
  folder.write("data.toml", "name = 's'\n[synthetic]\nextent = [6, 32, 32]\n[[train]]\n");
  CHECK(folder.train("labels").iteration == 2);
  InferOptions options = folder.infer_options("labels");
  CHECK_THAT(complaint([&] { infer(options); }), Contains("only a classifier writes a table"));
}

TEST_CASE("infer refuses what only other nets have") {
  const Stripes folder;
  folder.train("run", 2);
  const auto refused = [&](const auto& change) {
    InferOptions options = folder.infer_options();
    change(options);
    return complaint([&] { infer(options); });
  };
  using O = InferOptions;
  CHECK_THAT(refused([](O& o) { o.output.replace_extension(".tif"); }), Contains("out.tif") && Contains(".csv"));
  CHECK_THAT(refused([](O& o) {
               o.patch = Extent3{2, 8, 8};
             }),
             Contains("--patch") && Contains("leave the option out"));
  CHECK_THAT(refused([](O& o) { o.cheapest_patch = true; }), Contains("--patch"));
  CHECK_THAT(refused([](O& o) { o.overlap = Extent3{0, 0, 0}; }), Contains("--overlap"));
  CHECK_THAT(refused([](O& o) { o.begin = Extent3{0, 0, 0}; }), Contains("--box"));
  CHECK_THAT(refused([](O& o) { o.blend = Blend::uniform; }), Contains("--blend"));
  CHECK_THAT(refused([](O& o) { o.flip[1] = true; }), Contains("--flip"));
  CHECK_THAT(refused([](O& o) { o.labels = true; }), Contains("--labels"));
  CHECK_THAT(refused([](O& o) { o.as_uint8 = true; }), Contains("--uint8"));
  CHECK_THAT(refused([](O& o) { o.resume = true; }), Contains("--resume"));
  CHECK_THAT(refused([](O& o) { o.trace = "t.json"; }), Contains("--trace"));
  CHECK_THAT(refused([](O& o) { o.channels = o.cases = {"a", "b"}; }), Contains("--channel"));
  CHECK_THAT(refused([](O& o) { o.output = "/no/such/folder/o.csv"; }), Contains("/no/such/folder"));
  folder.volume("two.nii", "rows", 1, {3, 10, 11}, 2);
  CHECK_THAT(refused([&](O& o) { o.volume = (folder / "two.nii").string(); }), Contains("two.nii has 2"));
  folder.write("cut.nii", read_file(folder / "test/rows/0.nii", 1 << 20).substr(0, 400));
  CHECK_THAT(refused([&](O& o) { o.volume = (folder / "cut.nii").string(); }), Contains("cut.nii"));
  CHECK_THAT(complaint([&] { plan_inference(folder.infer_options()); }), Contains("is a classifier"));
  CHECK_THAT(complaint([&] { VolumePredictor predictor(folder.infer_options()); }), Contains("is a classifier"));
}

TEST_CASE("other patches of a classifier are refused when it is described") {
  const Stripes folder;
  const Extent3 patch{2, 12, 12};
  const fs::path file = folder / "net.toml";
  CHECK_THAT(complaint([&] { describe_net(file, {}, patch); }), Contains("--patch") && Contains("is a classifier"));
  CHECK_THAT(complaint([&] { count_blocking(file, {}, patch); }), Contains("is a classifier"));
  CHECK_THAT(complaint([&] { memory_curve(file, {}, patch); }), Contains("is a classifier"));
  CHECK_THAT(describe_net(file, {"input.patch=[2, 12, 12]"}), Contains("conv 2 x 5 x 5"));
}

TEST_CASE("the balanced error averages the classes that are present, and says so") {
  ConfusionMatrix matrix({"a", "b", "c"});
  for (int i = 0; i < 8; ++i) matrix.add(0, 0);
  matrix.add(1, 0);
  matrix.add(1, 1);
  const Scores scores = matrix.result();
  CHECK(scores.at("error") == Approx(0.1));
  CHECK(scores.at("balanced_error") == Approx(0.25));
  CHECK_THAT(scores.note, Contains("2 of 3 classes") && Contains("no case of c"));
  CHECK_THROWS_AS(ConfusionMatrix({"a", "b"}).result(), InvalidArgument);
}

TEST_CASE("fields of a table are quoted where they have to be") {
  const std::vector<std::string> fields{"plain", "a,b", "say \"no\"", "two\nlines", ""};
  const std::string line = io::csv_line(fields);
  CHECK(line == "plain,\"a,b\",\"say \"\"no\"\"\",\"two\nlines\",\n");
  CHECK(io::parse_csv(line, "t").front().fields == fields);
}

}  // namespace convolume::nets
