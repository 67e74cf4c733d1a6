// Measures the values of a machine row, with the kernels that the cost models rate.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "conv/direct/direct_product.hpp"
#include "conv/direct/nest_choice.hpp"
#include "conv/implementations.hpp"
#include "conv/spectra/complex_product.hpp"
#include "conv/tensor_io/block_box.hpp"
#include "conv/tensor_io/tile_io.hpp"
#include "conv/toom_cook/window_product.hpp"
#include "conv/toom_cook/window_transforms.hpp"
#include "convolume/conv.hpp"
#include "convolume/cpu.hpp"
#include "convolume/fft.hpp"
#include "convolume/measure_machine.hpp"
#include "convolume/memory.hpp"
#include "convolume/scheduler.hpp"
#include "core/instruction_set.hpp"
#include "core/machine_row.hpp"
#include "core/probes.hpp"
#include "fft/tile_plan.hpp"
#include "plan/cost_constants.hpp"

namespace convolume {
namespace {

using probe::Buffer;
using probe::least_seconds;

/// Returns the operations per second of forward transforms of cubic tiles from a blocked volume.
double measure_tiles(index_t extent, double budget) {
  constexpr index_t lanes = fft::tile_lanes<float>, tiles = 8;
  const fft::TilePlan<float> plan(Extent3::all(extent), Extent3::all(extent));
  const index_t voxels = extent * extent * extent, spectrum = plan.frequencies() * 2 * lanes;
  const Buffer volume(static_cast<std::size_t>(tiles * voxels * lanes) * sizeof(float));
  const Buffer spectra(static_cast<std::size_t>(spectrum) * sizeof(float)), scratch(plan.scratch_bytes());
  const fft::TileStrides strides{
      .block = extent * 2 * lanes, .frequency = 2 * lanes, .tile = 0, .channel_block = 0, .re_im = lanes};
  const double seconds = least_seconds(budget, [&] {
    for (index_t i = 0; i < tiles; ++i) {
      const fft::BlockedTile<const float> tile{volume.as<float>() + i * voxels * lanes,
                                               extent * extent * lanes,
                                               extent * lanes,
                                               lanes,
                                               {{0, 0, 0}, Extent3::all(extent)}};
      plan.forward(tile, spectra.as<float>(), strides, scratch.as<float>());
    }
  });
  return static_cast<double>(tiles) * plan.flops() / seconds;
}

/// Returns the operations per second of products of complex matrices whose operands lie in the L2.
double measure_products(double budget) {
  constexpr index_t lanes = fft::tile_lanes<float>, rows = 12, terms = 32, frequencies = 24;
  constexpr index_t a = frequencies * rows * terms * 2, b = frequencies * terms * 2 * lanes,
                    c = frequencies * rows * 2 * lanes;
  const Buffer buffer(static_cast<std::size_t>(a + b + c + 64) * sizeof(float));
  float *x = buffer.as<float>(), *w = x + a, *y = w + b;
  const conv::ComplexProduct<float> product{.a = x,
                                            .a_row = terms * 2,
                                            .a_term = 1,
                                            .a_im = terms,
                                            .a_frequency = rows * terms * 2,
                                            .b = w,
                                            .b_term = 2 * lanes,
                                            .b_im = lanes,
                                            .b_frequency = terms * 2 * lanes,
                                            .b_column = 0,
                                            .c = y,
                                            .c_row = 2 * lanes,
                                            .c_im = lanes,
                                            .c_frequency = rows * 2 * lanes,
                                            .c_column = 0,
                                            .rows = rows,
                                            .terms = terms,
                                            .frequencies = frequencies,
                                            .columns = 1};
  const auto kernels = conv::complex_kernels<float>();
  const double seconds = least_seconds(budget, [&] { kernels.multiply(product); });
  return 8.0 * rows * terms * lanes * frequencies / seconds;
}

/// Returns the operations per second of transforms of windows to the values at the points, and of the same number of
/// windows back. The half-transformed windows lie in the L2.
double measure_window_transforms(double budget) {
  constexpr index_t lanes = fft::tile_lanes<float>, blocks = 2, channels = blocks * lanes;
  constexpr Extent3 windows{3, 1, 4};
  const conv::WindowShape shape{Extent3::all(conv::window_taps)};
  const Extent3 voxels = shape.voxels(windows), results = windows * shape.results();
  const Tensor<float> x(Shape5{1, channels, voxels}, Layout::blocked);
  Tensor<float> y(Shape5{1, channels, results}, Layout::blocked);
  const conv::PlaneStrides strides = conv::plane_strides<float>(shape, voxels.z, windows, blocks);
  const index_t step = conv::line_stride<float>(windows.volume(), blocks);
  const Buffer planes(conv::bytes_of<float>(shape.plane_frequencies() * strides.frequency));
  const Buffer lines(conv::bytes_of<float>(conv::window_points * step));
  const Buffer scratch(conv::plane_scratch_bytes(shape, windows));
  const auto kernels = conv::window_transforms<float>(shape);
  conv::WindowLines<float> line{.plane = strides.plane,
                                .window = strides.window,
                                .values = lines.as<float>(),
                                .frequency = step,
                                .row = channels,
                                .windows_x = windows.x,
                                .windows_z = windows.z,
                                .channels = channels};
  const double seconds = least_seconds(budget, [&] {
    for (index_t block = 0; block < blocks; ++block) {
      kernels.planes({.block = conv::block_of(x.view(), Layout::blocked, 0, block * lanes),
                      .planes = voxels.z,
                      .windows = windows.x},
                     planes.as<float>() + block * lanes, strides, scratch.as<float>());
    }
    for (index_t frequency = 0; frequency < shape.plane_frequencies(); ++frequency) {
      line.planes = planes.as<float>() + frequency * strides.frequency;
      kernels.lines(line);
      kernels.inverse_lines(line);
    }
    for (index_t block = 0; block < blocks; ++block) {
      kernels.inverse_planes(planes.as<float>() + block * lanes, strides,
                             {.block = conv::block_of(y.view(), Layout::blocked, 0, block * lanes),
                              .planes = results.z,
                              .windows = windows.x},
                             scratch.as<float>());
    }
  });
  return plan::window_transform_flops(shape, windows) * channels / seconds;
}

/// Returns the operations per second of products of windows and channels whose weights lie in the L2.
double measure_window_products(double budget) {
  constexpr index_t lanes = fft::tile_lanes<float>, rows = 12, columns = 2, channels = columns * lanes;
  constexpr index_t frequencies = 24, a = rows * channels, b = channels * channels;
  const Buffer buffer(static_cast<std::size_t>(2 * a + frequencies * b) * sizeof(float));
  float *x = buffer.as<float>(), *y = x + a, *w = y + a;
  const auto multiply = conv::window_multiply<float>();
  const double seconds = least_seconds(budget, [&] {
    for (index_t frequency = 0; frequency < frequencies; ++frequency) {
      multiply({.a = x,
                .a_row = channels,
                .a_term = 1,
                .b = w + frequency * b,
                .b_term = lanes,
                .b_column = channels * lanes,
                .c = y,
                .c_row = channels,
                .c_column = lanes,
                .rows = rows,
                .terms = channels,
                .columns = columns});
    }
  });
  return 2.0 * rows * static_cast<double>(b) * frequencies / seconds;
}

/// Operations per second, and seconds, of the forward direction of a blocked problem on one thread.
struct MeasuredPass {
  double rate, seconds;
};
MeasuredPass measure_direct(const std::string& text, double budget, const std::string& nest = {}) {
  ConvProblem problem = parse_problem(text);
  problem.x_layout = problem.y_layout = Layout::blocked;
  ConvOptions options{.engine = Engine::direct, .want_dx = false, .want_dw = false};
  if (!nest.empty()) {
    const conv::Choice choice = conv::parse_choice(ConvPlan::make(problem, options).choice());
    conv::Nests nests = choice.as<conv::NestParts>()->nests();
    nests.front() = plan::parse_nest(nest);
    options.choice = to_string(conv::Choice{Engine::direct, std::make_shared<conv::NestParts>(std::move(nests))});
  }
  const ConvPlan plan = ConvPlan::make(problem, options);
  SlabResource memory;
  Scheduler scheduler(1);
  Tensor<float> x(problem.x_shape(), Layout::blocked), y(problem.y_shape(), Layout::blocked), w(problem.w_shape());
  std::fill_n(x.data(), x.elements(), 0.5f);
  std::fill_n(w.data(), w.elements(), 0.25f);
  const Execution run{scheduler, &memory};
  const auto prepared = plan.prepare(run, w);
  const double seconds = least_seconds(budget, [&] { plan.forward(run, {.x = x, .w = prepared, .y = y}); });
  return {problem.flops() / seconds, seconds};
}

/// Returns the cycles to begin and end a register tile, beside the loads and stores of its sums: those of tiles with
/// one term, less the term's share of the difference to tiles with many terms.
double measure_tile(double hertz, double budget) {
  constexpr index_t block = 16, voxels = 6, rows = 16, columns = 2, calls = 100, terms = 15, steps = 8;
  constexpr index_t weights = columns * block * block, blocks = rows * voxels * block;
  const Buffer buffer(static_cast<std::size_t>(weights + blocks + columns * (blocks + block)) * sizeof(float));
  float *w = buffer.as<float>(), *x = w + weights, *y = x + blocks, *bias = y + columns * blocks;
  const auto multiply = conv::voxel_kernel<float>();
  const auto seconds_of = [&](index_t step_count, int step_terms) {
    const std::vector<conv::DirectStep> list(static_cast<std::size_t>(step_count), {.terms = step_terms});
    const conv::VoxelProduct<float> product{.source = x,
                                            .source_strides = {block, voxels * block, blocks},
                                            .steps = list.data(),
                                            .step_count = step_count,
                                            .neighbours = 1,
                                            .row_taps = 1,
                                            .source_tap = 0,
                                            .weights_tap = 0,
                                            .weights = w,
                                            .weights_column = block * block,
                                            .weights_next = 0,
                                            .target = y,
                                            .target_strides = {block, voxels * block, blocks},
                                            .target_column = blocks,
                                            .bias = bias,
                                            .count = {1, rows, voxels},
                                            .columns = columns,
                                            .lanes = columns * block,
                                            .add = true,
                                            .non_temporal = false};
    return least_seconds(budget / 2,
                         [&] {
                           for (index_t i = 0; i < calls; ++i) multiply(product);
                         }) /
           (calls * rows);
  };
  const double one = seconds_of(1, 1), all = seconds_of(steps, terms);
  const double term = (all - one) / (steps * terms - 1);
  const auto vectors = static_cast<double>(columns * block * 4 / probe_kernels().vector_bytes);
  const double tiles = vectors / 2;
  const double sums = static_cast<double>(voxels) * vectors;  // a vector is loaded and stored in a cycle
  return std::max(0.0, ((one - term) * hertz - sums) / tiles);
}

/// Returns the seconds to transpose 64 bytes of channels of a plain tensor.
double measure_transpose(double budget) {
  constexpr Extent3 extent{4, 16, 64};
  constexpr index_t channels = 16;
  const Tensor<float> plain(Shape5{1, channels, extent});
  const Buffer blocked(static_cast<std::size_t>(channels * extent.volume()) * sizeof(float));
  const conv::BoxSource<float> source{.block = conv::block_of(plain.view(), Layout::plain, 0, 0), .extent = extent};
  const auto kernels = conv::box_kernels<float>();
  return least_seconds(budget, [&] { kernels.load(source, blocked.as<float>(), nullptr); }) /
         static_cast<double>(extent.volume());
}

/// Returns the seconds to begin and end a task: the difference of a forward direction with a task per plane, and the
/// same in one task.
double measure_task(double budget) {
  constexpr index_t tasks = 512;
  const std::string problem = fmt::format("ic16id{0}ih1iw8oc16od{0}oh1ow8kd1kh1kw1", tasks);
  const double one = measure_direct(problem, budget / 2, "z | c x k").seconds;
  const double all = measure_direct(problem, budget / 2, "z* | c x k").seconds;
  return std::max(0.0, all - one) / (tasks - 1);
}

/// Returns the operations per second of real transforms of a volume of 64 cubed.
double measure_volume(double budget) {
  const fft::Problem problem{.type = DataType::f32, .kind = fft::Kind::r2c, .extent = Extent3::all(64)};
  const fft::Plan plan = fft::Plan::make(problem);
  const Buffer x(64 * 64 * 64 * sizeof(float)),
      y(static_cast<std::size_t>(plan.spectrum_elements()) * 2 * sizeof(float));
  const Buffer scratch(plan.scratch_bytes() + 64);
  const double seconds =
      least_seconds(budget, [&] { plan.execute(x.as<float>(), y.as<float>(), scratch.as<float>()); });
  return plan.flops() / seconds;
}

/// Restores the SIMD target.
class RestoredTarget {
 public:
  RestoredTarget() = default;
  ~RestoredTarget() { set_simd_target(before_); }
  RestoredTarget(const RestoredTarget&) = delete;
  RestoredTarget& operator=(const RestoredTarget&) = delete;

