#include "plan/tiled_cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::plan {
namespace {

// Extents whose transforms take few operations per voxel.
constexpr std::array<index_t, 30> extents{2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                          18, 20, 21, 22, 24, 26, 28, 30, 32, 36, 40, 44, 48, 56, 64};
constexpr std::array<index_t, 9> groups{1, 2, 3, 4, 6, 8, 12, 16, 24};

// Shares of the FMA peak, measured (docs/performance.md): products; transforms, by how much of the L2 a spectrum takes;
// transforms of kernels, most of whose lines are zero.
// A product's share grows with the rows (tiles) that read a weight spectrum at once.
double product_efficiency(double rows) {
  return rows >= 6 ? 0.9 : rows >= 4 ? 0.87 : rows >= 3 ? 0.84 : rows >= 2 ? 0.75 : 0.5;
}
constexpr double best_transform = 0.42, worst_transform = 0.2;
constexpr double spilled_share = 0.16, least_spilled = 0.65;  // lost for each L2 that a group of tiles needs above two
// Lines of more points do not fit the registers, and are stored and read again in between; measured.
constexpr index_t register_points = 16;
constexpr double long_x_share = 0.8, long_zy_share = 0.9;
constexpr double kernel_efficiency = 0.2, kernel_share = 0.4;
constexpr double cropped_share = 0.75;  // of an inverse's operations, where only the valid part is wanted
constexpr double tile_seconds = 1e-6;   // setting up one tile of one channel block
constexpr double idle_share = 0.3;      // of what one worker waits for the other one: sometimes it finds other work
constexpr double block_seconds = 2e-7;  // a call for one frequency block of a group: products, lines along Z

struct Channels {
  double terms, lanes;           // of the products
  double in_blocks, out_blocks;  // 64-byte blocks to transform and to invert, per tile
};

/// Of transforms of tiles whose group holds so many bytes. Extents with a prime factor above 7 take longer.
double transform_rate(const Extent3& tile, double held, const MachineModel& machine) {
  const auto l2 = static_cast<double>(machine.l2_bytes);
  const double spectrum = 128.0 * static_cast<double>(tile.z * tile.y * (tile.x / 2 + 1));
  // From spectra of 0.28 of the L2 to 0.53.
  const double outgrown = std::clamp((spectrum / l2 - 0.28) / 0.25, 0.0, 1.0);
  // Either the tile does not fit or its group: what has left the L2 already cannot leave it again.
  const double spilled = std::clamp(1 - spilled_share * (held / l2 - 2), least_spilled, 1.0);
  double efficiency =
      std::min(best_transform + outgrown * (worst_transform - best_transform), best_transform * spilled);
  if (tile.x > register_points) efficiency *= long_x_share;
  if (std::max(tile.z, tile.y) > register_points) efficiency *= long_zy_share;
  for (int axis = 0; axis < 3; ++axis) efficiency *= tile[axis] % 11 == 0 || tile[axis] % 13 == 0 ? 0.94 : 1;
  return efficiency * machine.gflops_per_core * 1e9;
}

/// Seconds per byte of memory that holds so much and is read by one core of several.
double seconds_per_byte(double bytes, const MachineModel& machine) {
  if (bytes <= 0.5 * static_cast<double>(machine.l2_bytes)) return 0;
  const bool cached = bytes <= 0.6 * static_cast<double>(machine.l3_bytes);
  return 1e-9 / (cached ? machine.l3_gb_per_s / 2 : machine.dram_gb_per_s / 2);
}

class Model {
 public:
  Model(const ConvProblem& p, Direction direction, const MachineModel& machine)
      : problem_(p), direction_(direction), machine_(machine) {
    const bool to_input = direction == Direction::backward_data;
    const bool depthwise = p.groups > 1;
    domain_ = to_input ? p.input : p.output();
    const index_t terms = to_input ? p.out_channels : p.in_channels;
    const index_t results = to_input ? p.in_channels : p.out_channels;
    const double block = static_cast<double>(channel_block(p.type));
    channels_.terms = depthwise ? 1 : static_cast<double>(terms);
    // Few channels of x are transformed with tiles in the lanes.
    few_ = !to_input && !depthwise && 2 * terms < channel_block(p.type) && p.x_layout == Layout::plain;
    channels_.in_blocks = few_ ? static_cast<double>(terms) / block : std::ceil(static_cast<double>(terms) / block);
    channels_.out_blocks = std::ceil(static_cast<double>(results) / block);
    channels_.lanes = channels_.out_blocks * block;
    element_ = static_cast<double>(size_of(p.type));
  }

