// What labels, channels and patches of a data set must be.
#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nets/data/dataset.hpp"

namespace convolume::nets {

void fail_label(const std::string& data, const LabelledVolume& volume, std::uint64_t index, const std::string& value,
                const std::string& remedy) {
  const Extent3 e = volume.extent(), begin = volume.begin;
  const auto i = static_cast<index_t>(index);
  const std::string name =
      volume.label_name.empty() ? fmt::format("the label of '{}'", volume.name) : volume.label_name;
  std::string scaling = io::scaling_text(volume.label_scale, std::strtod(value.c_str(), nullptr));
  if (!scaling.empty()) {
    scaling = fmt::format("it is {}. Store whole numbers ({}). Or else ", scaling,
                          io::whole_numbers_command(name, *volume.label_scale));
  }
  throw ConfigError(fmt::format("data set '{}': {} at voxel ({}, {}, {}){} is {}; {}{}", data, name,
                                begin.z + i / (e.y * e.x), begin.y + i / e.x % e.y, begin.x + i % e.x,
                                volume.label_turned ? io::turned_text : "", value, scaling, remedy));
}

void check_classes(const Dataset& data, index_t outputs) {
  if (static_cast<index_t>(data.class_names.size()) == outputs) return;
  throw ConfigError(fmt::format(
      "data set '{}': its cases have {} classes ({}), but the output channels of the net are {}; use one per "
      "class, or leave cases out",
      data.name, data.class_names.size(), fmt::join(data.class_names, ", "), outputs));
}

void check_labels(const Dataset& data, index_t classes) {
  if (data.classes > 0 && data.classes != std::max<index_t>(classes, 2)) {
    throw ConfigError(fmt::format(
        "data set '{}': [label] classes lists {} classes, but the net has {}; list as many, or change the net's "
        "outputs",
        data.name, data.classes,
        classes == 0 ? "one output, which tells 2 classes apart" : fmt::format("{} outputs, one per class", classes)));
  }
  std::vector<std::uint64_t> voxels(static_cast<std::size_t>(std::max<index_t>(classes, 0)));
  const auto check = [&](const LabelledVolume& volume, bool training) {
    const auto summary =
        volume.labels ? volume.labels
                      : std::make_shared<const LabelSummary>(*summarise_labels(pieces_of(volume.label), {}, nullptr));
    const auto fail = [&](const FoundVoxel& voxel, const std::string& remedy) {
      fail_label(data.name, volume, voxel.index, fmt::format("{}", voxel.value), remedy);
    };
    if (classes == 0) {
      if (summary->not_unit) {
        fail(*summary->not_unit,
             "it must lie in [0, 1]. Name the stored values that are positive: [label] positive = [...]");
      }
      return;
    }
    const std::string remedy = fmt::format("it must be a class from 0 to {}", classes - 1);
    if (summary->not_whole) fail(*summary->not_whole, remedy);
    if (summary->largest && !(summary->largest->value < static_cast<float>(classes))) fail(*summary->largest, remedy);
    if (summary->negative) fail(*summary->negative, remedy);
    for (std::size_t c = 0; training && c < std::min(voxels.size(), summary->classes.size()); ++c) {
      voxels[c] += summary->classes[c].count;
    }
  };
  for (const LabelledVolume& volume : data.train) check(volume, true);
  for (const LabelledVolume& volume : data.validation) check(volume, false);
  for (std::size_t c = 0; c < voxels.size(); ++c) {
    if (voxels[c] > 0) continue;
    throw ConfigError(fmt::format(
        "data set '{}': class {} occurs in no training volume, so it cannot be learned; add a volume that has it, or "
        "remove it from [label] classes and from the net's outputs",
        data.name, c));
  }
}

void check_channels(const Dataset& data, index_t channels) {
  for (const auto* list : {&data.train, &data.validation}) {
    for (const LabelledVolume& volume : *list) {
      if (volume.channels() == channels) continue;
      throw ConfigError(
          fmt::format("data set '{}': '{}' has {} channels, but the net reads {} channels; set input.channels",
                      data.name, volume.name, volume.channels(), channels));
    }
  }
}

void check_patch(const Dataset& data, const Extent3& patch) {
  bool foreground = false;
  const auto check_extent = [&](const LabelledVolume& volume, const char* split) {
    const Extent3 e = volume.grid();
    if (data.sampling.pad != Pad::none || (patch.z <= e.z && patch.y <= e.y && patch.x <= e.x)) return;
    throw ConfigError(
        fmt::format("{} volume '{}' has {} voxels, but the net's patch has {}; use a smaller input.patch, or set "
                    "[sampling] pad = \"mirror\"",
                    split, volume.name, to_string(e), to_string(patch)));
  };
  for (const LabelledVolume& volume : data.validation) {
    if (data.classifies()) check_extent(volume, "validation");
  }
  for (const LabelledVolume& volume : data.train) {
    check_extent(volume, "training");
    for (std::size_t c = 1; volume.labels && c < volume.labels->classes.size(); ++c) {
      foreground = foreground || volume.labels->classes[c].count > 0;
    }
  }
  if (data.sampling.foreground > 0 && !foreground) {
    throw ConfigError(
        fmt::format("data set '{}': [sampling] foreground = {}, but no training volume has a voxel of a {}; correct "
                    "[label], or leave 'foreground' out",
                    data.name, data.sampling.foreground, data.regions > 0 ? "region" : "class above 0"));
  }
  if (data.augment.rotate90 && patch.y != patch.x) {
    throw ConfigError(fmt::format("data set '{}' rotates by 90 degrees, which needs square patches; the net's is {}",
                                  data.name, to_string(patch)));
  }
}

}  // namespace convolume::nets