 private:
  std::string before_ = simd_target();
};

/// Collects the values of a row, and counts progress.
class Probes {
 public:
  explicit Probes(const MeasureOptions& options) : options_(options) {}

  MachineRow measure() {
    const CpuIdentity& identity = cpu_identity();
    row_.name = options_.name;
    row_.part = fmt::format("{}, {} cores", cpu_name(), topology().cores.size());
    row_.vendor = identity.vendor;
    row_.family = identity.family;
    row_.models = {{identity.model, identity.model}};
    row_.implementer = identity.implementer;
    row_.parts = {identity.part};
    measure_common();
    const RestoredTarget restored;
    for (const std::string& target : targets()) {
      set_simd_target(target);
      measure_target(row_.targets[target]);
    }
    return row_;
  }

 private:
  static std::vector<std::string> targets() {
    std::vector<std::string> all = available_simd_targets();
    std::erase_if(all, [](const std::string& name) { return name == "SCALAR" || name == "EMU128"; });
    return all.empty() ? available_simd_targets() : all;
  }

  void put(RowValues& values, const char* name, double value, const std::string& source) {
    // Four digits are more than a measurement on a shared machine is worth.
    const double digits = std::pow(10, 3 - std::floor(std::log10(std::max(value, 1e-9))));
    values[name] = {std::round(value * digits) / digits, "measured", source};
    ++done_;
    const double all = 22 + 15 * static_cast<double>(targets().size());
    if (options_.on_progress) options_.on_progress(std::min(1.0, done_ / all));
  }

