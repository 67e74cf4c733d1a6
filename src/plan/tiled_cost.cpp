#include "plan/tiled_cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

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
constexpr double kernel_efficiency = 0.2, kernel_share = 0.4;
constexpr double cropped_share = 0.75;          // of an inverse's operations, where only the valid part is wanted
constexpr double tile_seconds = 1e-6;           // setting up one tile of one channel block
constexpr double most_spectra_bytes = 1 << 28;  // of x and dy, that one direction leaves to another
constexpr double block_seconds = 1e-7;          // a call for one frequency block of a group: products, lines along Z

struct Channels {
  double terms, lanes;           // of the products
  double in_blocks, out_blocks;  // 64-byte blocks to transform and to invert, per tile
};

double blocks_of(index_t channels, DataType type) {
  const index_t block = channel_block(type);
  // Few channels are transformed with tiles in the lanes.
  if (channels < block / 2) return static_cast<double>(channels) / static_cast<double>(block);
  return static_cast<double>((channels + block - 1) / block);
}

/// Of transforms of tiles whose group holds so many bytes. Extents with a prime factor above 7 take longer.
double transform_rate(const Extent3& tile, double held, const MachineModel& machine) {
  const auto l2 = static_cast<double>(machine.l2_bytes);
  const double spectrum = 128.0 * static_cast<double>(tile.z * tile.y * (tile.x / 2 + 1));
  // From spectra of 0.28 of the L2 to 0.53.
  const double outgrown = std::clamp((spectrum / l2 - 0.28) / 0.25, 0.0, 1.0);
  double efficiency = best_transform + outgrown * (worst_transform - best_transform);
  efficiency *= std::clamp(1 - spilled_share * (held / l2 - 2), least_spilled, 1.0);
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
  /// `shared`: with the tiles, and the spectra, of the other directions.
  Model(const ConvProblem& p, Direction direction, bool shared, const MachineModel& machine)
      : lattices_(p), problem_(lattices_.dense), direction_(direction), shared_(shared), machine_(machine) {
    const bool to_input = direction == Direction::backward_data;
    const bool depthwise = p.groups > 1;
    domain_ = to_input && !shared ? problem_.input : problem_.output();
    const index_t terms = to_input ? p.out_channels : p.in_channels;
    const index_t results = to_input ? p.in_channels : p.out_channels;
    const double block = static_cast<double>(channel_block(p.type));
    channels_.terms = depthwise ? 1 : static_cast<double>(terms);
    channels_.in_blocks = depthwise ? std::ceil(static_cast<double>(terms) / block) : blocks_of(terms, p.type);
    channels_.out_blocks = std::ceil(static_cast<double>(results) / block);
    // Of x every phase has channels of its own.
    const auto phases = static_cast<double>(lattices_.phases());
    (to_input ? channels_.out_blocks : channels_.in_blocks) *= phases;
    if (!to_input) channels_.terms *= phases;
    channels_.lanes = channels_.out_blocks * block;
    element_ = static_cast<double>(size_of(p.type));
  }

  const Extent3& domain() const { return domain_; }
  const Extent3& kernel() const { return problem_.kernel; }
  /// Tiles longer than needed to cover an axis at once are of no use.
  bool useful(int axis, index_t tile) const {
    const index_t kernel = problem_.kernel[axis];
    if (kernel == 1) return tile == 1;
    const index_t shorter = *std::find_if(extents.begin(), extents.end(), [&](index_t e) {
      return e >= kernel + domain_[axis] - 1 || (e >= kernel && covers(axis, e)) || e == extents.back();
    });
    return tile >= kernel && tile <= shorter;
  }

  /// Of x and dy, all tiles.
  double spectra_bytes(const TiledWay& way) const {
    const Parts p = parts(way);
    return p.tiles * p.tile_bytes;
  }

  /// Whether one tile yields a whole axis of dx: what would wrap around is the zeros beside dy.
  bool covers(int axis, index_t tile) const {
    return direction_ == Direction::backward_data && problem_.groups == 1 && !shared_ &&
           tile >= domain_[axis] + std::max<index_t>({0, problem_.pad_before[axis], problem_.pad_after[axis]});
  }

  TiledWay way(const Extent3& tile) const {
    TiledWay way{.tile = tile, .valid = tile - problem_.kernel + Extent3::all(1), .domain = domain_};
    way.overlap_add = shared_ && direction_ == Direction::backward_data;
    for (int axis = 0; axis < 3; ++axis) {
      if (covers(axis, tile[axis])) way.valid[axis] = domain_[axis];
      way.count[axis] = (domain_[axis] + way.valid[axis] - 1) / way.valid[axis];
    }
    way.seconds = -1;
    for (const index_t group : groups) {
      const double seconds = this->seconds(way, group);
      if (way.seconds >= 0 && way.seconds <= seconds) continue;
      way.seconds = seconds;
      way.group = group;
    }
    return way;
  }

 private:
  /// What the terms of a way are made of.
  struct Parts {
    double tiles, frequencies, transform, kernels, w_bytes, tile_bytes, pair_bytes, multiplications;
  };

  Parts parts(const TiledWay& way) const {
    const Extent3& t = way.tile;
    const double points = static_cast<double>(t.z * t.y * t.x);
    const double block = static_cast<double>(channel_block(problem_.type));
    Parts p{};
    p.frequencies = static_cast<double>(t.z * t.y * (t.x / 2 + 1));
    p.tiles = static_cast<double>(problem_.batch * way.count.z * way.count.y * way.count.x);
    p.transform = 2.5 * points * std::max(1.0, std::log2(points)) * block;
    p.kernels = channels_.terms * channels_.out_blocks * p.transform * kernel_share / (kernel_efficiency * peak());
    p.pair_bytes = 2 * element_ * p.frequencies;
    p.w_bytes = p.pair_bytes * channels_.terms * channels_.lanes;
    p.tile_bytes = p.pair_bytes * block * (channels_.in_blocks + channels_.out_blocks);
    p.multiplications = 8 * p.tiles * p.frequencies * channels_.terms * channels_.lanes / peak();
    return p;
  }

  double seconds(const TiledWay& way, index_t group) const {
    return direction_ == Direction::backward_weights ? sums_seconds(way) : voxels_seconds(way, group);
  }

  /// Of the direction that sums over tiles.
  double sums_seconds(const TiledWay& way) const {
    const Parts p = parts(way);
    const double products = p.multiplications / product_efficiency(channels_.terms);
    if (shared_) {
      const double bytes = p.tiles * p.tile_bytes * seconds_per_byte(p.tiles * p.tile_bytes, machine_) +
                           p.w_bytes * seconds_per_byte(p.w_bytes, machine_);
      return p.kernels + std::max(products, bytes) + 0.3 * std::min(products, bytes);
    }
    const double rate = transform_rate(way.tile, p.tile_bytes, machine_) * 4 / element_;
    // Both sides are transformed; sums travel once per chunk, spectra to memory and back.
    const double transforms =
        p.tiles * (channels_.in_blocks + channels_.out_blocks) * (p.transform / rate + tile_seconds);
    const double chunks = std::max(1.0, p.tiles * p.tile_bytes / chunk_bytes);
    const double bytes =
        2 * p.w_bytes * chunks * seconds_per_byte(p.w_bytes, machine_) +
        2 * p.tiles * p.tile_bytes * seconds_per_byte(std::min(p.tiles * p.tile_bytes, chunk_bytes), machine_);
    return transforms + p.kernels + std::max(products, bytes) + 0.3 * std::min(products, bytes);
  }

  double voxels_seconds(const TiledWay& way, index_t group) const {
    const Parts p = parts(way);
    const double block = static_cast<double>(channel_block(problem_.type));
    const Grouping grouping = grouping_of(way, group);
    // Of a depthwise convolution every channel block goes its way alone, beside the spectrum of its weights.
    const double held = problem_.groups > 1 ? 2 * p.pair_bytes * block : grouping.tiles * p.tile_bytes;
    const double rate = transform_rate(way.tile, held / 2, machine_) * 4 / element_;
    const double out_share = way.overlap_add ? 1 : cropped_share;
    double transforms =
        p.tiles * (channels_.in_blocks + out_share * channels_.out_blocks) * (p.transform / rate + tile_seconds);
    if (shared_) transforms += shared_seconds(way, p);
    const double w_time = p.w_bytes * seconds_per_byte(p.w_bytes, machine_);
    const double products = p.multiplications / product_efficiency(grouping.tiles);
    const double spectra = 2 * p.tiles * p.tile_bytes * seconds_per_byte(held, machine_);
    const double traffic = grouping.rounds * w_time;
    const double calls = grouping.rounds * static_cast<double>(way.tile.y * (way.tile.x / 2 + 1)) *
                         (1 + channels_.in_blocks + channels_.out_blocks);
    return p.kernels + w_time +
           (1 + grouping.idle) * (transforms + spectra + std::max(products, traffic) +
                                  0.3 * std::min(products, traffic) + calls * block_seconds);
  }

  /// Spectra that are kept go to memory; voxels of dx that tiles share are read again.
  double shared_seconds(const TiledWay& way, const Parts& p) const {
    const double block_bytes = element_ * static_cast<double>(channel_block(problem_.type));
    double bytes = p.tiles * p.pair_bytes * static_cast<double>(channel_block(problem_.type)) * channels_.in_blocks;
    if (way.overlap_add) bytes += p.tiles * static_cast<double>(way.tile.volume()) * block_bytes * channels_.out_blocks;
    return bytes * 1e-9 / (machine_.dram_gb_per_s / 2);
  }

  /// Groups of tiles: how many tiles each, how many groups, and the share of time that one of two workers waits because
  /// groups cannot be shared evenly, or have to follow others; half of it is taken to be filled by other work.
  struct Grouping {
    double tiles, rounds, idle;
  };
  Grouping grouping_of(const TiledWay& way, index_t group) const {
    const auto tiles = static_cast<double>(problem_.batch * way.count.volume());
    if (!way.overlap_add) {
      const double rounds = std::ceil(tiles / static_cast<double>(group));
      return {.tiles = static_cast<double>(group),
              .rounds = rounds,
              .idle = 0.5 * (2 * std::ceil(rounds / 2) / rounds - 1)};
    }
    const OverlapOrder order(way.count, group);
    const Extent3 pieces = order.pieces();
    const auto rounds = static_cast<double>(problem_.batch * pieces.volume());
    // Two fronts of layers; classes of a layer's pieces follow each other.
    const index_t classes = (pieces.y > 1 ? 2 : 1) * (pieces.x > 1 ? 2 : 1);
    const auto depth = static_cast<double>((pieces.z / 2 + 1) * classes);
    const double steps = std::max(std::ceil(rounds / 2), depth);
    return {.tiles = tiles / rounds, .rounds = rounds, .idle = 0.5 * (2 * steps / rounds - 1)};
  }

  double peak() const { return machine_.gflops_per_core * 1e9 * 4 / element_; }

  static constexpr double chunk_bytes = 32e6;

  plan::Lattices lattices_;
  const ConvProblem& problem_;  // of the lattices
  Direction direction_;
  bool shared_;
  const MachineModel& machine_;
  Extent3 domain_{};
  Channels channels_{};
  double element_ = 4;
};

