// What the reports of all benchmarks share: the machine, files that stay valid if a run is killed, and statistics.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "convolume/machine.hpp"
#include "convolume/tensor.hpp"

namespace convolume::bench {

/// Returns the CPU, the constants of its machine model, the compiler and the version.
nlohmann::ordered_json describe_machine(DataType type);

/// Returns the machine model with the peak and the bandwidths that this process measures at the first call, in about a
/// second. Floors follow from these values, because most rows of the table hold published ones.
const MachineModel& measured_machine();

/// Returns the measured peak rate of one core in FLOP/s (fused multiply-adds count as two).
double peak_flops(DataType type);

/// Returns a warning for a result that takes less time than its floor, or an empty string. Either the floor was
/// measured while something else ran, or it is computed wrongly.
std::string floor_warning(const std::string& name, double floor_fraction);

/// A report file that is rewritten every few seconds during a run, so that a killed run leaves a valid file.
class ReportFile {
 public:
  /// Writes `report`. If `file` is empty, nothing is ever written. Throws IoError if the file cannot be written.
  ReportFile(std::filesystem::path file, const nlohmann::ordered_json& report);
  /// Returns whether there is a file and its last write was more than five seconds ago.
  bool due() const;
  void write(const nlohmann::ordered_json& report);

 private:
  std::filesystem::path file_;
  std::chrono::steady_clock::time_point last_{};
};

/// From its construction on, the first Ctrl-C only requests a stop after the current measurement. The second one kills.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;
  bool pending() const;
};

constexpr int interrupted_status = 130;  ///< exit status of a run that Ctrl-C stopped

/// Returns a[i] / b[i].
std::vector<double> quotients(const std::vector<double>& a, const std::vector<double>& b);

/// Returns a duration as text in a suitable unit.
std::string time_text(double seconds);

/// A geometric mean to which values are added.
class Mean {
 public:
  void add(double value);
  int count() const { return count_; }
  std::optional<double> value() const;
  nlohmann::ordered_json json() const;          ///< null if there are no values
  std::string text(const char* counted) const;  ///< "1.234 (5 sizes)", or "none"

 private:
  double logarithms_ = 0;
  int count_ = 0;
};

}  // namespace convolume::bench
