#include "plan/tiled_cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "plan/cost_constants.hpp"
#include "plan/overlap_order.hpp"

namespace convolume::plan {
namespace {

// Extents whose transforms take few operations per voxel.
constexpr std::array<index_t, 32> extents{2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 18,
                                          20, 21, 22, 24, 25, 26, 27, 28, 30, 32, 36, 40, 44, 48, 56, 64};
constexpr std::array<index_t, 9> groups{1, 2, 3, 4, 6, 8, 12, 16, 24};

struct Channels {
  double terms, lanes;           // reduction channels and lanes of the products
  double in_blocks, out_blocks;  // 64-byte blocks to transform and to invert, per tile
};

/// Returns whether x has so few channels that, if it is plain, tiles instead of channels fill the lanes.
bool few_channels(const ConvProblem& p) { return p.groups == 1 && 2 * p.in_channels < channel_block(p.type); }

/// Returns whether Z can be unrolled into channels. Each tap along Z then transforms x again, which is cheap only if
/// tiles share lanes.
bool can_unfold(const ConvProblem& p, Direction direction) {
  return direction != Direction::backward_data && few_channels(p) && p.x_layout == Layout::plain && p.kernel.z > 1;
}

/// Returns the rate (operations per second) of transforms of tiles whose group holds `held` bytes. Extents with a prime
/// factor above 7 take longer.
double transform_rate(const Extent3& tile, double held, const MachineModel& machine) {
  const auto l2 = static_cast<double>(machine.l2_bytes);
  const double spectrum = 128.0 * static_cast<double>(tile.z * tile.y * (tile.x / 2 + 1));
  // Rises from 0 to 1 for spectra from 0.28 to 0.53 of the L2. For planes, whose two passes exchange data through the
  // L1, it rises from one to three times the L1.
  const double outgrown = tile.z == 1 ? std::clamp((spectrum / static_cast<double>(machine.l1_bytes) - 1) / 2, 0.0, 1.0)
                                      : std::clamp((spectrum / l2 - 0.28) / 0.25, 0.0, 1.0);
  // Either the tile or its group exceeds the L2. Data that has left the L2 cannot leave it again, so only the larger
  // loss counts.
  const double spilled = std::clamp(1 - spilled_share * (held / l2 - 2), least_spilled_share, 1.0);
  double efficiency = std::min(best_transform_share + outgrown * (worst_transform_share - best_transform_share),
                               best_transform_share * spilled);
  if (tile.x > register_points) efficiency *= long_x_share;
  if (std::max(tile.z, tile.y) > register_points) efficiency *= long_zy_share;
  for (int axis = 0; axis < 3; ++axis) efficiency *= tile[axis] % 11 == 0 || tile[axis] % 13 == 0 ? 0.94 : 1;
  return efficiency * machine.gflops_per_core * 1e9;
}

/// Returns seconds per byte of a buffer of `bytes` bytes, if one of several cores reads it.
double seconds_per_byte(double bytes, const MachineModel& machine) {
  if (bytes <= 0.5 * static_cast<double>(machine.l2_bytes)) return 0;
  const bool cached = bytes <= 0.6 * static_cast<double>(machine.l3_bytes);
  return 1e-9 / (cached ? machine.l3_gb_per_s / 2 : machine.dram_gb_per_s / 2);
}

class Model {
 public:
  /// `shared`: the tiles and spectra are those of the other directions. `unfolded`: see TiledWay::unfolded.
  Model(const ConvProblem& p, Direction direction, bool shared, bool unfolded, const MachineModel& machine)
      : lattices_(p, unfolded),
        problem_(lattices_.dense),
        direction_(direction),
        shared_(shared),
        unfolded_(unfolded),
        machine_(machine) {
    const bool to_input = direction == Direction::backward_data;
    const bool depthwise = p.groups > 1;
    domain_ = to_input && !shared ? problem_.input : problem_.output();
    const index_t terms = to_input ? p.out_channels : p.in_channels;
    const index_t results = to_input ? p.in_channels : p.out_channels;
    const double block = static_cast<double>(channel_block(p.type));
    channels_.terms = depthwise ? 1 : static_cast<double>(terms);
    few_ = !to_input && few_channels(p) && p.x_layout == Layout::plain;
    channels_.in_blocks = few_ ? static_cast<double>(terms) / block : std::ceil(static_cast<double>(terms) / block);
    channels_.out_blocks = std::ceil(static_cast<double>(results) / block);
    // Every phase of x has its own channels.
    const auto phases = static_cast<double>(lattices_.phases());
    (to_input ? channels_.out_blocks : channels_.in_blocks) *= phases;
    if (!to_input) channels_.terms *= phases;
    channels_.lanes = channels_.out_blocks * block;
    element_ = static_cast<double>(size_of(p.type));
  }

