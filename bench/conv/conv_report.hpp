// The results of bench_conv --side-by-side as a table, a summary and JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/common/report.hpp"
#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Seconds of a competitor and the ratio to our time: median and quartiles over the rounds.
struct Comparison {
  double seconds = 0, seconds_low = 0, seconds_high = 0;
  double ratio = 0, low = 0, high = 0;
  /// The lower quartile of its seconds divided by the lower quartile of ours. It compares both sides when their threads
  /// are in time. In short calls a thread often wakes late, and then the median tells more about that than about the
  /// computation.
  double in_time = 0;
};

/// The result of one problem in one direction, with one engine and layout.
struct ConvRow {
  std::string name;
  ConvProblem problem;
  Direction direction;
  int threads = 1;
  Engine asked, engine;  ///< requested (may be automatic), and used
  std::string choice;    ///< that our plan has
  std::size_t rounds = 0;
  double ours = 0, ours_low = 0, ours_high = 0;  ///< seconds: median and quartiles
  double floor_fraction = 0;
  std::optional<Comparison> onednn{}, fft_volume{}, torch{}, im2col_openblas{}, im2col_atlas{}, c_loops{};
  std::string onednn_implementation{};
  std::string torch_format{};  ///< the memory format that `torch` has
  int onednn_threads = 0;      ///< busy threads in a call
};

void print_header(const ConvBenchOptions& options);
void print_title(const NamedProblem& problem);
void print(const ConvBenchOptions& options, const ConvRow& row);
/// Prints geometric means per direction, and the cases in which oneDNN is faster beyond the noise. If the rows have two
/// numbers of threads, the worse ratio of each pair counts: on all threads that of the lower quartiles, on one thread
/// that of the medians.
void print_summary(const ConvBenchOptions& options, const std::vector<ConvRow>& rows);

nlohmann::ordered_json to_json(const ConvBenchOptions& options, const std::vector<ConvRow>& rows);

}  // namespace convolume::bench
