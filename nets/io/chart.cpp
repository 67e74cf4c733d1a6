#include "nets/io/chart.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/files.hpp"

namespace convolume::nets::io {
namespace {

struct Point {
  double x = 0, y = 0;
};

struct Box {
  double left = 0, top = 0, width = 0, height = 0;
};

struct Line {
  std::vector<Point> points;
  std::string_view colour;
  double width = 1.5;
  bool dots = false;
};

struct Range {
  double low = 0, high = 1;
};

constexpr std::size_t most_points = 2000;  // per line; more points than pixels would only enlarge the file
constexpr std::string_view light = "#b8cfe6", dark = "#1f4e79", red = "#b03a2e", green = "#2e7d4f", ink = "#333333",
                           grid = "#e4e4e4";

/// Returns 1, 2 or 5 times a power of ten, so that about `count` steps fill the range.
double nice_step(double range, int count) {
  const double raw = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double digit = raw / power;
  return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

Range range_of(std::vector<double> values, double outliers) {
  // Differences of values beyond 1e150 might overflow. Such values are drawn outside the panel.
  std::erase_if(values, [](double v) { return !(std::abs(v) <= 1e150); });
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double last = static_cast<double>(values.size() - 1);
  Range range{values.front(), values[static_cast<std::size_t>(std::ceil(last * (1 - outliers)))]};
  const double margin =
      range.high > range.low ? 0.05 * (range.high - range.low) : std::max(std::abs(range.high) * 0.1, 1e-6);
  return {range.low - margin, range.high + margin};
}

/// Returns the running mean over a window centred on each point. The window is about a fiftieth of the run, and shorter
/// at both ends.
std::vector<Point> smooth(const std::vector<Point>& points) {
  const std::size_t half = points.size() / 100 + 1;
  std::vector<Point> finite;
  std::copy_if(points.begin(), points.end(), std::back_inserter(finite), [](Point p) { return std::isfinite(p.y); });
  std::vector<double> sums{0};
  for (const auto& point : finite) sums.push_back(sums.back() + point.y);
  std::vector<Point> result;
  for (std::size_t i = 0; i < finite.size(); ++i) {
    const std::size_t reach = std::min({half, i, finite.size() - 1 - i});
    const double sum = sums[i + reach + 1] - sums[i - reach];
    result.push_back({finite[i].x, sum / static_cast<double>(2 * reach + 1)});
  }
  return result;
}

/// Keeps the minimum and the maximum of each interval, so that thinning hides no spike.
std::vector<Point> thin(const std::vector<Point>& points) {
  if (points.size() <= most_points) return points;
  const std::size_t stretches = most_points / 2;
  std::vector<Point> result;
  for (std::size_t s = 0; s < stretches; ++s) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * s / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (s + 1) / stretches);
    // NaN compares as equal to every value. If it is selected as an extreme, the line has a gap there, as intended.
    const auto [low, high] = std::minmax_element(begin, end, [](Point a, Point b) { return a.y < b.y; });
    result.push_back(low < high ? *low : *high);
    if (low != high) result.push_back(low < high ? *high : *low);
  }
  return result;
}

class Chart {
 public:
  Chart(double width, double height) {
    text_ = fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"{2}\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
        width, height, ink);
  }

