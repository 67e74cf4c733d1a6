// Data sets whose cases have classes: which files are cases, which classes they have, and what is refused.
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "core/files.hpp"
#include "nets/data/dataset.hpp"
#include "nets/io/png.hpp"
#include "nets/io/volume_sink.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using Names = std::vector<std::string>;

class ClassFolder : public test::TemporaryFolder {
 public:
  ClassFolder() {
    for (const char* name : {"train/cat/1.nii", "train/cat/2.nii", "train/Dog/1.nii", "test/cat/9.nii"}) volume(name);
  }
  void volume(const std::string& name) const {
    const fs::path path = *this / name;
    fs::create_directories(path.parent_path());
    std::vector<std::uint8_t> voxels;
    for (std::size_t i = 0; i < 40; ++i) voxels.push_back(static_cast<std::uint8_t>(3 * i + name.size()));
    const auto sink = io::create_volume({path, ""}, {.extent = {2, 4, 5}, .type = io::VoxelType::uint8});
    sink->write({0, 1}, {{0, 0, 0}, {2, 4, 5}}, std::as_bytes(std::span(voxels)));
    sink->finish();
  }
  void picture(const std::string& name) const {
    fs::create_directories((*this / name).parent_path());
    std::vector<std::uint8_t> pixels(12);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(20 * i);
    io::write_png(*this / name, 4, 3, 1, pixels);
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(*this / name) << text; }
  Dataset load(const std::string& text) const {
    write("data.toml", "name = 'd'\n" + text);
    return load_dataset(*this / "data.toml");
  }
  std::string complaint(const std::string& text) const {
    try {
      load(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  }
  /// Returns the complaint about a table of classes.
  std::string complaint_of_table(const std::string& table) const {
    write("t.csv", table);
    return complaint("[[train]]\nimage = 'train/*/*.nii'\n[label]\nclass_of = 't.csv'\n");
  }
};

const std::string by_folder = "[[train]]\nimage = 'train/*/*.nii'\n[label]\nclass_of = 'folder'\n";

Names classes(const Dataset& data, const std::vector<LabelledVolume>& list) {
  Names result;
  for (const LabelledVolume& volume : list) {
    result.push_back(volume.name + " " + data.class_names[static_cast<std::size_t>(volume.class_number)]);
  }
  return result;
}

}  // namespace

TEST_CASE("each file is a case, and its folder is its class") {
  const ClassFolder folder;
  const Dataset data = folder.load(by_folder + "[[validation]]\nimage = 'test/*/*.nii'\n");
  CHECK(data.class_names == Names{"Dog", "cat"});  // in the order of bytes
  CHECK(classes(data, data.train) == Names{"train/Dog/1.nii Dog", "train/cat/1.nii cat", "train/cat/2.nii cat"});
  CHECK(classes(data, data.validation) == Names{"test/cat/9.nii cat"});
}

TEST_CASE("PNG and TIFF files are cases too, and their stars never stand for slices") {
  const ClassFolder folder;
  for (const char* name : {"p/a/1.png", "p/a/2.png", "p/b/1.png"}) folder.picture(name);
  folder.volume("t/a/1.tif");
  folder.volume("t/b/1.tif");
  const Dataset pictures = folder.load("[[train]]\nimage = 'p/*/*.png'\n[label]\nclass_of = 'folder'\n");
  CHECK(classes(pictures, pictures.train) == Names{"p/a/1.png a", "p/a/2.png a", "p/b/1.png b"});
  CHECK(pictures.train.front().extent() == Extent3{1, 3, 4});
  const Dataset stacks = folder.load("[[train]]\nimage = 't/*/*.tif'\n[label]\nclass_of = 'folder'\n");
  CHECK(classes(stacks, stacks.train) == Names{"t/a/1.tif a", "t/b/1.tif b"});
}

TEST_CASE("a table says the class of each case, with quotes as in RFC 4180") {
  const ClassFolder folder;
  folder.write("t.csv",
               "\xEF\xBB\xBF"
               "case,class\r\n\r\n\"train/cat/1.nii\",\"a \"\"big\"\", one\"\r\n./train/cat/2.nii,b\r\n"
               "train/Dog/1.nii,b\r\nno/such.nii,c\r\n");
  const Dataset data = folder.load("[[train]]\nimage = 'train/*/*.nii'\n[label]\nclass_of = 't.csv'\n");
  CHECK(data.class_names == Names{"a \"big\", one", "b"});
  CHECK(classes(data, data.train) == Names{"train/Dog/1.nii b", "train/cat/1.nii a \"big\", one", "train/cat/2.nii b"});
}

TEST_CASE("classes have the order in which they are listed, and cases can be left out") {
  const ClassFolder folder;
  const Dataset data = folder.load(
      "[[train]]\nimage = 'train/*/*.nii'\nnot_cases = ['train/cat/1.nii']\n"
      "[label]\nclass_of = 'folder'\nclasses = ['cat', 'Dog']\n");
  CHECK(data.class_names == Names{"cat", "Dog"});
  CHECK(classes(data, data.train) == Names{"train/Dog/1.nii Dog", "train/cat/2.nii cat"});
}

TEST_CASE("further images are those that the same texts name") {
  const ClassFolder folder;
  folder.volume("second/Dog-1.nii");
  folder.volume("second/cat-1.nii");
  folder.volume("second/cat-2.nii");
  const Dataset data =
      folder.load("[[train]]\nimage = ['train/*/*.nii', 'second/*-*.nii']\n[label]\nclass_of = 'folder'\n");
  CHECK(data.train.front().channels() == 2);
  CHECK(data.train.size() == 3);
}

TEST_CASE("several stars of a name stand for as little as possible from the left") {
  const ClassFolder folder;
  for (const char* name : {"one/aXbXc.nii", "two/aXbXc.nii"}) folder.volume(name);
  for (const char* name : {"pairs/deep/one_a_bXc.nii", "pairs/deep/two_a_bXc.nii"}) folder.volume(name);
  const Dataset data =
      folder.load("[[train]]\nimage = ['*/*X*.nii', 'pairs/deep/*_*_*.nii']\n[label]\nclass_of = 'folder'\n");
  CHECK(data.class_names == Names{"one", "two"});
  CHECK(data.train.front().channels() == 2);
  CHECK_THAT(folder.complaint("[[train]]\nimage = '*/aX*X*X*.nii'\n[label]\nclass_of = 'folder'\n"),
             Contains("matches no file"));
}

TEST_CASE("names and order of classes, and the class of each case, are part of the digest") {
  const ClassFolder folder;
  const std::string train = "[[train]]\nimage = 'train/*/*.nii'\n[label]\n";
  folder.write("a.csv", "case,class\ntrain/cat/1.nii,a\ntrain/cat/2.nii,a\ntrain/Dog/1.nii,b\n");
  folder.write("b.csv", "case,class\ntrain/cat/1.nii,a\ntrain/cat/2.nii,b\ntrain/Dog/1.nii,b\n");
  const std::vector<std::string> digests{folder.load(train + "class_of = 'folder'\n").digest,
                                         folder.load(train + "class_of = 'folder'\nclasses = ['cat', 'Dog']\n").digest,
                                         folder.load(train + "class_of = 'a.csv'\n").digest,
                                         folder.load(train + "class_of = 'b.csv'\n").digest};
  CHECK(std::set<std::string>(digests.begin(), digests.end()).size() == digests.size());
  CHECK(folder.load(train + "class_of = 'folder'\n").digest == digests.front());
}

TEST_CASE("classes that are not UTF-8 are refused before anything is computed") {
  const ClassFolder folder;
  CHECK_THAT(folder.complaint_of_table("case,class\ntrain/cat/1.nii,M\xFC"
                                       "cke\ntrain/cat/2.nii,b\ntrain/Dog/1.nii,b\n"),
             Contains("is not UTF-8; save the table as UTF-8"));
}

TEST_CASE("a list of one class is told from cases of one class") {
  const ClassFolder folder;
  const std::string train = "[[train]]\nimage = 'train/*/*.nii'\n[label]\nclass_of = 'folder'\n";
  CHECK_THAT(folder.complaint(train + "classes = ['cat']\n"), Contains("[label] classes lists only the class 'cat'"));
}

TEST_CASE("a case without class, or twice in the table, is an error") {
  const ClassFolder folder;
  CHECK_THAT(folder.complaint_of_table("case,class\ntrain/cat/1.nii,a\ntrain/Dog/1.nii,b\n"),
             Contains("data.toml:3") && Contains("'train/cat/2.nii' has no class in") && Contains("not_cases"));
  CHECK_THAT(folder.complaint_of_table("case,class\ntrain/cat/1.nii,a\ntrain/cat/1.nii,b\n"),
             Contains("t.csv:3") && Contains("'train/cat/1.nii' has a class already"));
}

TEST_CASE("tables that make no sense name file, line and remedy") {
  const ClassFolder folder;
  CHECK_THAT(folder.complaint_of_table("case,class\n"), Contains("t.csv:1") && Contains("header only"));
  CHECK_THAT(folder.complaint_of_table(""), Contains("t.csv:1") && Contains("case,class"));
  CHECK_THAT(folder.complaint_of_table("name,class\na,b\n"), Contains("t.csv:1") && Contains("case,class"));
  CHECK_THAT(folder.complaint_of_table("case,class\na,b,c\n"), Contains("t.csv:2") && Contains("quote"));
  CHECK_THAT(folder.complaint_of_table("case,class\na,\n"), Contains("t.csv:2"));
  CHECK_THAT(folder.complaint_of_table("case,class\na,\"b\n"), Contains("t.csv:2") && Contains("closing quote"));
  CHECK_THAT(folder.complaint_of_table("case,class\na,\"b\"c\n"), Contains("t.csv:2") && Contains("double"));
  CHECK_THAT(folder.complaint_of_table("case,class\na,b\"c\n"), Contains("t.csv:2") && Contains("double"));
  const std::string train = "[[train]]\nimage = 'train/*/*.nii'\n[label]\n";
  CHECK_THAT(folder.complaint(train + "class_of = 'none.csv'\n"), Contains("none.csv"));
  CHECK_THAT(folder.complaint(train + "class_of = 'folders'\n"), Contains("'folders'") && Contains("\"folder\""));
}

TEST_CASE("classes that cannot be learned are errors") {
  const ClassFolder folder;
  CHECK_THAT(folder.complaint("[[train]]\nimage = 'train/cat/*.nii'\n[label]\nclass_of = 'folder'\n"),
             Contains("all cases have the class 'cat'") && Contains("two classes"));
  CHECK_THAT(folder.complaint(by_folder + "classes = ['cat', 'Dog', 'cow']\n"),
             Contains("'cow' has no training case") && Contains("leave the class out"));
  CHECK_THAT(folder.complaint(by_folder + "classes = ['cat', 'cow']\n"), Contains("'cow' has no training case"));
  CHECK_THAT(folder.complaint(by_folder + "classes = ['cat', 'Dog', 'cat']\n"), Contains("'cat' is listed twice"));
  folder.volume("test/cow/1.nii");
  CHECK_THAT(folder.complaint(by_folder + "[[validation]]\nimage = 'test/*/*.nii'\n"),
             Contains("'cow' has no training case"));
  CHECK_THAT(folder.complaint(by_folder + "classes = ['cat', 'Dog']\n[[validation]]\nimage = 'test/*/*.nii'\n"),
             Contains("'test/cow/1.nii' has the class 'cow'") && Contains("does not list"));
}

TEST_CASE("keys of labels are refused beside class_of") {
  const ClassFolder folder;
  for (const char* key : {"positive = [1]", "ignore = [1]", "regions = [[1]]"}) {
    CHECK_THAT(folder.complaint(by_folder + key + "\n"),
               Contains(std::string(key).substr(0, 6)) && Contains("class_of"));
  }
  for (const char* key : {"label", "mask"}) {
    CHECK_THAT(folder.complaint("[[train]]\nimage = 'train/*/*.nii'\n" + std::string(key) +
                                " = 'x.nii'\n[label]\nclass_of = 'folder'\n"),
               Contains("data.toml:4") && Contains("class_of"));
  }
  CHECK_THAT(folder.complaint(by_folder + "[sampling]\nforeground = 0.5\n"), Contains("foreground"));
  CHECK_THAT(folder.complaint("[[train]]\n[synthetic]\n[label]\nclass_of = 'folder'\n"), Contains("built-in volume"));
}

TEST_CASE("paths of cases that make no sense name key and remedy") {
  const ClassFolder folder;
  const std::string label = "[label]\nclass_of = 'folder'\n";
  CHECK_THAT(folder.complaint("[[train]]\nimage = 'no/*.nii'\n" + label), Contains("matches no file"));
  CHECK_THAT(folder.complaint("[[train]]\nimage = ['train/*/*.nii', 'x/*.nii']\n" + label),
             Contains("the number of stars is 1, but that of the first image is 2"));
  CHECK_THAT(folder.complaint("[[train]]\nimage = 'a*b*c*d*e*f*g*h*i*/x'\n" + label), Contains("more than 8 stars"));
  CHECK_THAT(folder.complaint("[[train]]\nimage = 'train/*/*.nii'\ncases = ['x']\n" + label),
             Contains("'x' is no case"));
  folder.write("train/cat/3.nii", read_file(folder / "train/cat/1.nii", 1 << 20).substr(0, 380));
  CHECK_THAT(folder.complaint(by_folder), Contains("3.nii") && Contains("380 bytes"));
  folder.write("train/cat/3.nii", "no image");
  CHECK_THAT(folder.complaint(by_folder), Contains("3.nii") && Contains("no format takes it"));
}

}  // namespace convolume::nets
