// What the reports of all benchmarks share: the machine, files that a stopped run leaves whole, and statistics.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "convolume/tensor.hpp"

namespace convolume::bench {

/// Processor, constants of its model, compiler and version.
nlohmann::ordered_json describe_machine(DataType type);

/// Of fused multiply-adds on one core, by the machine model.
double peak_flops(DataType type);

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

/// a[i] / b[i].
std::vector<double> quotients(const std::vector<double>& a, const std::vector<double>& b);

/// A duration in the unit that suits it.
std::string time_text(double seconds);

/// A geometric mean that grows.
class Mean {
 public:
  void add(double value);
  int count() const { return count_; }
  std::optional<double> value() const;
  nlohmann::ordered_json json() const;          ///< null where nothing was added
  std::string text(const char* counted) const;  ///< "1.234 (5 sizes)", or "none"

 private:
  double logarithms_ = 0;
  int count_ = 0;
};

}  // namespace convolume::bench
