// Draws a loop nest: loops as nested boxes, and beside each the footprints of what it covers.
#include <algorithm>
#include <cmath>

#include "tools/nest_counts.hpp"
#include <fmt/format.h>

namespace convolume::tools {
namespace {

using plan::Operand;

constexpr double row_height = 30, top = 76, indent = 9, bars_width = 200, gap = 26;
constexpr std::array<const char*, 3> colours{"#0b6e8f", "#9a5b13", "#5b7f1f"};

std::string text_at(double x, double y, const char* type, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, type, text);
}

/// Returns the share of a bar that some bytes fill: one byte nothing, the largest footprint all of it, in logarithms.
double filled(double bytes, double most) { return bytes <= 1 || most <= 1 ? 0 : std::log2(bytes) / std::log2(most); }

class Picture {
 public:
  explicit Picture(const NestCounts& counts) : counts_(counts) {
    for (const NestLevel& level : counts.levels) {
      for (const plan::Fetch& fetch : level.fetches) most_ = std::max(most_, bytes_of(fetch));
    }
    const auto loops = static_cast<double>(counts.levels.size());
    boxes_ = 230 + 2 * indent * loops;
    height_ = top + row_height * loops + indent * loops + 16;
    width_ = 16 + boxes_ + 3 * (gap + bars_width) + 16;
  }

  std::string svg() const {
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" role=\"img\">\n<title>Loop nest {2}</title>\n<style>\n"
        "text {{ font: 12px sans-serif; fill: #1c2733; }}\n.head {{ font-weight: bold; }}\n.loop {{ font-family: "
        "monospace; }}\n.small {{ font-size: 10.5px; fill: #4c5a68; }}\n</style>\n<rect width=\"100%\" "
        "height=\"100%\" fill=\"#ffffff\"/>\n",
        width_, height_, to_string(counts_.nest));
    out += text_at(16, 24, "head", to_string(counts_.nest));
    out +=
        text_at(16, 42, "small",
                fmt::format("{} of {}; shaded: parallel; dark: the microkernel", counts_.direction, counts_.problem));
    for (std::size_t i = 0; i < plan::operands.size(); ++i) {
      out += text_at(bar_x(i), top - 10, "head", fmt::format("{}: bytes held, loads", name_of(plan::operands[i])));
    }
    for (std::size_t i = 0; i < counts_.levels.size(); ++i) out += box(i);
    for (std::size_t i = 0; i < counts_.levels.size(); ++i) out += row(i);
    return out + "</svg>\n";
  }

 private:
  double bytes_of(const plan::Fetch& fetch) const {
    return static_cast<double>(fetch.held) * static_cast<double>(counts_.element_bytes);
  }
  double bar_x(std::size_t i) const { return 16 + boxes_ + gap + static_cast<double>(i) * (gap + bars_width); }
  double row_y(std::size_t i) const { return top + row_height * static_cast<double>(i); }

  /// Draws the box of a loop, which surrounds those of the loops inside.
  std::string box(std::size_t i) const {
    const NestLevel& level = counts_.levels[i];
    const auto depth = static_cast<double>(i), below = static_cast<double>(counts_.levels.size() - i);
    const char* fill = level.in_microkernel ? "#c9d6e2" : level.parallel ? "#e6f0f3" : "#ffffff";
    return fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"4\" fill=\"{}\" "
        "stroke=\"#7b8c9c\"/>\n",
        16 + indent * depth, row_y(i), boxes_ - 2 * indent * depth, row_height * below + indent * (below - 1) - 4,
        fill);
  }

  std::string row(std::size_t i) const {
    const NestLevel& level = counts_.levels[i];
    const double y = row_y(i) + 18;
    std::string out = text_at(24 + indent * static_cast<double>(i), y, "loop", level.loop);
    out += text_at(24 + indent * static_cast<double>(i) + 64, y, "small",
                   fmt::format("{} by {}: {} trips", level.bound.extent, level.bound.step, level.bound.trips()));
    for (std::size_t k = 0; k < level.fetches.size(); ++k) {
      const plan::Fetch& fetch = level.fetches[k];
      out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"6\" rx=\"2\" fill=\"{}\"/>\n",
                         bar_x(k), y + 4, 2 + filled(bytes_of(fetch), most_) * (bars_width - 2), colours[k]);
      out += text_at(
          bar_x(k), y, "small",
          fmt::format("{}, {:.6g} {}", bytes_text(bytes_of(fetch)), fetch.loads, fetch.loads == 1 ? "load" : "loads"));
    }
    return out;
  }

  const NestCounts& counts_;
  double most_ = 1, boxes_ = 0, height_ = 0, width_ = 0;
};

}  // namespace

std::string nest_picture(const NestCounts& counts) { return Picture(counts).svg(); }

}  // namespace convolume::tools
