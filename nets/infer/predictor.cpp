#include "nets/infer/predictor.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace convolume::nets {
namespace {

/// Collects a prediction in a tensor.
class ProbabilitySink final : public PredictionSink {
 public:
  explicit ProbabilitySink(Tensor<float>& to) : to_(to) {}
  bool needs(const io::VoxelBox&) const override { return true; }
  void begin(const io::VoxelBox&) override {}
  index_t layer_end(index_t) const override { return to_.shape().extent.z; }
  void put(index_t z, const float* values, index_t stride) override {
    const View<float> to = to_.view();
    const index_t plane = to.shape.extent.y * to.shape.extent.x;
    for (index_t c = 0; c < to.shape.c; ++c) std::copy_n(values + c * stride, plane, &to(0, c, z, 0, 0));
  }
  void finished(index_t, Scheduler&) override {}

 private:
  Tensor<float>& to_;
};

/// Returns all ways to mirror along the axes: "not at all" comes first.
std::vector<unsigned> mirrors_of(const std::array<bool, 3>& axes) {
  std::vector<unsigned> mirrors{0};
  for (unsigned axis = 0; axis < 3; ++axis) {
    if (!axes[axis]) continue;
    const std::size_t count = mirrors.size();
    for (std::size_t i = 0; i < count; ++i) mirrors.push_back(mirrors[i] | 1U << axis);
  }
  return mirrors;
}

/// Returns how many patches of a layer have voxels in a column.
index_t patches_of_layer(const PatchGrid& grid, const io::VoxelBox& column) {
  const auto [y0, y1] = grid.axis(1).touching(column.begin.y, column.end().y);
  const auto [x0, x1] = grid.axis(2).touching(column.begin.x, column.end().x);
  return (y1 - y0) * (x1 - x0);
}

}  // namespace

index_t forms_of(const std::array<bool, 3>& mirror) { return static_cast<index_t>(mirrors_of(mirror).size()); }

index_t computed_patches(const PatchGrid& grid, std::span<const io::VoxelBox> columns) {
  index_t patches = 0;
  for (const io::VoxelBox& column : columns) patches += patches_of_layer(grid, column);
  return patches * grid.axis(0).count();
}

Predictor::Predictor(const NetSpec& spec, Parameters& parameters, const PredictorOptions& options, Scheduler& scheduler,
                     std::pmr::memory_resource* memory)
    : spec_(spec),
      parameters_(parameters),
      options_(options),
      scheduler_(scheduler),
      memory_(memory),
      channels_(infer_shapes(spec, spec.patch).output().channels),
      mirrors_(mirrors_of(options.mirror)) {}

PatchNetwork& Predictor::network(const PatchGrid& grid) {
  for (const Planned& planned : planned_) {
    if (planned.patch == grid.patch) return *planned.network;
  }
  PatchTasks tasks{.load = [this](std::size_t item, const View<float>& input, index_t begin,
                                  index_t end) { blender_->load(item, input, begin, end); },
                   .add = [this](std::size_t item, const View<const float>& logits, index_t begin,
                                 index_t end) { blender_->add(item, logits, begin, end); }};
  const NetworkOptions options{.batch = options_.batch,
                               .training = false,
                               .engine = options_.engine,
                               .low_error = options_.low_error,
                               .memory_budget = options_.memory_budget,
                               .fft = options_.fft,
                               .recorded = options_.recorded,
                               .memory_mode = options_.memory_mode};
  planned_.push_back(
      {grid.patch, std::make_unique<PatchNetwork>(spec_, grid.patch, parameters_, options, std::move(tasks), memory_)});
  return *planned_.back().network;
}

void Predictor::check(const Shape5& volume) const {
  if (volume.c == spec_.in_channels) return;
  throw ShapeMismatch(
      fmt::format("inference: the volume has {} channels, but the net reads {}; use a volume with as "
                  "many channels",
                  volume.c, spec_.in_channels));
}

Tensor<float> Predictor::run(const StoredVolume& volume, const std::function<void(double)>& progress,
                             std::stop_token stop) {
  const Shape5 shape = volume.shape();
  check(shape);
  const io::VoxelBox all{{0, 0, 0}, shape.extent};
  Tensor<float> probabilities({1, channels_, shape.extent}, memory_);
  ProbabilitySink sink(probabilities);
  VolumeWindow window(volume);
  const bool complete = run(window, grid(shape.extent), all, {&all, 1}, sink, progress, stop);
  return complete ? std::move(probabilities) : Tensor<float>();
}

bool Predictor::run(VolumeWindow& window, const PatchGrid& grid, const io::VoxelBox& region,
                    std::span<const io::VoxelBox> columns, PredictionSink& sink,
                    const std::function<void(double)>& progress, const std::stop_token& stop) {
  check(window.shape());
  PatchNetwork& net = network(grid);
  net.prepare(scheduler_);
  Blender blender(spec_, channels_, grid, region, mirrors_, window, sink, memory_);
  blender_ = &blender;
  const std::size_t all = static_cast<std::size_t>(computed_patches(grid, columns)) * forms();
  std::size_t done = 0;
  const auto report = [&](std::size_t items) {
    done += items;
    if (progress) progress(static_cast<double>(done) / static_cast<double>(all));
  };
  const auto layer_items = [&](const io::VoxelBox& column) {
    return static_cast<std::size_t>(patches_of_layer(grid, column)) * forms();
  };
  for (const io::VoxelBox& column : columns) {
    blender.begin(column);
    for (index_t layer = 0; layer < grid.axis(0).count(); ++layer) {
      std::vector<LayerPatch> missing = blender.missing(layer);
      const std::size_t items = missing.size();
      if (items < layer_items(column)) report(layer_items(column) - items);  // of an earlier, interrupted run
      if (!blender.enter(layer, std::move(missing), scheduler_, stop)) return false;
      if (!net.run(items, scheduler_, report, stop)) return false;
      blender.leave(layer, scheduler_);
    }
  }
  return true;
}

}  // namespace convolume::nets