  /// Puts a cache size: that of the topology, or that of this processor's row if hwloc does not know it.
  void put_size(const char* name, double known) {
    const RowValue& of_row = own_.common.at(name);
    if (known > 0) {
      put(row_.common, name, known, "hwloc");
    } else {
      row_.common[name] = {of_row.value, "inherited", own_.name};
    }
  }

  void measure_common() {
    const double budget = options_.seconds;
    const ProbeKernels kernels = probe_kernels();
    const int threads = options_.threads > 0 ? options_.threads : default_threads();
    Scheduler scheduler(threads);
    const auto together = [&](int bodies, const std::function<void(int)>& body) {
      TaskGraph graph;
      for (int i = 0; i < bodies; ++i) graph.add({.name = "load", .cost = 1}, [&body, i] { body(i); });
      graph.run(scheduler);
    };
    RowValues& values = row_.common;
    // The frequency is that under vector code, so the units are warmed up first.
    probe::peak(kernels, budget);
    ghz_ = probe::ghz(budget);
    put(values, "ghz", ghz_, "dependent rotations");
    const Topology& machine = topology();
    put_size("l1_kib", static_cast<double>(machine.l1.bytes) / 1024);
    put_size("l2_kib", static_cast<double>(machine.l2.bytes) / machine.l2.cores / 1024);
    put_size("l3_mib", static_cast<double>(machine.l3.bytes) / 1024 / 1024);
    put(values, "l3_cores", machine.l3.cores, "hwloc");
    // No probe shows how much of a cache models should count on.
    for (const char* name : {"usable_l2_kib", "usable_l3_mib"}) {
      if (!own_.describes(cpu_identity()) || !own_.common.contains(name)) continue;
      values[name] = {own_.common.at(name).value, "inherited", own_.name};
    }
    const double l1 = 1024 * values["l1_kib"].value, l2 = 1024 * values["l2_kib"].value;
    const double l3 = 1024 * 1024 * values["l3_mib"].value;
    const double beyond = std::max({4 * l3, 16 * l2, 64.0 * (1 << 20)});
    put(values, "memory_gb_per_s", 1e-9 * probe::loads(kernels, beyond, budget), "one core loads");
    const double each = std::max(beyond / threads, 4 * std::max(l2, l3 / machine.l3.cores));
    put(values, "memory_gb_per_s_of_all",
        std::max(values["memory_gb_per_s"].value, 1e-9 * probe::loads_of_all(kernels, threads, each, budget, together)),
        fmt::format("{} threads load", threads));
    put(values, "l1_cycles", 1e9 * ghz_ * probe::latency(l1 / 2, budget), "dependent loads");
    put(values, "l2_cycles", 1e9 * ghz_ * probe::latency(l2 / 2, budget), "dependent loads");
    put(values, "l3_cycles", 1e9 * ghz_ * probe::latency(std::max(4 * l2, l3 / 4), budget), "dependent loads");
    put(values, "memory_ns", 1e9 * probe::latency(beyond / 2, budget), "dependent loads");
    put(values, "fma_cycles", 1e9 * ghz_ * probe::multiply_add_latency(kernels, budget), "dependent multiply-adds");
    put_price("l2", probe::transfer_price(l2 / 2, budget));
    put_price("l3", probe::transfer_price(std::max(4 * l2, l3 / 4), budget));
    put_price("memory", probe::transfer_price(beyond, budget));
    put(values, "task_ns", 1e9 * measure_task(budget), "direct, 512 tasks and one, one thread");
  }

