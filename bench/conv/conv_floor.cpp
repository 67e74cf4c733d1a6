#include "bench/conv/conv_floor.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "bench/common/report.hpp"
#include "convolume/fft.hpp"
#include "convolume/machine.hpp"
#include "core/topology.hpp"

namespace convolume::bench {
namespace {

constexpr index_t largest_tile = 64;

/// A convolution along one axis, as a set of dense convolutions. A stride splits x into phases, each with its part of
/// the kernel. The part of the dilation that is not a divisor of the stride splits y into residues.
struct Axis {
  index_t phases, kernel, residues, outputs;

  Axis(const ConvProblem& p, int axis) {
    const index_t common = std::gcd(p.stride[axis], p.dilation[axis]), period = p.stride[axis] / common;
    phases = std::min(p.kernel[axis], period);
    kernel = (p.kernel[axis] + period - 1) / period;
    residues = kernel > 1 ? p.dilation[axis] / common : 1;
    outputs = (p.output()[axis] + residues - 1) / residues;
  }
  /// Returns the tile length: at most `extent`, and no longer than what covers the whole axis.
  index_t tile(index_t extent) const {
    return kernel == 1 ? 1 : std::min(extent, fft::good_size(outputs + kernel - 1));
  }
  index_t tiles(index_t extent) const {
    const index_t valid = extent - kernel + 1;
    return residues * ((outputs + valid - 1) / valid);
  }
};

double elements(const Shape5& shape) { return static_cast<double>(shape.elements()); }

struct Passes {
  double transforms_x = 0, transforms_y = 0, transforms_w = 0, products = 0;  // how often each is done
  double tensors = 0;  // bytes of the tensors, if each is moved once
};

Passes passes(const ConvProblem& p, Direction direction, bool cached_weights) {
  const auto size = static_cast<double>(size_of(p.type));
  const double x = size * elements(p.x_shape()), y = size * elements(p.y_shape()), w = size * elements(p.w_shape());
  switch (direction) {
    case Direction::forward:
      return {1, 1, cached_weights ? 0.0 : 1.0, 1, x + y + w};
    case Direction::backward_data:
    case Direction::backward_weights:
      return {1, 1, 1, 1, x + y + w};
    case Direction::training:
      break;
  }
  // The forward pass transforms x and y, the backward pass dy and dx. w is transformed forward and dw back.
  return {2, 2, 2, 3, 2 * (x + y + w)};
}

/// Returns the longer time: the operations at the peak of all cores, or the bytes at the bandwidth of the smallest
/// cache that holds them.
double slower_of(DataType type, double flops, double bytes, int threads) {
  const MachineModel& machine = measured_machine();
  // Bytes that stay in a cache between two runs move at its bandwidth.
  const double level_3 = std::ceil(static_cast<double>(threads) / topology().l3.cores);  // caches of that level
  const double bandwidth = bytes <= threads * static_cast<double>(machine.l2_bytes) ? threads * machine.l2_gb_per_s
                           : bytes <= level_3 * static_cast<double>(machine.l3_bytes)
                               ? threads * machine.l3_gb_per_s
                               : std::min(threads * machine.dram_gb_per_s, machine.dram_gb_per_s_of_all);
  return std::max(flops / (peak_flops(type) * threads), bytes / (1e9 * bandwidth));
}

/// Returns the seconds with tiles of `extent` voxels per axis; infinity if a kernel does not fit.
double tiled_seconds(const ConvProblem& p, const std::array<Axis, 3>& axes, index_t extent, const Passes& passes,
                     int threads) {
  double points = 1, tiles = static_cast<double>(p.batch), phases = 1, frequencies = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const index_t tile = axes[i].tile(extent);
    if (tile < axes[i].kernel) return std::numeric_limits<double>::infinity();
    points *= static_cast<double>(tile);
    tiles *= static_cast<double>(axes[i].tiles(tile));
    phases *= static_cast<double>(axes[i].phases);
    frequencies *= static_cast<double>(i == 2 ? tile / 2 + 1 : tile);
  }
  const double transform = points > 1 ? 2.5 * points * std::log2(points) : 0;
  const double in = phases * static_cast<double>(p.in_channels), out = static_cast<double>(p.out_channels);
  const double pairs = in * out / static_cast<double>(p.groups);
  const double flops =
      transform * (tiles * (passes.transforms_x * in + passes.transforms_y * out) + passes.transforms_w * pairs) +
      8 * frequencies * tiles * pairs * passes.products;