/// Calls consider(tile) with tiles of one extent, cut where an axis is shorter; then with one axis at a time of the
/// best tile so far.
template <class Useful, class Consider, class Best>
void search_tiles(const Extent3& kernel, const Useful& useful, const Consider& consider, const Best& best) {
  const auto try_tile = [&](Extent3 tile) {
    for (int axis = 0; axis < 3; ++axis) {
      if (kernel[axis] == 1) tile[axis] = 1;
      if (!useful(axis, tile[axis])) return;
    }
    consider(tile);
  };
  for (const index_t extent : extents) {
    Extent3 tile;
    for (int axis = 0; axis < 3; ++axis) {
      tile[axis] = kernel[axis] == 1 ? 1 : std::max(extent, kernel[axis]);
      while (tile[axis] > kernel[axis] && tile[axis] > 1 && !useful(axis, tile[axis])) --tile[axis];
    }
    try_tile(tile);
  }
  for (int round = 0; round < 2; ++round) {
    for (int axis = 0; axis < 3; ++axis) {
      const Extent3 start = best();
      for (const index_t extent : extents) {
        Extent3 tile = start;
        tile[axis] = extent;
        try_tile(tile);
      }
    }
  }
}

/// The same tiles of y in all directions. Without a tile where none serves.
TiledWays shared_ways(const ConvProblem& problem, const MachineModel& machine) {
  const Model forward(problem, Direction::forward, true, machine);
  const Model data(problem, Direction::backward_data, true, machine);
  const Model weights(problem, Direction::backward_weights, true, machine);
  TiledWays best;
  const auto consider = [&](const Extent3& tile) {
    for (int axis = 0; axis < 3; ++axis) {
      // Further tiles would meet in one voxel.
      if (tile[axis] < 2 * (problem.kernel[axis] - 1)) return;
    }
    const TiledWays ways{forward.way(tile), data.way(tile), weights.way(tile), true};
    if (forward.spectra_bytes(ways.forward) > most_spectra_bytes) return;
    if (!best.shared || ways.seconds() < best.seconds()) best = ways;
  };
  search_tiles(
      problem.kernel, [&](int axis, index_t tile) { return forward.useful(axis, tile); }, consider,
      [&] { return best.forward.tile; });
  return best;
}

}  // namespace

