#include "nets/infer/classifier.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "nets/data/padded_rows.hpp"
#include "ops/activation.hpp"

namespace convolume::nets {

Classifier::Classifier(const NetSpec& spec, Parameters& parameters, const NetworkOptions& options, Pad pad,
                       std::pmr::memory_resource* memory)
    : patch_(spec.patch),
      zero_(pad == Pad::zero),
      channels_(spec.in_channels),
      classes_(infer_shapes(spec, spec.patch).output().channels),
      network_(spec, spec.patch, parameters, options,
               {.load = [this](std::size_t item, const View<float>& input, index_t begin,
                               index_t end) { load(item, input, begin, end); },
                .add =
                    [this](std::size_t item, const View<const float>& logits, index_t, index_t) {
                      ops::softmax(&logits(0, 0, 0, 0, 0), logits.stride[1], probabilities_[item].data(), 1, 1,
                                   classes_);
                    }},
               memory) {}

void Classifier::load(std::size_t item, const View<float>& input, index_t begin, index_t end) const {
  const StoredVolume& image = *images_[item];
  const Extent3 extent = image.shape().extent;
  const PaddedRows rows{.from = image, .stored = {{0, 0, 0}, extent}, .volume = extent, .zero = zero_};
  const Extent3 first = central_begin(extent, patch_);
  for (index_t c = 0; c < channels_; ++c) {
    for (index_t row = begin; row < end; ++row) {
      const index_t z = row / patch_.y, y = row % patch_.y;
      rows.read(c, {first.z + z, first.y + y, first.x}, patch_.x, &input(0, c, z, y, 0));
    }
  }
}

std::vector<std::vector<float>> Classifier::run(std::span<const StoredVolume* const> images, Scheduler& scheduler,
                                                const std::stop_token& stop) {
  for (const StoredVolume* image : images) {
    if (image->shape().c == channels_) continue;
    throw ShapeMismatch(
        fmt::format("inference: an image has {} channels, but the net reads {}; use images with as many channels",
                    image->shape().c, channels_));
  }
  images_ = images;
  probabilities_.assign(images.size(), std::vector<float>(static_cast<std::size_t>(classes_)));
  network_.prepare(scheduler);
  const bool complete = network_.run(images.size(), scheduler, {}, stop);
  images_ = {};
  if (!complete) return {};
  return std::move(probabilities_);
}

std::size_t most_probable(std::span<const float> probabilities) {
  return static_cast<std::size_t>(std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin());
}

}  // namespace convolume::nets