  /// Returns whether tiles go through all stages in groups. The weight gradient and depthwise convolutions do not use
  /// groups.
  bool grouped() const { return direction_ != Direction::backward_weights && problem_.groups == 1; }
  const Extent3& kernel() const { return problem_.kernel; }
  /// Returns whether a tile extent is worth considering. Extents longer than one that covers the axis with one tile are
  /// not.
  bool useful(int axis, index_t tile) const {
    const index_t kernel = problem_.kernel[axis];
    if (kernel == 1) return tile == 1;
    const index_t shorter = *std::find_if(extents.begin(), extents.end(), [&](index_t e) {
      return e >= kernel + domain_[axis] - 1 || (e >= kernel && covers(axis, e)) || e == extents.back();
    });
    return tile >= kernel && tile <= shorter;
  }

  /// Returns the bytes of the spectra of x and dy, over all tiles.
  double spectra_bytes(const TiledWay& way) const {
    const Parts p = parts(way);
    return p.tiles * p.tile_bytes;
  }

  /// Returns whether one tile yields the whole axis of dx. Then only the zeros beside dy wrap around.
  bool covers(int axis, index_t tile) const {
    return direction_ == Direction::backward_data && problem_.groups == 1 && !shared_ &&
           tile >= domain_[axis] + std::max<index_t>({0, problem_.pad_before[axis], problem_.pad_after[axis]});
  }

  TiledWay way(const Extent3& tile, index_t group) const {
    TiledWay way{.tile = tile, .valid = tile - problem_.kernel + Extent3::all(1), .domain = domain_, .group = group};
    way.unfolded = unfolded_;
    way.overlap_add = shared_ && direction_ == Direction::backward_data;
    for (int axis = 0; axis < 3; ++axis) {
      if (covers(axis, tile[axis])) way.valid[axis] = domain_[axis];
      way.count[axis] = (domain_[axis] + way.valid[axis] - 1) / way.valid[axis];
    }
    way.planes = planes_of(way);
    way.cost = direction_ == Direction::backward_weights ? sums_cost(way) : voxels_cost(way);
    return way;
  }

  /// Returns the tilings for all group sizes that are considered.
  std::vector<TiledWay> ways(const Extent3& tile) const {
    std::vector<TiledWay> all;
    for (const index_t group : groups) {
      if (group == 1 || grouped()) all.push_back(way(tile, group));
    }
    return all;
  }

 private:
  double tiles_of_layer(const TiledWay& way) const {
    return static_cast<double>(way.count.y * way.count.x * lattices_.residues());
  }
  /// Returns the number of layers of tiles whose taps share planes of x: as many as leave enough tasks. Returns 1 if
  /// empty lanes would cost more than separate transforms for each tap.
  index_t planes_of(const TiledWay& way) const {
    constexpr double tasks = 12;
    constexpr index_t least = 4, most = 16;
    if (!unfolded_ || lattices_.x_step.z != 1 || way.count.z == 1) return 1;
    const double lanes = static_cast<double>(channel_block(problem_.type));
    const double of_layer = std::ceil(tiles_of_layer(way) / lanes);
    const double layers = static_cast<double>(problem_.batch / lattices_.residues() * way.count.z);
    const auto share = static_cast<index_t>(of_layer * layers / tasks);
    const index_t planes = std::min(std::clamp(share, least, most), way.count.z);
    const double apart = tiles_of_layer(way) / lanes * static_cast<double>(lattices_.w_step.z);
    return of_layer * transforms_of_plane(planes) < apart ? planes : 1;
  }
  /// Returns how often a plane of x is transformed, including the extra planes before the first layer.
  double transforms_of_plane(index_t planes) const {
    return 1 + static_cast<double>(lattices_.w_step.z - 1) / static_cast<double>(planes);
  }
  /// Returns the number of 64-byte blocks of x to transform, per tile.
  double in_blocks(const TiledWay& way) const {
    if (way.planes == 1) return channels_.in_blocks;
    const double tiles = tiles_of_layer(way), lanes = static_cast<double>(channel_block(problem_.type));
    const double filled = tiles / (std::ceil(tiles / lanes) * lanes);
    return channels_.in_blocks / static_cast<double>(lattices_.w_step.z) * transforms_of_plane(way.planes) / filled;
  }

