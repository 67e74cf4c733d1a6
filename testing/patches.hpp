// Makes single patches of a data set.
#pragma once

#include "nets/data/patch_source.hpp"

namespace convolume::test {

struct MadePatch {
  Tensor<float> image, label, mask;
};

/// Makes the patch of a draw from a data set in memory, in `shares` shares.
inline MadePatch make_patch(const nets::Dataset& data, const nets::PatchDraw& draw, const Extent3& patch,
                            const Extent3& label_begin, const Extent3& label_extent, index_t shares = 3) {
  using namespace nets;
  const LabelledVolume& volume = data.train[draw.volume];
  MadePatch made{.image = Tensor<float>({1, volume.channels(), patch}),
                 .label = Tensor<float>({1, 1, label_extent}),
                 .mask = Tensor<float>({1, 1, label_extent})};
  for (auto* tensor : {&made.image, &made.label, &made.mask}) tensor->fill(std::numeric_limits<float>::quiet_NaN());
  PatchLoader loader(data, patch, label_begin, label_extent, true, std::pmr::get_default_resource());
  loader.begin(draw, PatchMap(draw, data.augment, patch, volume.spacing, volume.resampling, data.cubic),
               {.image = &volume.image,
                .label = &volume.label,
                .mask = volume.mask ? &volume.mask : nullptr,
                .box = {{0, 0, 0}, volume.extent()}});
  const PatchTarget target{made.image, made.label, made.mask};
  for (index_t i = 0; i < shares; ++i) loader.load(i, shares);
  for (index_t i = 0; i < shares; ++i) loader.place(target, i, shares);
  loader.change(target);
  return made;
}

/// The same with labels for the whole patch.
inline MadePatch make_patch(const nets::Dataset& data, const nets::PatchDraw& draw, const Extent3& patch) {
  return make_patch(data, draw, patch, {0, 0, 0}, patch);
}

}  // namespace convolume::test