  void panel(std::string_view title, const Box& box, Range x, Range y, const std::vector<Line>& lines) {
    const std::string clip = fmt::format("clip{}", panels_++);
    add("<clipPath id=\"{}\"><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/></clipPath>\n", clip,
        box.left, box.top, box.width, box.height);
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" font-weight=\"bold\">{}</text>\n", box.left, box.top - 10, title);
    const auto px = [&](double v) { return box.left + (v - x.low) / (x.high - x.low) * box.width; };
    const auto py = [&](double v) { return box.top + (y.high - v) / (y.high - y.low) * box.height; };
    for (const double v : ticks(y, box.height > 200 ? 6 : 4)) {
      add("<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\"/>\n", box.left,
          box.left + box.width, py(v), grid);
      add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.5g}</text>\n", box.left - 8, py(v) + 4, v);
    }
    const double bottom = box.top + box.height;
    for (const double v : ticks(x, box.width > 500 ? 8 : 4)) {
      add("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\"/>\n", px(v), bottom,
          bottom + 5, ink);
      add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.7g}</text>\n", px(v), bottom + 19, v);
    }
    add("<polyline points=\"{0:.1f},{1:.1f} {0:.1f},{2:.1f} {3:.1f},{2:.1f}\" fill=\"none\" stroke=\"{4}\"/>\n",
        box.left, box.top, bottom, box.left + box.width, ink);
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">iteration</text>\n", box.left + box.width / 2,
        bottom + 37);
    add("<g clip-path=\"url(#{})\">\n", clip);
    bool drawn = false;
    for (const auto& line : lines) {
      std::string run;
      for (const auto& point : line.points) {
        if (!std::isfinite(point.y)) {
          polyline(run, line);
          continue;
        }
        drawn = true;
        // The panel clips points far outside. Moderate coordinates avoid errors in SVG viewers.
        const double at = std::clamp(py(point.y), box.top - 1e4, bottom + 1e4);
        run += fmt::format("{}{:.1f},{:.1f}", run.empty() ? "" : " ", px(point.x), at);
        if (line.dots) {
          add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n", px(point.x), at, line.colour);
        }
      }
      polyline(run, line);
    }
    add("</g>\n");
    if (!drawn) {
      add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#888888\">no values yet</text>\n",
          box.left + box.width / 2, box.top + box.height / 2);
    }
  }

  /// Draws a legend entry, a stroke and its meaning, that ends at `right`.
  void key(double right, double y, std::string_view meaning, std::string_view colour) {
    const double left = right - 8 - 6.5 * static_cast<double>(meaning.size());
    add("<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\" stroke-width=\"2\"/>\n",
        left - 22, left - 4, y - 4, colour);
    add("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", left, y, meaning);
  }

  std::string finish() && {
    add("</svg>\n");
    return std::move(text_);
  }

 private:
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  void polyline(std::string& run, const Line& line) {
    if (!run.empty()) {
      add("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"/>\n", run,
          line.colour, line.width);
    }
    run.clear();
  }

  static std::vector<double> ticks(Range range, int count) {
    const double step = nice_step(range.high - range.low, count);
    std::vector<double> result;
    const double first = std::ceil(range.low / step);
    for (int i = 0; i < 3 * count && (first + i) * step <= range.high; ++i) {
      result.push_back((first + i) * step + 0.0);  // + 0.0 avoids the label "-0"
    }
    return result;
  }

  std::string text_;
  int panels_ = 0;
};

}  // namespace

std::string loss_curve_svg(std::span<const LossPoint> loss, std::span<const ValidationPoint> validation,
                           const std::string& second) {
  std::vector<Point> raw, error, auc;
  std::vector<double> raw_values, error_values, auc_values;
  double last = 1;
  for (const auto& point : loss) {
    const auto x = static_cast<double>(point.iteration);
    raw.push_back({x, point.loss});
    raw_values.push_back(point.loss);
    last = std::max(last, x);
  }
  for (const auto& point : validation) {
    const auto x = static_cast<double>(point.iteration);
    error.push_back({x, point.pixel_error});
    auc.push_back({x, point.second});
    error_values.push_back(point.pixel_error);
    auc_values.push_back(point.second);
    last = std::max(last, x);
  }
  const Range x{0, last};
  constexpr double width = 860;
  Chart chart(width, 660);
  // A few early spikes would flatten the rest of the curve, so half a percent of the raw values may leave the panel.
  chart.panel("Training loss", {70, 40, width - 100, 320}, x, range_of(raw_values, 0.005),
              {{thin(raw), light, 1}, {thin(smooth(raw)), dark, 2}});
  chart.key(width - 160, 30, "running mean", dark);
  chart.key(width - 30, 30, "per iteration", light);
  chart.panel("Validation: pixel error", {70, 440, 330, 160}, x, range_of(error_values, 0),
              {{thin(error), red, 1.5, true}});
  chart.panel("Validation: " + (second == "roc_auc" ? "ROC AUC" : second), {500, 440, 330, 160}, x,
              range_of(auc_values, 0), {{thin(auc), green, 1.5, true}});
  return std::move(chart).finish();
}

void write_loss_curve(const std::filesystem::path& file, std::span<const LossPoint> loss,
                      std::span<const ValidationPoint> validation, const std::string& second) {
  write_file_atomically(file, loss_curve_svg(loss, validation, second));
}

}  // namespace convolume::nets::io