  /// Whether tiles go through all stages in groups: sums over all tiles and single channels do not.
  bool grouped() const { return direction_ != Direction::backward_weights && problem_.groups == 1; }
  /// Tiles longer than needed to cover an axis at once are of no use.
  bool useful(int axis, index_t tile) const {
    const index_t kernel = problem_.kernel[axis];
    if (kernel == 1) return tile == 1;
    const index_t shorter = *std::find_if(extents.begin(), extents.end(), [&](index_t e) {
      return e >= kernel + domain_[axis] - 1 || (e >= kernel && covers(axis, e)) || e == extents.back();
    });
    return tile >= kernel && tile <= shorter;
  }

  /// Whether one tile yields a whole axis of dx: what would wrap around is the zeros beside dy.
  bool covers(int axis, index_t tile) const {
    return direction_ == Direction::backward_data && problem_.groups == 1 &&
           tile >= domain_[axis] + std::max(problem_.pad_before[axis], problem_.pad_after[axis]);
  }

  TiledWay way(const Extent3& tile, index_t group) const {
    TiledWay way{.tile = tile, .valid = tile - problem_.kernel + Extent3::all(1), .domain = domain_, .group = group};
    for (int axis = 0; axis < 3; ++axis) {
      if (covers(axis, tile[axis])) way.valid[axis] = domain_[axis];
      way.count[axis] = (domain_[axis] + way.valid[axis] - 1) / way.valid[axis];
    }
    way.seconds = seconds(way, static_cast<double>(group));
    return way;
  }

 private:
  double seconds(const TiledWay& way, double group) const {
    const Extent3& t = way.tile;
    const double points = static_cast<double>(t.z * t.y * t.x);
    const double frequencies = static_cast<double>(t.z * t.y * (t.x / 2 + 1));
    const double tiles = static_cast<double>(problem_.batch * way.count.z * way.count.y * way.count.x);
    const double block = static_cast<double>(channel_block(problem_.type));
    const double peak = machine_.gflops_per_core * 1e9 * 4 / element_;
    const double transform = 2.5 * points * std::max(1.0, std::log2(points)) * block;
    const double weights = channels_.terms * channels_.out_blocks;
    const double kernels = weights * transform * kernel_share / (kernel_efficiency * peak);
    const double pair_bytes = 2 * element_ * frequencies;
    const double w_bytes = pair_bytes * channels_.terms * channels_.lanes;
    const double tile_bytes = pair_bytes * block * (channels_.in_blocks + channels_.out_blocks);
    const double multiplications = 8 * tiles * frequencies * channels_.terms * channels_.lanes / peak;
    if (direction_ == Direction::backward_weights) {
      const double products = multiplications / product_efficiency(channels_.terms);
      const double rate = transform_rate(t, tile_bytes, machine_) * 4 / element_;
      // Both sides are transformed; sums travel once per chunk, spectra to memory and back.
      const double transforms =
          tiles * (channels_.in_blocks + channels_.out_blocks) * (transform / rate + tile_seconds);
      const double chunks = std::max(1.0, tiles * tile_bytes / chunk_bytes);
      const double bytes =
          2 * w_bytes * chunks * seconds_per_byte(w_bytes, machine_) +
          2 * tiles * tile_bytes * seconds_per_byte(std::min(tiles * tile_bytes, chunk_bytes), machine_);
      return transforms + kernels + std::max(products, bytes) + 0.3 * std::min(products, bytes);
    }
    group = std::min(group, tiles_of_sample(way));
    // Of a depthwise convolution every channel block goes its way alone, beside the spectrum of its weights.
    const double held = problem_.groups > 1 ? 2 * pair_bytes * block : group * tile_bytes;
    const double rate = transform_rate(t, held / 2, machine_) * 4 / element_;
    const double transforms =
        tiles * (channels_.in_blocks + cropped_share * channels_.out_blocks) * (transform / rate + tile_seconds);
    const double rounds = static_cast<double>(problem_.batch) * std::ceil(tiles_of_sample(way) / group);
    const double w_time = w_bytes * seconds_per_byte(w_bytes, machine_);
    const double products = multiplications / product_efficiency(group);
    const double spectra = 2 * tiles * tile_bytes * seconds_per_byte(held, machine_);
    const double traffic = rounds * w_time;
    const double calls =
        rounds * static_cast<double>(t.y * (t.x / 2 + 1)) * (1 + channels_.in_blocks + channels_.out_blocks);
    return kernels + w_time +
           (1 + idle_share * uneven(way, group)) * (transforms + spectra + std::max(products, traffic) +
                                                    0.3 * std::min(products, traffic) + calls * block_seconds);
  }

  static double tiles_of_sample(const TiledWay& way) {
    return static_cast<double>(way.count.z * way.count.y * way.count.x);
  }