  /// The quantities from which the cost of a tiling is computed.
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
    p.kernels = channels_.terms * channels_.out_blocks *
                (p.transform * kernel_operations_share / (kernel_transform_share * peak()) + kernel_seconds);
    p.pair_bytes = 2 * element_ * p.frequencies;
    p.w_bytes = p.pair_bytes * channels_.terms * channels_.lanes;
    p.tile_bytes = p.pair_bytes * block * (channels_.in_blocks + channels_.out_blocks);
    p.multiplications = 8 * p.tiles * p.frequencies * channels_.terms * channels_.lanes / peak();
    return p;
  }

  bool depthwise() const { return problem_.groups > 1; }
  /// Returns the bytes that a channel block of a depthwise convolution needs: it is handled separately, with the
  /// spectrum of its weights.
  double own_bytes(const Parts& p) const {
    return 2 * p.pair_bytes * static_cast<double>(channel_block(problem_.type));
  }
  static double setting_up(const TiledWay& way) { return way.tile.z == 1 ? plane_seconds : tile_seconds; }

  /// Returns the time of a product stage. Most of the shorter of compute and memory time is hidden behind the longer
  /// one.
  static double overlapped(double computing, double moving) {
    return std::max(computing, moving) + 0.3 * std::min(computing, moving);
  }
  /// Returns the bytes that tiles read and write in tensors.
  double voxel_bytes(const TiledWay& way, const Parts& p) const {
    const double block_bytes = element_ * static_cast<double>(channel_block(problem_.type));
    const auto read = static_cast<double>(way.overlap_add ? way.valid.volume() : way.tile.volume());
    const auto written = static_cast<double>(way.overlap_add ? way.tile.volume() : way.valid.volume());
    return p.tiles * block_bytes * (read * channels_.in_blocks + written * channels_.out_blocks);
  }

  /// Returns the cost of the weight gradient, which sums over tiles.
  TiledCost sums_cost(const TiledWay& way) const {
    const Parts p = parts(way);
    const double spectra = p.tiles * p.tile_bytes;
    const double products = p.multiplications / tile_product_share(channels_.terms);
    const auto l2 = static_cast<double>(machine_.l2_bytes);
    if (shared_) {
      const double seconds =
          spectra * seconds_per_byte(spectra, machine_) + p.w_bytes * seconds_per_byte(p.w_bytes, machine_);
      return {.weights = {p.kernels, p.w_bytes}, .products = {overlapped(products, seconds), spectra + p.w_bytes}};
    }
    const double rate = transform_rate(way.tile, depthwise() ? own_bytes(p) : p.tile_bytes, machine_) * 4 / element_;
    const auto transforms_of = [&](double blocks) {
      return p.tiles * (blocks + channels_.out_blocks) * (p.transform / rate + setting_up(way));
    };
    const double transforms = transforms_of(channels_.in_blocks);
    const double voxels = voxel_bytes(way, p);
    // The sums and the spectra of one channel block stay in the L2.
    if (depthwise()) return {.weights = {p.kernels, 0}, .transforms = {transforms, voxels}, .products = {products, 0}};
    // If x has few channels, parts of the tiles have separate sums in the L2.
    if (few_ && p.w_bytes <= l2) {
      const double spilled = spilled_sums(p);
      return {.weights = {p.kernels, p.w_bytes},
              .transforms = {transforms_of(in_blocks(way)), voxels},
              .products = {products + staged_seconds(way, p) + spilled * 1e-9 / (machine_.l3_gb_per_s / 2), spilled}};
    }
    // Both sides are transformed. Sums are read and written once per chunk; spectra go to memory and back.
    const double chunks = std::max(1.0, spectra / estimated_chunk_bytes);
    const double seconds = 2 * p.w_bytes * chunks * seconds_per_byte(p.w_bytes, machine_) +
                           2 * spectra * seconds_per_byte(std::min(spectra, estimated_chunk_bytes), machine_);
    return {.weights = {separate_sums_factor * p.kernels, p.w_bytes},
            .transforms = {separate_sums_factor * transforms, voxels + spectra},
            .products = {separate_sums_factor * overlapped(products, seconds), spectra + 2 * p.w_bytes * chunks}};
  }