OverlapOrder::OverlapOrder(const Extent3& tiles, index_t group) : count(tiles) {
  if (group < count.x) {
    const index_t parts = (count.x + group - 1) / group;
    piece = {1, 1, (count.x + parts - 1) / parts};
  } else {
    const index_t parts = (count.y * count.x + group - 1) / group;
    piece = {1, (count.y + parts - 1) / parts, count.x};
  }
}

Extent3 OverlapOrder::pieces() const noexcept {
  return {count.z, (count.y + piece.y - 1) / piece.y, (count.x + piece.x - 1) / piece.x};
}

bool OverlapOrder::goes_before(int axis, index_t a, index_t b) const noexcept {
  const auto key = [&](index_t i) { return axis == 0 ? std::min(i, count.z - 1 - i) : i / piece[axis] % 2; };
  return key(a) != key(b) ? key(a) < key(b) : a < b;
}

std::vector<index_t> OverlapOrder::layers() const {
  std::vector<index_t> all(static_cast<std::size_t>(count.z));
  std::iota(all.begin(), all.end(), index_t{0});
  std::sort(all.begin(), all.end(), [&](index_t a, index_t b) { return goes_before(0, a, b); });
  return all;
}

TiledWay choose_tiled_way(const ConvProblem& problem, Direction direction, const MachineModel& machine) {
  const Model model(problem, direction, false, machine);
  TiledWay best;
  best.seconds = -1;
  search_tiles(
      model.kernel(), [&](int axis, index_t tile) { return model.useful(axis, tile); },
      [&](const Extent3& tile) {
        const TiledWay way = model.way(tile);
        if (best.seconds < 0 || way.seconds < best.seconds) best = way;
      },
      [&] { return best.tile; });
  return best;
}

