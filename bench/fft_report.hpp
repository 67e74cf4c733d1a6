// What the reports of bench_fft share: the machine, the floor, files that a stopped run leaves whole.
#pragma once

#include <chrono>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "bench/fft_options.hpp"
#include "convolume/fft.hpp"

namespace convolume::bench {

/// Processor, constants of its model, compiler and versions.
nlohmann::ordered_json describe_machine(DataType type);

/// Of fused multiply-adds on one core, by the machine model.
double peak_flops(DataType type);

/// 2.5 n log2 n for real and 5 n log2 n for complex transforms of n points.
double nominal_flops(fft::Kind kind, double points);

/// The least time in which this machine could transform a cube: nominal operations at the peak of a core, or input and
/// output once at the bandwidth of the smallest cache that holds both, whichever takes longer.
double floor_seconds(fft::Kind kind, DataType type, index_t n);

/// A report that is rewritten while it grows, at most every few seconds, so that a killed run leaves a valid file.
class ReportFile {
 public:
  /// Nothing is written where `file` is empty. Throws IoError at once where it cannot be written.
  ReportFile(std::filesystem::path file, const nlohmann::ordered_json& report);
  bool due() const;
  void write(const nlohmann::ordered_json& report);

 private:
  std::filesystem::path file_;
  std::chrono::steady_clock::time_point last_{};
};

/// From its construction on the first Ctrl-C only asks to stop after what is being measured; the second one kills.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;
  bool pending() const;
};

constexpr int interrupted_status = 130;  ///< of a run that Ctrl-C stopped

}  // namespace convolume::bench
