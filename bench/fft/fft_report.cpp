#include "bench/fft/fft_report.hpp"

#include <algorithm>
#include <cmath>

#include "bench/fft/fft_competitors.hpp"
#include "convolume/machine.hpp"

namespace convolume::bench {
namespace {

double bytes_per_second(double bytes) {
  const MachineModel& machine = measured_machine();
  if (bytes <= static_cast<double>(machine.l1_bytes)) return 1e9 * machine.l1_gb_per_s;
  if (bytes <= static_cast<double>(machine.l2_bytes)) return 1e9 * machine.l2_gb_per_s;
  if (bytes <= static_cast<double>(machine.l3_bytes)) return 1e9 * machine.l3_gb_per_s;
  return 1e9 * machine.dram_gb_per_s;
}

}  // namespace

nlohmann::ordered_json describe_fft_machine(DataType type) {
  nlohmann::ordered_json machine = describe_machine(type);
  machine["fft"] = fft::backend_versions();
  machine["fftw"] = fftw_name(type);
  return machine;
}

bool is_real(fft::Kind kind) { return kind == fft::Kind::r2c || kind == fft::Kind::c2r; }

bool to_space(fft::Kind kind) { return kind == fft::Kind::c2r || kind == fft::Kind::c2c_backward; }

CubeBytes cube_bytes(fft::Kind kind, DataType type, index_t n) {
  const auto edge = static_cast<std::size_t>(n);
  const std::size_t element = size_of(type);
  const std::size_t space = edge * edge * edge * element * (is_real(kind) ? 1 : 2);
  const std::size_t spectrum = edge * edge * (is_real(kind) ? edge / 2 + 1 : edge) * 2 * element;
  return to_space(kind) ? CubeBytes{spectrum, space} : CubeBytes{space, spectrum};
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

}  // namespace convolume::bench