bool exchanges_zy(const ConvProblem& problem) { return problem.kernel.z == 1 && problem.kernel.y > 1; }

ConvProblem exchange_zy(ConvProblem p) {
  for (Extent3* extent : {&p.input, &p.kernel, &p.stride, &p.dilation, &p.pad_before, &p.pad_after}) {
    std::swap(extent->z, extent->y);
  }
  return p;
}

TiledWays choose_tiled_ways(const ConvProblem& problem, bool may_share, const MachineModel& machine) {
  const bool exchanged = exchanges_zy(problem);
  const TiledWays apart{
      choose_tiled_way(problem, Direction::forward, machine),
      choose_tiled_way(problem, Direction::backward_data, machine),
      choose_tiled_way(exchanged ? exchange_zy(problem) : problem, Direction::backward_weights, machine), false};
  // Few channels of x have tiles in the lanes, and are soon transformed again. Lattices of x begin at different places.
  const Lattices lattices(problem);
  if (exchanged || !may_share || lattices.residues() * lattices.phases() > 1) return apart;
  if (blocks_of(problem.in_channels, problem.type) < 1) return apart;
  const TiledWays shared = shared_ways(problem, machine);
  return shared.shared && shared.seconds() < apart.seconds() ? shared : apart;
}

}  // namespace convolume::plan