  void put_price(const std::string& level, const TransferPrice& price) {
    const auto put_ns = [&](const char* name, double seconds) {
      put(row_.common, (level + name).c_str(), 1e9 * seconds, "copies of 1 to 16 runs of 64 to 1024 bytes");
    };
    put_ns("_start", price.start);
    put_ns("_jump", price.jump);
    put_ns("_element", price.element);
  }

  void measure_target(RowValues& values) {
    const double budget = options_.seconds, hertz = 1e9 * ghz_;
    const double l1 = 1024 * row_.common["l1_kib"].value, l2 = 1024 * row_.common["l2_kib"].value;
    const double l3 = 1024 * 1024 * row_.common["l3_mib"].value;
    const ProbeKernels kernels = probe_kernels();
    const double vectors = probe::peak(kernels, budget);
    const double flops = vectors * 2 * static_cast<double>(kernels.vector_bytes) / 4;
    const auto share = [&](double rate) { return std::clamp(rate / flops, 0.005, 1.0); };
    put(values, "fma_per_cycle", vectors / hertz, "multiply-adds in registers");
    put(values, "l1_load", probe::loads(kernels, l1 / 2, budget) / hertz, "loads from half the L1");
    put(values, "l1_store", probe::stores(kernels, l1 / 2, budget) / hertz, "stores to half the L1");
    put(values, "l2_load", probe::loads(kernels, l2 / 2, budget) / hertz, "loads from half the L2");
    put(values, "l3_load", probe::loads(kernels, std::max(4 * l2, l3 / 4), budget) / hertz,
        "loads from a quarter of the L3");
    put(values, "tile_transform", share(measure_tiles(12, budget)), "tiles of 12 cubed");
    // The model rates long lines by factors of their own.
    put(values, "spilled_tile_transform", share(measure_tiles(28, budget) / (plan::long_x_share * plan::long_zy_share)),
        "tiles of 28 cubed");
    put(values, "tile_product", share(measure_products(budget)), "12 rows, 32 terms, one block of channels");
    put(values, "window_transform", share(measure_window_transforms(budget)),
        "12 windows of 32 channels, there and back");
    put(values, "window_product", share(measure_window_products(budget)), "12 windows, 32 to 32 channels");
    put(values, "direct", share(measure_direct("ic32id18oc32od16kd3", budget).rate), "32 to 32 channels, kernel 3");
    put(values, "depthwise", share(measure_direct("g32ic32id22oc32od16kd7", budget).rate), "32 channels, kernel 7");
    put(values, "volume_transform", share(measure_volume(budget)), "real transforms of 64 cubed");
    put(values, "tile_cycles", measure_tile(hertz, budget), "rows of 6 voxels, 32 channels, one term and 120 terms");
    put(values, "transpose_ns", 1e9 * measure_transpose(budget), "16 channels from the L2");
  }

  const MeasureOptions& options_;
  MachineRow row_{};
  const MachineRow& own_ = *choose_row(cpu_identity(), widest_simd_target()).row;
  double ghz_ = 1;
  int done_ = 0;
};

}  // namespace

std::string measure_machine(const MeasureOptions& options) {
  static_cast<void>(simd_target());  // throws if the library has no kernels for this processor
  return to_text(Probes(options).measure());
}

}  // namespace convolume
