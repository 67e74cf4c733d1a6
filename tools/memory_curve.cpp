// Shows predicted seconds against memory for training a net.
#include <algorithm>
#include <cmath>

#include "tools/info.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace convolume::tools {
namespace {

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// Returns the value of --memory for a point, rounded up to MiB.
std::size_t memory_option(const nets::MemoryPoint& point) { return (point.process + (1 << 20) - 1) >> 20; }

const nets::MemoryPoint& default_point(const std::vector<nets::MemoryPoint>& points) {
  return *std::find_if(points.begin(), points.end(), [](const nets::MemoryPoint& point) { return point.by_default; });
}

std::string reuse_text(const nets::MemoryPoint& point) {
  constexpr const char* const texts[]{"one step later", "engines' buffers at once", "at once"};
  return texts[std::clamp(point.reuse, 0, 2)];
}

/// Returns the text with the characters replaced that XML reserves.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  }
  return out;
}

/// Maps values to a range of the picture.
struct Axis {
  double from, to, begin, end;
  double at(double value) const { return begin + (value - from) / (to - from) * (end - begin); }
};

/// Returns a step of 1, 2 or 5 times a power of ten that divides the range into about five parts.
double step_of(double range) {
  const double raw = range / 5, power = std::pow(10, std::floor(std::log10(raw)));
  return raw <= power ? power : raw <= 2 * power ? 2 * power : raw <= 5 * power ? 5 * power : 10 * power;
}

}  // namespace

std::string memory_table(const std::vector<nets::MemoryPoint>& points) {
  const double normal = default_point(points).seconds;
  std::string text = fmt::format("{:>12} {:>14} {:>14} {:>14}  {}\n", "MiB at peak", "--memory", "kept spectra",
                                 "time, relative", "memory is reused");
  for (const nets::MemoryPoint& point : points) {
    text += fmt::format("{:>12.1f} {:>13}M {:>10.1f} MiB {:>14.3f}  {}{}\n", mebibytes(point.peak),
                        memory_option(point), mebibytes(point.kept_spectra), point.seconds / normal, reuse_text(point),
                        point.by_default ? ", the default" : "");
  }
  return text +
         "\nThe peak is that of a training iteration. --memory also holds the program, a validation and 16 MiB of "
         "volumes.\nTimes are predictions of the cost model. All lines give the same bits.\n";
}

std::string memory_json(const std::vector<nets::MemoryPoint>& points) {
  nlohmann::ordered_json all{{"points", nlohmann::ordered_json::array()}};
  for (const nets::MemoryPoint& point : points) {
    all["points"].push_back({{"peak_bytes", point.peak},
                             {"memory_option_bytes", memory_option(point) << 20},
                             {"kept_spectra_bytes", point.kept_spectra},
                             {"reused", reuse_text(point)},
                             {"predicted_s", point.seconds},
                             {"default", point.by_default}});
  }
  return all.dump(2) + "\n";
}

std::string memory_picture(const std::vector<nets::MemoryPoint>& points, const std::string& net) {
  const double normal = default_point(points).seconds;
  double most_memory = 0, most_time = 0;
  for (const nets::MemoryPoint& point : points) {
    most_memory = std::max(most_memory, mebibytes(point.peak));
    most_time = std::max(most_time, point.seconds / normal);
  }
  const Axis x{0, 1.05 * most_memory, 70, 620}, y{0, 1.1 * most_time, 320, 50};
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 370\" width=\"640\" height=\"370\" role=\"img\">\n"
      "<title>Predicted time against memory, {0}</title>\n<style>text {{ font: 12px sans-serif; fill: #1c2733; }}"
      "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"70\" y=\"24\">{0}: predicted time "
      "of a training iteration, relative to the default</text>\n<text x=\"345\" y=\"360\" "
      "text-anchor=\"middle\">MiB at the peak</text>\n",
      escaped(net));
  for (double value = 0; value <= x.to; value += step_of(x.to)) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"338\" text-anchor=\"middle\">{:g}</text>\n", x.at(value), value);
  }
  for (double value = 0; value <= y.to; value += step_of(y.to)) {
    out += fmt::format(
        "<path d=\"M{0:.1f} {2:.1f}H{1:.1f}\" stroke=\"#d5dde4\"/>\n<text x=\"{3:.1f}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5:g}</text>\n",
        x.begin, x.end, y.at(value), x.begin - 8, y.at(value) + 4, value);
  }
  std::string path;
  for (const nets::MemoryPoint& point : points) {
    const double at_x = x.at(mebibytes(point.peak)), at_y = y.at(point.seconds / normal);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", at_x, at_y);
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"#0b6e8f\"/>\n", at_x, at_y,
                       point.by_default ? 6 : 3);
  }
  return out + fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"#0b6e8f\"/>\n</svg>\n", path);
}

}  // namespace convolume::tools
