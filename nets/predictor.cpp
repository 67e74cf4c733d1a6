#include "nets/predictor.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/checked.hpp"
#include "ops/activation.hpp"

namespace convolume::nets {
namespace {

/// Maps an index into [0, n) by mirroring at the first and last voxel.
index_t mirrored(index_t i, index_t n) {
  if (n == 1) return 0;
  const index_t period = 2 * (n - 1);
  i = ((i % period) + period) % period;
  return i < n ? i : period - i;
}

struct AxisNeeds {
  index_t volume, patch, output, offset, alignment, padded_before, padded_behind, overlap;
};

/// Returns the weight of each output voxel. It is zero within the untrusted margin of an inner face, and rises over the
/// rest of the overlap.
std::vector<float> ramp(const AxisNeeds& a, bool first, bool last) {
  index_t before = a.padded_before, behind = a.padded_behind;
  if (before + behind >= a.overlap && before + behind > 0) {
    before = (a.overlap > 0 ? a.overlap - 1 : 0) * before / (before + behind);
    behind = std::max<index_t>(0, a.overlap - 1 - before);
  }
  const auto rise = static_cast<double>(std::max<index_t>(0, a.overlap - before - behind) + 1);
  std::vector<float> weights(static_cast<std::size_t>(a.output), 1.0f);
  const auto weight = [&](index_t distance, index_t margin) {
    return std::clamp(static_cast<double>(distance - margin + 1) / rise, 0.0, 1.0);
  };
  for (index_t i = 0; i < a.output; ++i) {
    double w = 1;
    if (!first) w = std::min(w, weight(i, before));
    if (!last) w = std::min(w, weight(a.output - 1 - i, behind));
    weights[static_cast<std::size_t>(i)] = static_cast<float>(w);
  }
  return weights;
}

AxisTiling tile_axis(const AxisNeeds& a) {
  AxisTiling t;
  t.patch = a.patch;
  t.output = a.output;
  t.offset = a.offset;
  // Every patch starts on the pooling grid of the first patch.
  t.extent = a.output + round_up(std::max<index_t>(0, a.volume - a.output), a.alignment);
  const index_t step = std::max(a.alignment, (a.output - a.overlap) / a.alignment * a.alignment);
  for (index_t start = 0;; start += step) {
    const index_t final_start = t.extent - a.output;
    if (start >= final_start) {
      t.starts.push_back(final_start);
      break;
    }
    t.starts.push_back(start);
  }
  for (std::size_t i = 0; i < t.starts.size(); ++i) {
    t.weights.push_back(ramp(a, i == 0, i + 1 == t.starts.size()));
  }
  return t;
}

}  // namespace

Predictor::Predictor(const NetSpec& spec, Parameters& parameters, const Extent3& extent,
                     const PredictorOptions& options, Scheduler& scheduler, std::pmr::memory_resource* memory)
    : spec_(spec), volume_(extent), scheduler_(scheduler), memory_(memory) {
  Extent3 patch = options.patch.value_or(spec.patch);
  const Extent3 alignment = infer_shapes(spec, patch).alignment();
  Extent3 whole;
  for (int axis = 0; axis < 3; ++axis) whole[axis] = round_up(patch[axis], alignment[axis]);
  const Extent3 kept = infer_shapes(spec, whole).output().extent;
  for (int axis = 0; axis < 3; ++axis) {
    if (kept[axis] != whole[axis] || patch[axis] == whole[axis]) continue;
    if (options.patch) {
      throw ConfigError(
          fmt::format("inference patch {} along {} is not a multiple of the net's pooling grid ({}); use {}",
                      patch[axis], "zyx"[axis], alignment[axis], whole[axis]));
    }
    patch[axis] = whole[axis];
  }
  NetShapes shapes = infer_shapes(spec, patch);
  for (int axis = 0; axis < 3; ++axis) {
    // A patch need not be larger than the volume.
    const index_t margin = patch[axis] - shapes.output().extent[axis];
    patch[axis] = std::min(patch[axis], round_up(volume_[axis], alignment[axis]) + margin);
  }
  shapes = infer_shapes(spec, patch);
  const Extent3 out = shapes.output().extent, before = shapes.reach_before(), behind = shapes.reach_behind();
  for (int axis = 0; axis < 3; ++axis) {
    const index_t most = out[axis] / 2;
    const index_t padded_before = shapes.output().padded_before[axis],
                  padded_behind = shapes.output().padded_behind[axis];
    index_t overlap = padded_before + padded_behind > 0 ? std::min(before[axis] + behind[axis] + 1, most) : 0;
    if (options.overlap) overlap = (*options.overlap)[axis];
    // The starts of neighbouring patches differ by at least one period of the pooling grid.
    overlap = std::clamp<index_t>(overlap, 0, std::max<index_t>(0, out[axis] - alignment[axis]));
    if (out[axis] < std::min(alignment[axis], volume_[axis])) {
      throw ConfigError(
          fmt::format("inference patch {} along {}: {} voxels come out, less than the net's pooling grid "
                      "({}); use a larger one",
                      patch[axis], "zyx"[axis], out[axis], alignment[axis]));
    }
    axes_[static_cast<std::size_t>(axis)] = tile_axis({volume_[axis], patch[axis], out[axis], shapes.offset()[axis],
                                                       alignment[axis], padded_before, padded_behind, overlap});
  }
  network_ = std::make_unique<Network>(spec, patch, parameters,
                                       NetworkOptions{.batch = 1,
                                                      .training = false,
                                                      .engine = options.engine,
                                                      .memory_budget = options.memory_budget,
                                                      .fft = options.fft,
                                                      .memory_mode = options.memory_mode},
                                       memory);
  network_->append_planned(
      [this](TaskGraph& prepare, TaskGraph& forward) {
        network_->append_prepare(prepare, {});
        network_->append_forward(forward, {}, {}, {});
      },
      prepare_graph_, forward_graph_);
  network_->place_memory();
  probabilities_ = Tensor<float>(network_->logits().shape(), memory);
}

std::size_t Predictor::patches() const {
  return axes_[0].starts.size() * axes_[1].starts.size() * axes_[2].starts.size();
}

/// Loads the input of the output patch that starts at `at`. Voxels outside the volume are mirrored.
void Predictor::load_patch(const StoredVolume& volume, const Extent3& at) {
  const auto target = network_->input().view();
  const Extent3 &e = target.shape.extent, first = at - Extent3{axes_[0].offset, axes_[1].offset, axes_[2].offset};
  // Voxels [inside, behind) of a row lie in the volume and are copied at once.
  const index_t inside = std::clamp<index_t>(-first.x, 0, e.x), behind = std::clamp(volume_.x - first.x, inside, e.x);
  for (index_t c = 0; c < target.shape.c; ++c) {
    for (index_t z = 0; z < e.z; ++z) {
      const index_t plane = c * volume_.z + mirrored(first.z + z, volume_.z);
      for (index_t y = 0; y < e.y; ++y) {
        const index_t row = (plane * volume_.y + mirrored(first.y + y, volume_.y)) * volume_.x;
        float* const to = &target(0, c, z, y, 0);
        volume.gather(row + first.x + inside, 1, behind - inside, to + inside);
        for (index_t x = 0; x < inside; ++x) to[x] = volume.value(row + mirrored(first.x + x, volume_.x));
        for (index_t x = behind; x < e.x; ++x) to[x] = volume.value(row + mirrored(first.x + x, volume_.x));
      }
    }
  }
}

void Predictor::to_probabilities() {
  const Tensor<float>& logits = network_->logits();
  if (!spec_.softmax()) {
    const Activation sigmoid{Activation::Kind::sigmoid};
    const bool plain = spec_.loss.kind == ops::LossKind::square;
    ops::activate(plain ? Activation{} : sigmoid, logits.data(), probabilities_.data(), logits.elements());
    return;
  }
  const index_t voxels = logits.shape().extent.volume(), classes = logits.shape().c;
  for (index_t v = 0; v < voxels; ++v) {
    float most = logits.data()[v];
    for (index_t c = 1; c < classes; ++c) most = std::max(most, logits.data()[c * voxels + v]);
    double sum = 0;
    for (index_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(logits.data()[c * voxels + v] - most));
    for (index_t c = 0; c < classes; ++c) {
      const double e = std::exp(static_cast<double>(logits.data()[c * voxels + v] - most));
      probabilities_.data()[c * voxels + v] = static_cast<float>(e / sum);
    }
  }
}

void Predictor::blend(const Extent3& tile, Tensor<float>& sum, Tensor<float>& weight) const {
  const auto index = [](index_t i) { return static_cast<std::size_t>(i); };
  const Extent3 at{axes_[0].starts[index(tile.z)], axes_[1].starts[index(tile.y)], axes_[2].starts[index(tile.x)]};
  const auto& wz = axes_[0].weights[index(tile.z)];
  const auto& wy = axes_[1].weights[index(tile.y)];
  const auto& wx = axes_[2].weights[index(tile.x)];
  const auto source = probabilities_.view();
  const auto target = sum.view(), total = weight.view();
  const Extent3& e = source.shape.extent;
  // Voxels of the extended volume that lie outside the real one are dropped.
  const Extent3 end{std::min(e.z, volume_.z - at.z), std::min(e.y, volume_.y - at.y), std::min(e.x, volume_.x - at.x)};
  for (index_t z = 0; z < end.z; ++z) {
    for (index_t y = 0; y < end.y; ++y) {
      const float row = wz[index(z)] * wy[index(y)];
      if (row == 0) continue;
      for (index_t x = 0; x < end.x; ++x) total(0, 0, at.z + z, at.y + y, at.x + x) += row * wx[index(x)];
      for (index_t c = 0; c < source.shape.c; ++c) {
        const float* from = &source(0, c, z, y, 0);
        float* to = &target(0, c, at.z + z, at.y + y, at.x);
        for (index_t x = 0; x < end.x; ++x) to[x] += row * wx[index(x)] * from[x];
      }
    }
  }
}

Tensor<float> Predictor::run(const StoredVolume& volume, const std::function<void(double)>& progress,
                             std::stop_token stop) {
  const Shape5 expected{1, spec_.in_channels, volume_};
  if (volume.shape() != expected) {
    throw ShapeMismatch(fmt::format("inference: the volume has shape {}, but the predictor was made for {}",
                                    to_string(volume.shape()), to_string(expected)));
  }
  prepare_graph_.run(scheduler_);
  Tensor<float> sum({1, network_->logits().shape().c, volume_}, memory_), weight({1, 1, volume_}, memory_);
  sum.fill(0);
  weight.fill(0);
  std::size_t done = 0;
  const auto count = [&](int axis) {
    return static_cast<index_t>(axes_[static_cast<std::size_t>(axis)].starts.size());
  };
  for (index_t z = 0; z < count(0); ++z) {
    for (index_t y = 0; y < count(1); ++y) {
      for (index_t x = 0; x < count(2); ++x) {
        const auto start = [&](int axis, index_t i) {
          return axes_[static_cast<std::size_t>(axis)].starts[static_cast<std::size_t>(i)];
        };
        load_patch(volume, {start(0, z), start(1, y), start(2, x)});
        if (forward_graph_.run(scheduler_, stop) == RunResult::cancelled || stop.stop_requested()) return {};
        to_probabilities();
        blend({z, y, x}, sum, weight);
        if (progress) progress(static_cast<double>(++done) / static_cast<double>(patches()));
      }
    }
  }
  const index_t voxels = volume_.volume();
  for (index_t c = 0; c < sum.shape().c; ++c) {
    float* map = sum.view().channel(0, c);
    for (index_t v = 0; v < voxels; ++v) map[v] /= weight.data()[v];
  }
  return sum;
}

}  // namespace convolume::nets
