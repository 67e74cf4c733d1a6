// Energy and area of memories: Yang et al., "A Systematic Approach to Blocking Convolutional Neural Networks", Table 3.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "convolume/energy.hpp"
#include "convolume/error.hpp"

namespace convolume::plan {
namespace {

constexpr std::array widths{64, 128, 256, 512};
/// pJ per 16 bits. Rows are memories of 1, 2, 4, ... 1024 KiB, columns are widths.
constexpr std::array<std::array<double, widths.size()>, 11> table3{{{1.20, 0.93, 0.69, 0.57},
                                                                    {1.54, 1.37, 0.91, 0.68},
                                                                    {2.11, 1.68, 1.34, 0.90},
                                                                    {3.19, 2.71, 2.21, 1.33},
                                                                    {4.36, 3.57, 2.66, 2.19},
                                                                    {5.82, 4.80, 3.52, 2.64},
                                                                    {8.10, 7.51, 5.79, 4.67},
                                                                    {11.66, 11.50, 8.46, 6.15},
                                                                    {15.60, 15.51, 13.09, 8.99},
                                                                    {23.37, 23.24, 17.93, 15.76},
                                                                    {36.32, 32.81, 28.88, 25.22}}};

}  // namespace

double access_pj(double bytes, int word_bits) {
  const auto width = std::find(widths.begin(), widths.end(), word_bits);
  if (width == widths.end()) {
    throw InvalidArgument(
        fmt::format("a memory of words of {} bits is not in the table; use 64, 128, 256 or 512", word_bits));
  }
  if (bytes > most_sram_bytes) return dram_pj_per_word;
  const auto column = static_cast<std::size_t>(width - widths.begin());
  const double doublings = std::log2(std::max(bytes, 1.0) / 1024);
  const double row = std::clamp(std::floor(doublings), 0.0, static_cast<double>(table3.size() - 2));
  const auto i = static_cast<std::size_t>(row);
  const double below = table3[i][column], above = table3[i + 1][column];
  return std::max(least_register_pj, below * std::pow(above / below, doublings - row));
}

double chip_area_mm2(double sram_bytes) { return 0.8 + 5.5 * sram_bytes / (1 << 20); }

}  // namespace convolume::plan
