// Tests that runs go on from checkpoints of builds that chose other engines.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "testing/selected_row.hpp"
#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>

#include "convolume/cpu.hpp"
#include "convolume/nets.hpp"
#include "nets/io/safetensors.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;

/// A checkpoint after two iterations of commit 0deef72, which had no engine `toom_cook`:
///   CONVOLUME_SIMD=AVX2 convolume train net.toml --data data.toml --out run --iterations 2
/// The files are those that Run writes.
const fs::path older = fs::path(CONVOLUME_SOURCE_DIR) / "tests/nets/older/kernel_3_by_transforms.safetensors";

constexpr const char* data = R"(name = "synthetic"
[synthetic]
extent = [20, 48, 48]
cell_diameter = 10
[[train]]
slices = [0, 16]
[[validation]]
slices = [16, 20]
)";

void write(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

/// The lines of a numerics record that are about nodes: choices, layouts and how they round.
struct Record {
  explicit Record(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      (line.starts_with("node.") ? nodes : build) += line + "\n";
    }
  }
  std::string nodes, build;
};

Record record_of(const fs::path& file) { return Record(io::read_safetensors(file).metadata().at("numerics")); }

std::string choice_of(const Record& record, const std::string& node) {
  const std::string key = "node." + node + ".choice = ";
  const std::size_t begin = record.nodes.find(key) + key.size();
  return record.nodes.substr(begin, record.nodes.find('\n', begin) - begin);
}

/// A folder with the net and the data of the older checkpoint.
struct Run {
  Run() {
    write(folder.path() / "net.toml", io::read_safetensors(older).metadata().at("net"));
    write(folder.path() / "data.toml", data);
  }
  fs::path last(const char* out) const { return folder.path() / out / "checkpoints/last.safetensors"; }
  TrainOptions options(const char* out, std::int64_t iterations) const {
    return {.net = folder.path() / "net.toml",
            .data = folder.path() / "data.toml",
            .out = folder.path() / out,
            .iterations = iterations,
            .threads = 1};
  }
  /// Writes the older checkpoint as if this build had written it.
  void put(const char* out, const Record& build) const {
    const io::SafetensorsFile file = io::read_safetensors(older);
    std::map<std::string, std::string> metadata = file.metadata();
    metadata["numerics"] = build.build + Record(metadata.at("numerics")).nodes;
    fs::create_directories(last(out).parent_path());
    io::write_safetensors(last(out), file.tensors(), metadata);
  }
  test::TemporaryFolder folder;
};

}  // namespace

TEST_CASE("a run goes on from a checkpoint of a build without Toom-Cook, with the choices that it recorded") {
  const std::vector<std::string> targets = available_simd_targets();
  if (std::find(targets.begin(), targets.end(), "AVX2") == targets.end()) return;  // the recorded target
  const std::string before = simd_target();
  set_simd_target("AVX2");
  const test::SelectedRow row("zen2");  // of the machine that wrote it
  const Run run;
  train(run.options("fresh", 1));
  const Record fresh = record_of(run.last("fresh")), recorded = record_of(older);
  CHECK(choice_of(fresh, "conv2") == "toom_cook 4x4x4");
  CHECK(choice_of(recorded, "conv2").starts_with("fft_tiled "));

  run.put("older", fresh);
  TrainOptions options = run.options("older", 4);
  options.resume = true;
  CHECK(train(options).iteration == 4);
  CHECK(record_of(run.last("older")).nodes == recorded.nodes);
  set_simd_target(before);
}

}  // namespace convolume::nets
