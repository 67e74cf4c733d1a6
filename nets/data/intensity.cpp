#include "nets/data/intensity.hpp"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/error.hpp"
#include "core/json.hpp"
#include "nets/data/scaling_json.hpp"

namespace convolume::nets {
namespace {

/// Returns the scaling that makes `low` 0 and `high` 1, or mean 0 and deviation 1.
Scaling scaling_from(const IntensityStatistics& statistics, std::size_t channel, const Moments& moments,
                     Normalise how) {
  const auto to_unit = [](double low, double high) { return Scaling{low, high > low ? 1 / (high - low) : 1}; };
  switch (how) {
    case Normalise::none:
      return {};
    case Normalise::percentiles:
      return to_unit(statistics.percentiles[channel][0], statistics.percentiles[channel][1]);
    case Normalise::min_max:
      return to_unit(statistics.voxels.channels[channel].least, statistics.voxels.channels[channel].largest);
    case Normalise::volume:
    case Normalise::slice:
    case Normalise::dataset:
      break;
  }
  const double deviation = moments.deviation();
  return {moments.mean, deviation > 0 ? 1 / deviation : 1};
}

}  // namespace

std::optional<IntensityStatistics> intensity_statistics(const VoxelPieces& voxels, const IntensitySpec& spec,
                                                        Scheduler* scheduler, const std::stop_token& stop) {
  IntensityStatistics result;
  StatisticsOptions options{.nonzero = spec.nonzero, .slices = spec.normalise == Normalise::slice};
  if (spec.needs_percentiles()) {
    for (index_t c = 0; c < voxels.channels; ++c) {
      const auto found = percentiles_of({&voxels, 1}, c, spec.percentiles, spec.nonzero, scheduler, stop);
      if (!found) return std::nullopt;
      result.percentiles.push_back({(*found)[0], (*found)[1]});
      if (spec.clip) options.clip.emplace_back((*found)[0], (*found)[1]);
    }
  }
  auto statistics = statistics_of(voxels, options, scheduler, stop);
  if (!statistics) return std::nullopt;
  result.voxels = std::move(*statistics);
  return result;
}

VolumeScaling scaling_of(const IntensityStatistics& statistics, const IntensitySpec& spec, const std::string& name) {
  VolumeScaling scaling;
  if (spec.normalise == Normalise::none && !spec.clip) return scaling;
  const bool slices = spec.normalise == Normalise::slice;
  const std::size_t channels = statistics.voxels.channels.size();
  const std::size_t planes = slices ? statistics.voxels.slices.size() / channels : 1;
  if (slices) scaling.planes = static_cast<index_t>(planes);
  for (std::size_t c = 0; c < channels; ++c) {
    const auto& channel = statistics.voxels.channels[c];
    const bool constant = spec.normalise == Normalise::percentiles
                              ? !(statistics.percentiles[c][1] > statistics.percentiles[c][0])
                              : channel.moments.count == 0 || !(channel.largest > channel.least);
    if (constant && spec.normalise != Normalise::none && !name.empty()) {
      throw ConfigError(fmt::format(
          "{}: the {}voxels of channel {} are all equal{}, so they cannot be normalised by '{}'; leave the "
          "volume out, or set [intensity] normalise = \"none\"",
          name, spec.nonzero ? "nonzero " : "", c,
          channel.moments.count > 0 ? fmt::format(" to {}", channel.moments.mean) : "", name_of(spec.normalise)));
    }
    for (std::size_t z = 0; z < planes; ++z) {
      Scaling one = scaling_from(statistics, c, slices ? statistics.voxels.slices[c * planes + z] : channel.moments,
                                 spec.normalise);
      if (spec.clip) {
        one.low = statistics.percentiles[c][0];
        one.high = statistics.percentiles[c][1];
      }
      scaling.list.push_back(one);
    }
  }
  return scaling;
}

void normalise(StoredVolume& volume, const IntensitySpec& spec, Scheduler* scheduler) {
  volume.scale(nullptr);
  const auto statistics = intensity_statistics(pieces_of(volume), spec, scheduler);
  volume.scale(std::make_shared<VolumeScaling>(scaling_of(*statistics, spec, "the volume")));
}

std::string intensity_text(const IntensitySpec& spec, const VolumeScaling& of_dataset) {
  nlohmann::json json{{"normalise", name_of(spec.normalise)},
                      {"percentiles", spec.percentiles},
                      {"clip", spec.clip},
                      {"nonzero", spec.nonzero}};
  if (spec.nan) json["nan"] = *spec.nan;
  if (!of_dataset.list.empty()) json["scaling"] = to_json(of_dataset);
  return to_text(json);
}

std::pair<IntensitySpec, VolumeScaling> parse_intensity(const std::string& text, const std::string& file) try {
  const auto json = [&] {
    try {
      return parse_json(text);
    } catch (const FormatError& error) {
      throw FormatError(fmt::format("{}: normalisation: {}; train again", file, error.what()));
    }
  }();
  IntensitySpec spec;
  const std::string how = json.at("normalise");
  bool known = false;
  for (int i = 0; i <= static_cast<int>(Normalise::min_max); ++i) {
    if (name_of(static_cast<Normalise>(i)) != how) continue;
    spec.normalise = static_cast<Normalise>(i);
    known = true;
  }
  if (!known) throw FormatError(fmt::format("{}: normalisation '{}' is unknown; use a newer build", file, how));
  spec.percentiles = json.at("percentiles").get<std::array<double, 2>>();
  spec.clip = json.at("clip");
  spec.nonzero = json.at("nonzero");
  if (json.contains("nan")) spec.nan = json.at("nan").get<double>();
  VolumeScaling scaling;
  if (json.contains("scaling")) scaling = scaling_from_json(json.at("scaling"));
  if (spec.normalise == Normalise::dataset && scaling.list.empty()) {
    throw FormatError(fmt::format("{}: normalisation: the scaling of the data set is missing; train again", file));
  }
  return {spec, scaling};
} catch (const nlohmann::json::exception& error) {
  throw FormatError(fmt::format("{}: normalisation: {}; train again", file, error.what()));
}

}  // namespace convolume::nets
