// Tests that a C++ locale with grouped digits and a decimal comma changes nothing.
#include <filesystem>
#include <locale>
#include <sstream>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "convolume/conv.hpp"
#include "convolume/machine.hpp"
#include "convolume/nets.hpp"
#include "core/files.hpp"

namespace convolume::nets {
namespace {

class Grouped final : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

/// Sets the global locale for its lifetime.
class WithLocale {
 public:
  explicit WithLocale(const std::locale& locale) : before_(std::locale::global(locale)) {}
  ~WithLocale() { std::locale::global(before_); }
  WithLocale(const WithLocale&) = delete;
  WithLocale& operator=(const WithLocale&) = delete;

 private:
  std::locale before_;
};

const std::string net = R"(
name = "wide"
[input]
patch = [4, 32, 32]
[[node]]
name = "logits"
type = "conv"
out_channels = 1
kernel = [1, 3, 3]
padding = "same"
[optimizer]
kind = "sgd"
learning_rate = 0.0125
[training]
batch = 1
iterations = 2
)";
const std::string data = R"(
name = "synthetic"
[synthetic]
extent = [8, 1040, 40]
[augment]
brightness = { probability = 0.5, range = [-0.25, 0.25] }
[[train]]
)";

/// Returns what the library writes of numbers: descriptions, choices, a checkpoint, a volume with a spacing.
std::vector<std::string> written(const std::filesystem::path& folder) {
  std::filesystem::create_directory(folder);
  const auto at = [&](const char* name) { return folder / name; };
  write_file_atomically(at("net.toml"), net);
  write_file_atomically(at("data.toml"), data);
  const TrainResult run = train({.net = at("net.toml"), .data = at("data.toml"), .out = at("run"), .threads = 1});
  std::vector<float> voxels(1200, 0.5F);
  const ArrayVolume volume({.voxels = voxels.data(), .extent = {1, 1, 1200}, .spacing = std::array{1234.5, 1.0, 0.5}});
  std::vector<std::string> all{read_file(run.checkpoint), describe_net(at("net.toml")), machine_row_text()};
  for (const char* name : {"volume.tif", "volume.nii", "volume.h5"}) {
    convert_volume({.input = volume.path(), .output = at(name), .type = ""});
    const std::string text = describe_volume(at(name).string());
    all.push_back(text.substr(text.find('\n')));  // the first line has the path
  }
  const ConvPlan plan = ConvPlan::make(parse_problem("ic32id40oc32kd5"));
  all.push_back(plan.choice() + plan.numerics() + plan.explain());
  return all;
}

}  // namespace

TEST_CASE("a locale with grouped digits and a decimal comma changes no bit and no text") {
  const test::TemporaryFolder folder;
  const auto plain = written(folder.path() / "plain");
  const WithLocale grouped(std::locale(std::locale(), new Grouped));
  REQUIRE((std::ostringstream() << 1234.5).str() == "1.234,5");
  const auto other = written(folder.path() / "group");
  REQUIRE(plain.size() == other.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    CAPTURE(i);
    CHECK(plain[i] == other[i]);
  }
}

}  // namespace convolume::nets