  TiledCost voxels_cost(const TiledWay& way) const {
    const Parts p = parts(way);
    const Grouping grouping = grouping_of(way);
    const double held = depthwise() ? own_bytes(p) : grouping.tiles * p.tile_bytes;
    const double rate = transform_rate(way.tile, held / 2, machine_) * 4 / element_;
    const double out_share = way.overlap_add ? 1 : cropped_share;
    const double spilled = depthwise() || seconds_per_byte(held, machine_) == 0 ? 0 : 2 * p.tiles * p.tile_bytes;
    StageCost transforms{
        p.tiles * (in_blocks(way) + out_share * channels_.out_blocks) * (p.transform / rate + setting_up(way)) +
            spilled * seconds_per_byte(held, machine_),
        voxel_bytes(way, p) + spilled};
    if (shared_) transforms.seconds += shared_seconds(way, p);
    if (shared_) transforms.bytes += kept_bytes(p);
    const double w_held = depthwise() ? own_bytes(p) / 2 : p.w_bytes;
    const double w_time = p.w_bytes * seconds_per_byte(w_held, machine_);
    const bool planar = way.tile.z == 1;
    // Planes have no lines along Z, and depthwise convolutions have no separate product for each frequency block.
    const double calls = planar || depthwise()
                             ? 0
                             : grouping.rounds * static_cast<double>(way.tile.y * (way.tile.x / 2 + 1)) *
                                   (1 + channels_.in_blocks + channels_.out_blocks);
    const StageCost products{
        overlapped(p.multiplications / tile_product_share(grouping.tiles), grouping.rounds * w_time) +
            staged_seconds(way, p) + calls * block_seconds,
        w_time == 0 ? 0 : grouping.rounds * p.w_bytes};
    return {.weights = {p.kernels + w_time, p.w_bytes},
            .transforms = transforms,
            .products = products,
            .idle = (grouping.idle + waiting_share) * (transforms.seconds + products.seconds)};
  }

  /// Returns the bytes of sums that go to the L3 and back, once per step of a few tiles, if the sums leave the L2.
  double spilled_sums(const Parts& p) const {
    const double tile = p.pair_bytes * channels_.lanes;
    const auto step = static_cast<double>(tiles_of_step(tile, channel_block(problem_.type), machine_));
    return p.w_bytes + step * tile > static_cast<double>(machine_.l2_bytes) ? 2 * p.w_bytes * p.tiles / step : 0;
  }

  /// Returns the time to write planes to the L2 on one side of the products and to read them on the other.
  double staged_seconds(const TiledWay& way, const Parts& p) const {
    if (way.tile.z > 1) return 0;
    return 2 * p.tiles * p.pair_bytes * channels_.lanes * 1e-9 / (machine_.l2_gb_per_s / 2);
  }

  double kept_bytes(const Parts& p) const {
    return p.tiles * p.pair_bytes * static_cast<double>(channel_block(problem_.type)) * channels_.in_blocks;
  }
  /// Returns the time to write the kept spectra to memory, and to read again the voxels of dx that tiles share.
  double shared_seconds(const TiledWay& way, const Parts& p) const {
    const double block_bytes = element_ * static_cast<double>(channel_block(problem_.type));
    double bytes = kept_bytes(p);
    if (way.overlap_add) bytes += p.tiles * static_cast<double>(way.tile.volume()) * block_bytes * channels_.out_blocks;
    return bytes * 1e-9 / (machine_.dram_gb_per_s / 2);
  }

