#include "tools/convolve.hpp"

#include <algorithm>
#include <array>

#include "tools/arguments.hpp"
#include "tools/jemalloc_resource.hpp"
#include "tools/progress.hpp"
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

namespace convolume::tools {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::array operand_names{"x", "w", "y"};

/// Returns the most bytes that the process has held so far.
std::size_t resident_peak() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) << 10;
}

template <class T>
Json by_operand(const std::array<T, 3>& values) {
  Json json;
  for (std::size_t i = 0; i < values.size(); ++i) json[operand_names[i]] = values[i];
  return json;
}

Json to_json(const ConvProblem& problem, const nets::ConvolveReport& report) {
  const StreamCosts& costs = report.costs;
  const StreamTile& t = costs.tile;
  double transfers = 0;
  for (const double seconds : costs.transfer_seconds) transfers += seconds;
  Json json{
      {"problem", to_string(problem)},
      {"tile", {{"n", t.n}, {"k", t.k}, {"c", t.c}, {"z", t.y.z}, {"y", t.y.y}, {"x", t.y.x}}},
      {"tiles", costs.tiles},
      {"outermost", costs.channels_outermost ? "k" : "zyx"},
      {"buffers", costs.buffers},
      {"loads", by_operand(costs.loads)},
      {"bytes", by_operand(costs.bytes)},
      {"runs", by_operand(costs.runs)},
      {"predicted", {{"transfer_s", transfers}, {"compute_s", costs.compute_seconds}, {"seconds", costs.seconds}}},
      {"peak_bytes", costs.peak_bytes}};
  if (!report.run) return json;
  json["read_s"] = report.run->read_seconds;
  json["write_s"] = report.run->write_seconds;
  json["transfer_s"] = report.run->read_seconds + report.run->write_seconds;
  json["compute_s"] = report.run->compute_seconds;
  json["seconds"] = report.run->seconds;
  json["overlap"] = report.run->overlap();
  json["measured_peak_bytes"] = report.measured_peak_bytes;
  json["resident_peak_bytes"] = resident_peak();
  return json;
}

std::string table(const nets::ConvolveReport& report) {
  std::string text = report.explanation;
  if (!report.run) return text;
  const StreamReport& run = *report.run;
  constexpr double mib = 1 << 20;
  return text + fmt::format(
                    "convolved in {:.3f} s: reading {:.3f} s, computing {:.3f} s, writing {:.3f} s; {:.0f} % of "
                    "the shorter ones hidden behind the longest\nmemory {:.1f} MiB, process {:.1f} MiB\n",
                    run.seconds, run.read_seconds, run.compute_seconds, run.write_seconds, 100 * run.overlap(),
                    static_cast<double>(report.measured_peak_bytes) / mib, static_cast<double>(resident_peak()) / mib);
}

}  // namespace

void ConvolveCommand::add_to(CLI::App& app) {
  app.add_option("--problem", problem_, "Problem in benchdnn's grammar, e.g. ic32id512oc32kd5pd2")->required();
  app.add_option("--x", options_.x,
                 "Input: .raw (or .bin), or a volume in any format. A batch above 1 needs .raw or a 5-D HDF5 dataset")
      ->required();
  app.add_option("--w", options_.w, "Weights: .raw, .safetensors (FILE:NAME), or a 5-D HDF5 dataset")->required();
  app.add_option("--bias", options_.bias, "A value per output channel: .raw, .safetensors (FILE:NAME), or 4-D HDF5");
  app.add_option("--y", options_.y, "Output: .raw, or a volume in any format")->required();
  app.add_option("--type", type_, "Type of the computation and of raw files")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str();
  app.add_option("--memory", memory_,
                 "Bytes for tiles, weights and the engine, e.g. 2G; default: half of the system's memory. The program "
                 "itself takes up to 64 MiB more");
  app.add_option("--engine", engine_, "Convolution engine: automatic, fft_tiled, toom_cook, direct or reference")
      ->capture_default_str();
  app.add_flag("--low-error", options_.conv.low_error,
               "Leave out engines with a larger error (toom_cook: about 1.3e-6 instead of 3e-7)");
  app.add_option("--threads", options_.threads,
                 "Threads that compute; 0 means one per physical core. Two more threads read and write")
      ->check(CLI::Range(0, 1024));
  app.add_option("--cost", cost_,
                 "Price of transfers from and to files: seconds to begin one, per jump to another stretch of the file, "
                 "and per element of 4 bytes. Default: by format. See convolume plan transfer")
      ->delimiter(',')
      ->expected(3);
  app.add_option("--tile", tile_,
                 "Tile instead of the cheapest one: N,K,C,Z,Y,X; rounded up to what the engine can cut")
      ->delimiter(',')
      ->expected(6);
  app.add_flag("--unbuffered", unbuffered_, "Transfer and compute in turn, for comparison");
  app.add_flag("--direct", options_.direct, "Read raw files past the page cache (O_DIRECT)");
  app.add_flag("--dry-run", dry_run_, "Print tiles, transfers, memory and estimated seconds, and write nothing");
  app.add_flag("--json", json_, "Print one JSON object");
  app.add_flag("--quiet", quiet_, "No progress line");
}

bool ConvolveCommand::run(std::stop_token stop) {
  options_.problem = parse_problem(problem_);
  options_.problem.type = type_ == "f64" ? DataType::f64 : DataType::f32;
  options_.conv.engine = engine_of(engine_);
  if (!memory_.empty()) options_.memory = bytes_of(memory_);
  if (!cost_.empty()) options_.price = TransferPrice{cost_[0], cost_[1], cost_[2]};
  if (!tile_.empty()) {
    options_.tile = StreamTile{.n = tile_[0], .k = tile_[1], .c = tile_[2], .y = {tile_[3], tile_[4], tile_[5]}};
  }
  if (unbuffered_) options_.buffers = 1;
  options_.upstream = slab_upstream();
  options_.stop = std::move(stop);
  ProgressDisplay display(quiet_ || json_ || dry_run_);
  options_.on_note = [](const std::string& note) { fmt::print(stderr, "note: {}\n", note); };
  options_.on_progress = [&](index_t done, index_t tiles) {
    display.show_share("convolution", static_cast<double>(done) / static_cast<double>(tiles));
  };
  nets::ConvolveReport report;
  try {
    report = dry_run_ ? nets::plan_convolution(options_) : nets::convolve_files(options_);
  } catch (const StopRequested&) {
    return false;
  }
  display.finish();
  if (!dry_run_ && !report.run) return false;
  fmt::print("{}", json_ ? to_json(options_.problem, report).dump(2) + "\n" : table(report));
  return true;
}

}  // namespace convolume::tools
