#include "bench/fft_report.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>

#include "bench/fft_contestants.hpp"
#include "convolume/cpu.hpp"
#include "convolume/version.hpp"
#include "core/files.hpp"

namespace convolume::bench {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

bool is_real(fft::Kind kind) { return kind == fft::Kind::r2c || kind == fft::Kind::c2r; }

std::string compiler() {
#if defined(__clang__)
  return std::string("clang ") + __clang_version__;
#else
  return std::string("gcc ") + __VERSION__;
#endif
}

double bytes_per_second(double bytes) {
  const MachineModel& machine = machine_model();
  if (bytes <= static_cast<double>(machine.l2_bytes)) return 1e9 * machine.l2_gb_per_s;
  if (bytes <= static_cast<double>(machine.l3_bytes)) return 1e9 * machine.l3_gb_per_s;
  return 1e9 * machine.dram_gb_per_s;
}

}  // namespace

// The model holds single precision; in double it is half of that.
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
          {"compiler", compiler()},
          {"convolume", version()},
          {"fft", fft::backend_versions()},
          {"fftw", fftw_name(type)}};
}

double nominal_flops(fft::Kind kind, double points) { return (is_real(kind) ? 2.5 : 5.0) * points * std::log2(points); }

double floor_seconds(fft::Kind kind, DataType type, index_t n) {
  const auto edge = static_cast<double>(n);
  const auto element = static_cast<double>(size_of(type));
  const double points = edge * edge * edge;
  const double half = edge * edge * static_cast<double>(n / 2 + 1);
  const double bytes = is_real(kind) ? element * (points + 2 * half) : element * 4 * points;
  return std::max(nominal_flops(kind, points) / peak_flops(type), bytes / bytes_per_second(bytes));
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

}  // namespace convolume::bench