  /// The groups of tiles: tiles per group, number of groups, and the share of time that one of two workers waits
  /// because the groups cannot be divided evenly or must follow each other.
  struct Grouping {
    double tiles, rounds, idle;
  };
  Grouping grouping_of(const TiledWay& way) const {
    const double batch = static_cast<double>(problem_.batch), tiles = static_cast<double>(way.count.volume());
    const double all = batch * tiles;
    if (!way.overlap_add) {
      // A group lies in one sample; the last group holds the remaining tiles.
      const double group = std::min(static_cast<double>(way.group), tiles);
      // If x has few channels, tiles fill the lanes. As many tiles as there are lanes go together, even if fewer are
      // multiplied at a time.
      const double together = few_ ? static_cast<double>(channel_block(problem_.type) * way.planes) : group;
      return {.tiles = group,
              .rounds = batch * std::ceil(tiles / group),
              .idle = idle_share * (2 * busier_of_two(batch, tiles, together) / all - 1)};
    }
    // Pieces are whole rows of a layer, or parts of a row.
    const OverlapOrder order(way.count, way.group);
    const Extent3 pieces = order.pieces();
    const auto rounds = batch * static_cast<double>(pieces.volume()), piece = static_cast<double>(order.piece.volume());
    const auto runs = batch * static_cast<double>(way.count.z * (pieces.x > 1 ? way.count.y : 1));
    // Layers advance from two sides. The classes of pieces in a layer follow each other.
    const index_t classes = (pieces.y > 1 ? 2 : 1) * (pieces.x > 1 ? 2 : 1);
    const double longest = all / rounds * static_cast<double>((pieces.z / 2 + 1) * classes);
    const double busier = std::max(busier_of_two(runs, all / runs, piece), longest);
    return {.tiles = all / rounds, .rounds = rounds, .idle = idle_share * (2 * busier / all - 1)};
  }

  /// Returns the tiles of the busier of two workers. The `tiles` tiles of each of `runs` runs are taken `together` at a
  /// time; the rest is taken last.
  static double busier_of_two(double runs, double tiles, double together) {
    const double whole = std::floor(tiles / together), rest = tiles - whole * together;
    double busier = std::ceil(whole * runs / 2) * together, other = whole * runs * together - busier;
    for (double run = 0; run < runs && rest > 0; ++run) {
      other += rest;
      if (other > busier) std::swap(busier, other);
    }
    return busier;
  }

  double peak() const { return machine_.gflops_per_core * 1e9 * 4 / element_; }

