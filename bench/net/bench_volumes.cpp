// Reads volumes as training and inference do, and tells how long it takes and how many bytes it reads.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/common/support.hpp"
#include "nets/io/volume_source.hpp"

namespace {

using namespace convolume;
using namespace convolume::nets;

/// Returns the bytes that this process has asked the operating system to read so far.
long long bytes_read() {
  std::ifstream stream("/proc/self/io");
  std::string name;
  long long value = 0;
  while (stream >> name >> value) {
    if (name == "rchar:") return value;
  }
  return 0;
}

struct Result {
  double seconds = 0;         // least of all rounds
  long long bytes_read = 0;   // of the first round
  std::size_t box_bytes = 0;  // of the voxels
};

/// Reads a box, or the whole volume in parts of whole planes of chunks.
Result read(const std::string& path, index_t edge, int rounds) {
  Result result;
  for (int round = 0; round < rounds; ++round) {
    const auto source = io::open_volume(path);
    const io::VolumeInfo& info = source->info();
    const Extent3& e = info.extent;
    const long long before = bytes_read();
    const bench::Stopwatch watch;
    const index_t z_step = edge > 0 ? edge : std::max<index_t>(1, info.chunk.z);
    std::vector<std::byte> voxels;
    result.box_bytes = 0;
    for (index_t z = 0; z < (edge > 0 ? z_step : e.z); z += z_step) {
      const index_t y = edge > 0 ? edge : e.y, x = edge > 0 ? edge : e.x;
      // A box in the middle of the volume, on no border of a chunk.
      const Extent3 at =
          edge > 0 ? Extent3{(e.z - edge) / 2 + 3, (e.y - edge) / 2 + 5, (e.x - edge) / 2 + 7} : Extent3{z, 0, 0};
      const io::VoxelBox box{at, {edge > 0 ? edge : std::min(z_step, e.z - z), y, x}};
      voxels.resize(static_cast<std::size_t>(box.extent.volume()) * info.bytes_per_voxel());
      source->read({0, 1}, box, voxels);
      result.box_bytes += voxels.size();
    }
    const double seconds = watch.seconds();
    if (round == 0) result.bytes_read = bytes_read() - before;
    result.seconds = round == 0 ? seconds : std::min(result.seconds, seconds);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Reads volumes and prints JSON: the least seconds over the rounds, and the bytes that were read from the file.\n"
      "bench/net/volumes.py makes the volumes and compares with cp.",
      "bench_volumes");
  std::vector<std::string> paths;
  index_t edge = 0;
  int rounds = 3;
  app.add_option("volume", paths, "Volumes, in any format")->required();
  app.add_option("--edge", edge, "Read one cube with this edge instead of the whole volume")
      ->check(CLI::Range(1, 4096));
  app.add_option("--rounds", rounds, "Rounds")->check(CLI::Range(1, 1000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const std::string& path : paths) {
      const Result result = read(path, edge, rounds);
      all.push_back({{"volume", path},
                     {"seconds", result.seconds},
                     {"bytes_read", result.bytes_read},
                     {"voxel_bytes", result.box_bytes}});
    }
    fmt::print("{}\n", all.dump(2));
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_volumes: {}\n", error.what());
    return 1;
  }
  return 0;
}