  /// How much longer the busier one of two workers has to do than half of the tiles. Groups are of one sample, and the
  /// last ones are what remains.
  double uneven(const TiledWay& way, double group) const {
    const double tiles = tiles_of_sample(way);
    // Few channels have tiles in the lanes: as many as there are lanes go together, however few are multiplied at once.
    const double together = few_ ? static_cast<double>(channel_block(problem_.type)) : group;
    const double whole = std::floor(tiles / together), rest = tiles - whole * together;
    const double batch = static_cast<double>(problem_.batch);
    double busier = std::ceil(whole * batch / 2) * together, other = whole * batch * together - busier;
    for (index_t sample = 0; sample < problem_.batch && rest > 0; ++sample) {
      other += rest;
      if (other > busier) std::swap(busier, other);
    }
    return 2 * busier / (tiles * batch) - 1;
  }

  static constexpr double chunk_bytes = 32e6;

  const ConvProblem& problem_;
  Direction direction_;
  const MachineModel& machine_;
  Extent3 domain_{};
  Channels channels_{};
  bool few_ = false;
  double element_ = 4;
};

/// Every way that is looked at, each once, the best first.
std::vector<TiledWay> all_ways(const ConvProblem& problem, const Model& model) {
  std::set<std::array<index_t, 3>> seen;
  std::vector<TiledWay> ways;
  const auto consider = [&](Extent3 tile) {
    for (int axis = 0; axis < 3; ++axis) {
      if (problem.kernel[axis] == 1) tile[axis] = 1;
      if (!model.useful(axis, tile[axis])) return;
    }
    if (!seen.insert({tile.z, tile.y, tile.x}).second) return;
    for (const index_t group : groups) {
      if (group == 1 || model.grouped()) ways.push_back(model.way(tile, group));
    }
  };
  const auto best = [&] {
    return *std::min_element(ways.begin(), ways.end(),
                             [](const TiledWay& a, const TiledWay& b) { return a.seconds < b.seconds; });
  };
  // Tiles of one extent first, cut where an axis is shorter; then one axis at a time.
  for (const index_t extent : extents) {
    Extent3 tile;
    for (int axis = 0; axis < 3; ++axis) {
      tile[axis] = problem.kernel[axis] == 1 ? 1 : std::max(extent, problem.kernel[axis]);
      while (tile[axis] > problem.kernel[axis] && tile[axis] > 1 && !model.useful(axis, tile[axis])) --tile[axis];
    }
    consider(tile);
  }
  for (int round = 0; round < 2; ++round) {
    for (int axis = 0; axis < 3; ++axis) {
      const Extent3 start = best().tile;
      for (const index_t extent : extents) {
        Extent3 tile = start;
        tile[axis] = extent;
        consider(tile);
      }
    }
  }
  std::stable_sort(ways.begin(), ways.end(),
                   [](const TiledWay& a, const TiledWay& b) { return a.seconds < b.seconds; });
  return ways;
}

/// Whether measuring one of them says what the other one would take.
bool alike(const TiledWay& a, const TiledWay& b) {
  const auto factor = [](index_t m, index_t n) {
    return static_cast<double>(std::max(m, n)) / static_cast<double>(std::min(m, n));
  };
  bool same = factor(a.group, b.group) < 2;
  for (int axis = 0; axis < 3; ++axis) same = same && factor(a.tile[axis], b.tile[axis]) < 1.2;
  return same;
}

}  // namespace

std::vector<TiledWay> rank_tiled_ways(const ConvProblem& problem, Direction direction, const MachineModel& machine,
                                      std::size_t most) {
  const Model model(problem, direction, machine);
  std::vector<TiledWay> ranked;
  for (const TiledWay& way : all_ways(problem, model)) {
    if (ranked.size() == most) break;
    const auto like = [&](const TiledWay& better) { return alike(better, way); };
    if (std::none_of(ranked.begin(), ranked.end(), like)) ranked.push_back(way);
  }
  return ranked;
}

TiledWay tiled_way(const ConvProblem& problem, Direction direction, const MachineModel& machine, const Extent3& tile,
                   index_t group) {
  for (int axis = 0; axis < 3; ++axis) {
    const index_t kernel = problem.kernel[axis];
    if (tile[axis] >= kernel && (kernel > 1 ? tile[axis] <= extents.back() : tile[axis] == 1)) continue;
    throw InvalidArgument(
        fmt::format("a tile of {} cannot serve a kernel of {}: along each axis it has as many voxels "
                    "at least and {} at most, but 1 where the kernel has 1",
                    to_string(tile), to_string(problem.kernel), extents.back()));
  }
  if (group < 1 || group > groups.back()) {
    throw InvalidArgument(fmt::format("{} tiles in a group: give 1 to {}", group, groups.back()));
  }
  return Model(problem, direction, machine).way(tile, group);
}

}  // namespace convolume::plan