  plan::Lattices lattices_;
  const ConvProblem& problem_;  // the dense problem of the components
  Direction direction_;
  bool shared_, unfolded_;
  const MachineModel& machine_;
  Extent3 domain_{};
  Channels channels_{};
  bool few_ = false;
  double element_ = 4;
};

/// Calls consider(tile) once for each tile. First come tiles of equal extents, cut if an axis is shorter. Then one axis
/// of the best tile so far is varied at a time.
template <class Useful, class Consider, class Best>
void search_tiles(const Extent3& kernel, const Useful& useful, const Consider& consider, const Best& best) {
  std::set<std::array<index_t, 3>> seen;
  const auto try_tile = [&](Extent3 tile) {
    for (int axis = 0; axis < 3; ++axis) {
      if (kernel[axis] == 1) tile[axis] = 1;
      if (!useful(axis, tile[axis])) return;
    }
    if (seen.insert({tile.z, tile.y, tile.x}).second) consider(tile);
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

double seconds_of(const TiledWay& way) { return way.cost.seconds(); }
double seconds_of(const TiledWays& ways) { return ways.seconds(); }

template <class Way>
bool faster(const Way& a, const Way& b) {
  return seconds_of(a) < seconds_of(b);
}

/// Returns every tiling that is considered.
std::vector<TiledWay> all_ways(const ConvProblem& problem, Direction direction, const MachineModel& machine) {
  std::vector<TiledWay> all;
  for (const bool unfolded : {false, true}) {
    if (unfolded && !can_unfold(problem, direction)) continue;
    const Model model(problem, direction, false, unfolded, machine);
    const auto first = static_cast<std::ptrdiff_t>(all.size());
    search_tiles(
        model.kernel(), [&](int axis, index_t tile) { return model.useful(axis, tile); },
        [&](const Extent3& tile) {
          for (const TiledWay& way : model.ways(tile)) all.push_back(way);
        },
        [&] { return std::min_element(all.begin() + first, all.end(), faster<TiledWay>)->tile; });
  }
  return all;
}

bool can_share(const ConvProblem& problem, bool may_share) {
  // If x has few channels, its transform is cheap to repeat. A plain x then has tiles in the lanes, and a blocked x
  // must give the same bits. The polyphase components of x begin at different voxels.
  const Lattices lattices(problem);
  return may_share && problem.groups == 1 && !exchanges_zy(problem) && !few_channels(problem) &&
         lattices.residues() * lattices.phases() == 1;
}

/// Returns whether at most two tiles per axis overlap at one voxel.
bool shareable(const Extent3& tile, const Extent3& kernel) {
  bool all = true;
  for (int axis = 0; axis < 3; ++axis) all = all && tile[axis] >= 2 * (kernel[axis] - 1);
  return all;
}

/// Returns the tilings that use the same tiles of y in all directions.
std::vector<TiledWays> all_shared_ways(const ConvProblem& problem, const MachineModel& machine) {
  const Model forward(problem, Direction::forward, true, false, machine);
  const Model data(problem, Direction::backward_data, true, false, machine);
  const Model weights(problem, Direction::backward_weights, true, false, machine);
  const auto best_group = [](const Model& model, const Extent3& tile) {
    const std::vector<TiledWay> ways = model.ways(tile);
    return *std::min_element(ways.begin(), ways.end(), faster<TiledWay>);
  };
  std::vector<TiledWays> all;
  search_tiles(
      problem.kernel, [&](int axis, index_t tile) { return forward.useful(axis, tile); },
      [&](const Extent3& tile) {
        if (!shareable(tile, problem.kernel)) return;
        const TiledWays ways{best_group(forward, tile), best_group(data, tile), best_group(weights, tile), true};
        if (forward.spectra_bytes(ways.forward) <= most_kept_spectra_bytes) all.push_back(ways);
      },
      [&] {
        if (all.empty()) return Extent3{};
        return std::min_element(all.begin(), all.end(), faster<TiledWays>)->forward.tile;
      });
  return all;
}

/// Returns whether two tilings are so similar that measuring one of them is enough.
bool alike(const TiledWay& a, const TiledWay& b) {
  const auto factor = [](index_t m, index_t n) {
    return static_cast<double>(std::max(m, n)) / static_cast<double>(std::min(m, n));
  };
  bool same = factor(a.group, b.group) < 2;
  for (int axis = 0; axis < 3; ++axis) same = same && factor(a.tile[axis], b.tile[axis]) < 1.2;
  return same;
}
bool alike(const TiledWays& a, const TiledWays& b) {
  return alike(a.forward, b.forward) && alike(a.data, b.data) && alike(a.weights, b.weights);
}

/// Returns at most `most` tilings, the best first, without tilings that are similar to a better one.
template <class Way>
std::vector<Way> rank(std::vector<Way> all, std::size_t most) {
  std::stable_sort(all.begin(), all.end(), faster<Way>);
  std::vector<Way> ranked;
  for (const Way& way : all) {
    if (ranked.size() == most) break;
    const auto like = [&](const Way& better) { return alike(better, way); };
    if (std::none_of(ranked.begin(), ranked.end(), like)) ranked.push_back(way);
  }
  return ranked;
}

/// Returns the problem that is tiled in a direction.
ConvProblem tiled_problem(const ConvProblem& problem, Direction direction) {
  return direction == Direction::backward_weights && exchanges_zy(problem) ? exchange_zy(problem) : problem;
}

TiledWay tiled_way(const ConvProblem& problem, Direction direction, bool shared, const MachineModel& machine,
                   const TileChoice& choice) {
  const auto& [tile, group] = choice;
  const bool unfolded = tile.z == 1 && !shared && can_unfold(problem, direction);
  const Model model(problem, direction, shared, unfolded, machine);
  for (int axis = 0; axis < 3; ++axis) {
    const index_t kernel = model.kernel()[axis];
    if (tile[axis] >= kernel && (kernel > 1 ? tile[axis] <= extents.back() : tile[axis] == 1)) continue;
    throw InvalidArgument(
        fmt::format("a tile of {} cannot serve a kernel of {}: along each axis it has as many voxels "
                    "at least and {} at most, but 1 where the kernel has 1",
                    to_string(tile), to_string(model.kernel()), extents.back()));
  }
  if (group < 1 || group > groups.back()) {
    throw InvalidArgument(fmt::format("{} tiles in a group; use 1 to {}", group, groups.back()));
  }
  return model.way(tile, group);
}

}  // namespace

index_t tiles_of_step(double tile_bytes, index_t lanes, const MachineModel& machine) {
  constexpr index_t least = 4;
  index_t step = lanes;
  while (step > least && static_cast<double>(step) * tile_bytes > static_cast<double>(machine.l2_bytes) / 2) step /= 2;
  return step;
}

bool exchanges_zy(const ConvProblem& problem) {
  return problem.kernel.z == 1 && problem.kernel.y > 1 && problem.groups == 1;
}

ConvProblem exchange_zy(ConvProblem p) {
  for (Extent3* extent : {&p.input, &p.kernel, &p.stride, &p.dilation, &p.pad_before, &p.pad_after}) {
    std::swap(extent->z, extent->y);
  }
  return p;
}

TiledWays choose_tiled_ways(const ConvProblem& problem, bool may_share, const Wanted& wanted,
                            const MachineModel& machine) {
  const TiledWays apart = rank_tiled_ways(problem, wanted, machine, 1).front();
  const std::vector<TiledWays> shared = rank_shared_ways(problem, may_share, wanted, machine, 1);
  return !shared.empty() && faster(shared.front(), apart) ? shared.front() : apart;
}

std::vector<TiledWays> rank_tiled_ways(const ConvProblem& problem, const Wanted& wanted, const MachineModel& machine,
                                       std::size_t most) {
  std::array<std::vector<TiledWay>, directions.size()> ranked;
  std::size_t ranks = 0;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    ranked[i] = rank(all_ways(tiled_problem(problem, directions[i]), directions[i], machine), most);
    ranks = std::max(ranks, ranked[i].size());
  }
  std::vector<TiledWays> together;
  const auto at = [&](std::size_t i, std::size_t place) { return ranked[i][std::min(place, ranked[i].size() - 1)]; };
  for (std::size_t place = 0; place < ranks; ++place) {
    together.push_back({at(0, place), at(1, place), at(2, place), false, wanted});
  }
  return together;
}

std::vector<TiledWays> rank_shared_ways(const ConvProblem& problem, bool may_share, const Wanted& wanted,
                                        const MachineModel& machine, std::size_t most) {
  // If one of the directions is not run, sharing spectra gains nothing.
  if (!can_share(problem, may_share) || wanted.count() < 3) return {};
  return rank(all_shared_ways(problem, machine), most);
}

TiledWays tiled_ways(const ConvProblem& problem, bool may_share, const Wanted& wanted, const MachineModel& machine,
                     const TileChoices& tiles, bool shared) {
  if (shared && !can_share(problem, may_share)) {
    throw InvalidArgument("the directions of this convolution cannot share tiles");
  }
  if (shared &&
      (!shareable(tiles[0].tile, problem.kernel) || tiles[1].tile != tiles[0].tile || tiles[2].tile != tiles[0].tile)) {
    throw InvalidArgument(
        fmt::format("shared tiles are the same in all directions, and along each axis at least twice "
                    "as long as a kernel of {}, less 2",
                    to_string(problem.kernel)));
  }
  const auto way = [&](std::size_t i) {
    return tiled_way(tiled_problem(problem, directions[i]), directions[i], shared, machine, tiles[i]);
  };
  return {way(0), way(1), way(2), shared, wanted};
}

}  // namespace convolume::plan