  // Either the spectra of the weights or those of the data stay in the cache. What does not fit is written and read.
  const double complex = 2.0 * static_cast<double>(size_of(p.type)) * frequencies;
  const double spectra = complex * std::min(pairs, tiles * (in + out));
  const bool fits = spectra <= static_cast<double>(machine_model().l3_bytes);
  const double bytes = passes.tensors + (fits ? 0 : 2 * spectra * passes.products);
  return slower_of(p.type, flops, bytes, threads);
}

/// The windows of Toom-Cook along one axis: 6 voxels give 4 results of 3 taps. Along an axis of one tap, each voxel is
/// a window, which is not transformed.
struct WindowAxis {
  index_t taps, results, points, windows;

  WindowAxis(const ConvProblem& p, int axis)
      : taps(p.kernel[axis]),
        results(taps == 3 ? 4 : 1),
        points(results + taps - 1),
        windows((p.output()[axis] + results - 1) / results) {}
};

/// Returns the lines that are transformed between the frequencies of a window and its voxels: its results, or the taps
/// of a kernel. The order is Z, Y, X.
double lines_of(const std::array<WindowAxis, 3>& axes, index_t WindowAxis::*voxels) {
  double lines = 0;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    index_t count = axes[axis].points > 1 ? 1 : 0;
    for (std::size_t other = 0; other < 3; ++other) {
      if (other != axis) count *= other < axis ? axes[other].*voxels : axes[other].points;
    }
    lines += static_cast<double>(count);
  }
  return lines;
}

/// Returns the seconds with windows (Toom-Cook), if no row and no plane is transformed twice; infinity if the problem
/// has no windows.
double window_seconds(const ConvProblem& p, const Passes& passes, int threads) {
  const Extent3 one = Extent3::all(1);
  bool served = p.stride == one && p.dilation == one && p.kernel != one;
  for (int axis = 0; axis < 3; ++axis) served = served && (p.kernel[axis] == 1 || p.kernel[axis] == 3);
  if (!served) return std::numeric_limits<double>::infinity();
  const std::array axes{WindowAxis(p, 0), WindowAxis(p, 1), WindowAxis(p, 2)};
  double windows = static_cast<double>(p.batch), frequencies = 1;
  for (const WindowAxis& axis : axes) {
    windows *= static_cast<double>(axis.windows);
    frequencies *= static_cast<double>(axis.points);
  }
  constexpr double operations_of_line = 24;
  const double in = static_cast<double>(p.in_channels), out = static_cast<double>(p.out_channels);
  const double pairs = in * out / static_cast<double>(p.groups);
  const double transforms =
      lines_of(axes, &WindowAxis::results) * windows * (passes.transforms_x * in + passes.transforms_y * out) +
      lines_of(axes, &WindowAxis::taps) * passes.transforms_w * pairs;
  const double values = static_cast<double>(size_of(p.type)) * frequencies * pairs;
  const bool fits = values <= static_cast<double>(machine_model().l3_bytes);
  return slower_of(p.type, operations_of_line * transforms + 2 * frequencies * windows * pairs * passes.products,
                   passes.tensors + (fits ? 0 : 2 * values * passes.products), threads);
}

}  // namespace

double floor_seconds(const ConvProblem& p, Direction direction, int threads, bool cached_weights) {
  const Passes work = passes(p, direction, cached_weights);
  double least = slower_of(p.type, work.products * p.flops(), work.tensors, threads);
  const std::array axes{Axis(p, 0), Axis(p, 1), Axis(p, 2)};
  for (index_t extent = 2; extent <= largest_tile; ++extent) {
    if (fft::good_size(extent) == extent) least = std::min(least, tiled_seconds(p, axes, extent, work, threads));
  }
  return std::min(least, window_seconds(p, work, threads));
}

}  // namespace convolume::bench
