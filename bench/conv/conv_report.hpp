// What bench_conv --side-by-side measured, as a table, as a summary and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/common/report.hpp"
#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// How long somebody else took, and how many times longer that is; quartiles over the rounds.
struct Comparison {
  double seconds = 0, ratio = 0, low = 0, high = 0;
};

/// One problem in one direction with one engine and layout.
struct ConvRow {
  std::string name;
  ConvProblem problem;
  Direction direction;
  Engine asked, engine;  ///< which may be automatic, and which ran
  std::size_t rounds = 0;
  double ours = 0, ours_low = 0, ours_high = 0;  ///< seconds: median and quartiles
  double floor_fraction = 0;
  std::optional<Comparison> onednn{}, fft_volume{}, torch{};
  std::string onednn_implementation{};
  int onednn_threads = 0;  ///< that were busy in a call
};

void print_header(const ConvBenchOptions& options);
void print_title(const NamedProblem& problem);
void print(const ConvBenchOptions& options, const ConvRow& row);
/// Geometric means per direction, and where oneDNN is faster by more than its noise.
void print_summary(const ConvBenchOptions& options, const std::vector<ConvRow>& rows);

nlohmann::ordered_json to_json(const ConvBenchOptions& options, const std::vector<ConvRow>& rows);

}  // namespace convolume::bench
