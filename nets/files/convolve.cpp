#include "convolume/convolve.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"
#include "nets/base/memory_limit.hpp"
#include "nets/files/tensor_files.hpp"
#include "nets/io/volume_info.hpp"

namespace convolume::nets {
namespace {

/// The opened inputs of a convolution, and its plan.
struct Prepared {
  TensorFile<TensorSource> x, w;
  StreamedConv conv;
  Tensor<float> bias_f32{};
  Tensor<double> bias_f64{};

  ConstTensorView bias() const {
    if (bias_f32.elements() > 0) return bias_f32;
    return bias_f64.elements() > 0 ? ConstTensorView(bias_f64) : ConstTensorView();
  }
};

/// Returns where a file, or an array within a Zarr folder, lies.
std::filesystem::path place_of(const std::string& text) {
  const io::VolumePath path = io::split_volume_path(text);
  std::filesystem::path place = path.file;
  if (path.file.extension() == ".zarr") place /= std::filesystem::path(path.inside).relative_path();
  std::error_code ignored;
  place = std::filesystem::weakly_canonical(place, ignored).lexically_normal();
  return place.has_filename() ? place : place.parent_path();  // "a.zarr/raw/"
}

bool lies_within(const std::filesystem::path& inner, const std::filesystem::path& outer) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

/// Refuses an output that would replace an input, or that would lie in the same place as a part of one.
void require_other_files(const ConvolveOptions& o) {
  const std::filesystem::path y = place_of(o.y);
  for (const auto& [name, text] : {std::pair("x", o.x), std::pair("w", o.w), std::pair("bias", o.bias)}) {
    if (text.empty()) continue;
    const std::filesystem::path input = place_of(text);
    std::error_code missing;
    const bool same = std::filesystem::equivalent(input, y, missing) && !missing;
    if (same || lies_within(input, y) || lies_within(y, input)) {
      throw InvalidArgument(fmt::format("y is the same file as {}: {}; write to another file", name, o.y));
    }
  }
}

Prepared prepare(const ConvolveOptions& o, int threads) {
  ConvProblem problem = o.problem;
  if (problem.epilogue.bias && o.bias.empty()) {
    throw InvalidArgument("the problem has a bias, but no file of it is named; set ConvolveOptions::bias");
  }
  problem.epilogue.bias = !o.bias.empty();
  problem.validate();
  require_other_files(o);
  const DataType type = o.problem.type;
  check_tensor_writable(o.y, o.problem.y_shape(), type);
  const std::size_t limit = o.memory != 0 ? o.memory : memory_limit(0) / 3 * 2;
  const std::filesystem::path target = io::split_volume_path(o.y).file;
  const TensorOptions how{.direct = o.direct,
                          .memory = limit / 2,
                          .temporary = target.has_parent_path() ? target.parent_path() : std::filesystem::path("."),
                          .on_note = o.on_note};
  auto x = open_tensor(o.x, o.problem.x_shape(), type, how);
  auto w = open_weights(o.w, o.problem.w_shape(), type, how);
  const StreamPrices prices{.x = o.price.value_or(x.price), .w = w.price, .y = o.price.value_or(price_of_writing(o.y))};
  const std::size_t memory = limit - w.held;
  StreamedConv conv = StreamedConv::make(problem, {.conv = o.conv,
                                                   .memory = memory,
                                                   .threads = threads,
                                                   .prices = prices,
                                                   .x_chunk = x.tensor->chunk(),
                                                   .buffers = o.buffers,
                                                   .tile = o.tile,
                                                   .stop = o.stop});
  Prepared prepared{.x = std::move(x), .w = std::move(w), .conv = std::move(conv)};
  if (!o.bias.empty() && type == DataType::f32) prepared.bias_f32 = read_bias<float>(o.bias, problem.out_channels, how);
  if (!o.bias.empty() && type == DataType::f64)
    prepared.bias_f64 = read_bias<double>(o.bias, problem.out_channels, how);
  return prepared;
}

int threads_of(const ConvolveOptions& o) { return o.threads > 0 ? o.threads : default_threads(); }

}  // namespace

ConvolveReport plan_convolution(const ConvolveOptions& o) {
  const Prepared prepared = prepare(o, threads_of(o));
  return {.costs = prepared.conv.costs(), .explanation = prepared.conv.explain(), .run = {}};
}

ConvolveReport convolve_files(const ConvolveOptions& o) try {
  Prepared prepared = prepare(o, threads_of(o));
  const StreamedConv& conv = prepared.conv;
  ConvolveReport report{.costs = conv.costs(), .explanation = conv.explain(), .run = {}};
  const auto y = create_tensor(o.y, o.problem.y_shape(), o.problem.type);
  SlabResource memory({.upstream = o.upstream});
  Scheduler scheduler(threads_of(o));
  report.run = conv.run({scheduler, &memory}, *prepared.x.tensor, *prepared.w.tensor, prepared.bias(), *y.tensor,
                        o.on_progress, o.stop);
  report.measured_peak_bytes = memory.statistics().peak_bytes;
  return report;
} catch (const StopRequested&) {
  return {};  // while tiles were planned
}

}  // namespace convolume::nets
