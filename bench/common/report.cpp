#include "bench/common/report.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "convolume/version.hpp"
#include "core/files.hpp"

namespace convolume::bench {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

std::string compiler() {
#if defined(__clang__)
  return std::string("clang ") + __clang_version__;
#else
  return std::string("gcc ") + __VERSION__;
#endif
}

}  // namespace

// The model stores the peak of single precision; double precision reaches half of it.
double peak_flops(DataType type) { return 1e9 * machine_model().gflops_per_core / (type == DataType::f64 ? 2 : 1); }

nlohmann::ordered_json describe_machine(DataType type) {
  const MachineModel& machine = machine_model();
  return {{"cpu", cpu_name()},
          {"cpus", available_cpus()},
          {"model", machine.row},
          {"simd", simd_target()},
          {"l1_bytes", machine.l1_bytes},
          {"l2_bytes", machine.l2_bytes},
          {"l3_bytes", machine.l3_bytes},
          {"peak_gflops", 1e-9 * peak_flops(type)},
          {"l2_gb_per_s", machine.l2_gb_per_s},
          {"l3_gb_per_s", machine.l3_gb_per_s},
          {"dram_gb_per_s", machine.dram_gb_per_s},
          {"dram_gb_per_s_of_all", machine.dram_gb_per_s_of_all},
          {"compiler", compiler()},
          {"convolume", version()}};
}

ReportFile::ReportFile(std::filesystem::path file, const nlohmann::ordered_json& report) : file_(std::move(file)) {
  write(report);
}

bool ReportFile::due() const {
  return !file_.empty() && std::chrono::steady_clock::now() - last_ > std::chrono::seconds(5);
}

void ReportFile::write(const nlohmann::ordered_json& report) {
  if (!file_.empty()) write_file_atomically(file_, report.dump(1) + "\n");
  last_ = std::chrono::steady_clock::now();
}

StopRequest::StopRequest() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_requested = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}
StopRequest::~StopRequest() { std::signal(SIGINT, SIG_DFL); }
bool StopRequest::pending() const { return stop_requested != 0; }

std::vector<double> quotients(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> result(std::min(a.size(), b.size()));
  std::transform(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(result.size()), b.begin(), result.begin(),
                 [](double x, double y) { return x / y; });
  return result;
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.2f} us", 1e6 * seconds);
  if (seconds < 1) return fmt::format("{:.3f} ms", 1e3 * seconds);
  return fmt::format("{:.3f} s", seconds);
}

void Mean::add(double value) {
  logarithms_ += std::log(value);
  ++count_;
}
std::optional<double> Mean::value() const {
  return count_ > 0 ? std::optional(std::exp(logarithms_ / count_)) : std::nullopt;
}
nlohmann::ordered_json Mean::json() const {
  return count_ > 0 ? nlohmann::ordered_json(*value()) : nlohmann::ordered_json(nullptr);
}
std::string Mean::text(const char* counted) const {
  return count_ > 0 ? fmt::format("{:.3f} ({} {})", *value(), count_, counted) : "none";
}

}  // namespace convolume::bench
