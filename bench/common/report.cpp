#include "bench/common/report.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <functional>
#include <thread>

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "convolume/machine.hpp"
#include "convolume/version.hpp"
#include "core/files.hpp"
#include "core/probes.hpp"
#include "core/topology.hpp"

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

const MachineModel& measured_machine() {
  static const MachineModel measured = [] {
    constexpr double budget = 0.15;
    MachineModel model = machine_model();
    const ProbeKernels kernels = probe_kernels();
    const auto l1 = static_cast<double>(model.l1_bytes), l2 = static_cast<double>(model.l2_bytes);
    const auto l3 = static_cast<double>(model.l3_bytes);
    model.gflops_per_core = 1e-9 * probe::peak(kernels, budget) * 2 * static_cast<double>(kernels.vector_bytes) / 4;
    model.l1_gb_per_s = 1e-9 * probe::loads(kernels, l1 / 2, budget);
    model.l2_gb_per_s = 1e-9 * probe::loads(kernels, l2 / 2, budget);
    model.l3_gb_per_s = 1e-9 * probe::loads(kernels, std::max(4 * l2, l3 / 4), budget);
    const double beyond = std::max({4 * l3, 16 * l2, 64.0 * (1 << 20)});
    model.dram_gb_per_s = 1e-9 * probe::loads(kernels, beyond, budget);
    const int threads = default_threads();
    const double each = std::max(beyond / threads, 4 * std::max(l2, l3 / topology().l3.cores));
    const auto together = [](int bodies, const std::function<void(int)>& body) {
      std::vector<std::jthread> all;
      for (int i = 0; i < bodies; ++i) all.emplace_back([&body, i] { body(i); });
    };
    model.dram_gb_per_s_of_all =
        std::max(model.dram_gb_per_s, 1e-9 * probe::loads_of_all(kernels, threads, each, budget, together));
    return model;
  }();
  return measured;
}

// Double precision reaches half of the peak of single precision.
double peak_flops(DataType type) { return 1e9 * measured_machine().gflops_per_core / (type == DataType::f64 ? 2 : 1); }

std::string floor_warning(const std::string& name, double floor_fraction) {
  if (floor_fraction <= 1) return {};
  return fmt::format(
      "WARNING: {} takes {:.0f} % of its floor. Nothing can be faster than the floor: something else ran "
      "while peak and bandwidths were measured, or the floor is wrong.\n",
      name, 100 / floor_fraction);
}

nlohmann::ordered_json describe_machine(DataType type) {
  const MachineModel& machine = measured_machine();
  return {{"cpu", cpu_name()},
          {"cpus", available_cpus()},
          {"model", machine.row},
          {"simd", simd_target()},
          {"l1_bytes", machine.l1_bytes},
          {"l2_bytes", machine.l2_bytes},
          {"l3_bytes", machine.l3_bytes},
          {"usable_l2_bytes", machine.usable_l2_bytes},
          {"usable_l3_bytes", machine.usable_l3_bytes},
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
