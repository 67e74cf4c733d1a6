// Draws the course of a training run as an SVG.
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
  double second = 0;       ///< another score, 0..1; NaN if it is undefined
};

/// Returns the chart as text. The loss is above: per iteration in light, its running mean in dark. Pixel error and the
/// second score, whose name is `second`, are below. Points must be in the order of their iterations. Values that are
/// not finite leave gaps; a panel without points says so. Equal points give equal bytes.
std::string loss_curve_svg(std::span<const LossPoint> loss, std::span<const ValidationPoint> validation,
                           const std::string& second = "roc_auc");

/// Writes loss_curve_svg() to a file, which is replaced as a whole. Throws IoError.
void write_loss_curve(const std::filesystem::path& file, std::span<const LossPoint> loss,
                      std::span<const ValidationPoint> validation, const std::string& second = "roc_auc");

}  // namespace convolume::nets::io
