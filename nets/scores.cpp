#include "nets/scores.hpp"

#include <algorithm>

#include "nets/io/metrics.hpp"

namespace convolume::nets {
namespace {

/// Joins the voxels of all views into one row. An empty view is filled with `missing`.
Tensor<float> joined(std::span<const View<const float>> views, std::span<const View<const float>> shapes, float missing,
                     std::pmr::memory_resource* memory) {
  index_t voxels = 0;
  for (const auto& view : shapes) voxels += view.shape.extent.volume();
  Tensor<float> row({1, 1, {1, 1, voxels}}, memory);
  float* to = row.data();
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const index_t count = shapes[i].shape.extent.volume();
    if (views[i]) {
      std::copy_n(views[i].channel(0, 0), count, to);
    } else {
      std::fill_n(to, count, missing);
    }
    to += count;
  }
  return row;
}

}  // namespace

Tensor<float> foreground(const NetSpec& spec, Tensor<float> probabilities) {
  if (!spec.softmax()) return probabilities;
  Tensor<float> result({1, 1, probabilities.shape().extent});
  for (index_t v = 0; v < result.elements(); ++v) result.data()[v] = 1 - probabilities.data()[v];
  return result;
}

Scores score(std::span<const View<const float>> probabilities, std::span<const View<const float>> labels,
             std::span<const View<const float>> masks, double threshold, std::pmr::memory_resource* memory) {
  const auto p = joined(probabilities, probabilities, 0, memory);
  const auto l = joined(labels, probabilities, 0, memory);
  const auto m = joined(masks, probabilities, 1, memory);
  const auto s = evaluate(p.view(), l.view(), m.view(), threshold);
  return {s.pixel_error, s.roc_auc, s.dice, s.iou, s.voxels, s.positives};
}

}  // namespace convolume::nets
