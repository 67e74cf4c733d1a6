// The course of a training run, as an SVG.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace convolume::nets::io {

struct LossPoint {
  std::int64_t iteration = 0;
  double loss = 0;
};

struct ValidationPoint {
  std::int64_t iteration = 0;
  double pixel_error = 0;  ///< 0..1
  double roc_auc = 0;      ///< 0..1; NaN where it is not defined
};

/// The chart as text: the loss above (as it is in light, its running mean in dark), pixel error and ROC AUC below.
/// Points come in the order of their iterations; values that are not finite leave gaps; without points the panels say
/// so. Equal points give equal bytes.
std::string loss_curve_svg(std::span<const LossPoint> loss, std::span<const ValidationPoint> validation);

/// Writes loss_curve_svg() to a file, replaced as a whole. Throws IoError.
void write_loss_curve(const std::filesystem::path& file, std::span<const LossPoint> loss,
                      std::span<const ValidationPoint> validation);

}  // namespace convolume::nets::io
