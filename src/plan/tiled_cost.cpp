#include "plan/tiled_cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "plan/cost_constants.hpp"
#include "plan/overlap_order.hpp"

namespace convolume::plan {
namespace {

// Extents whose transforms take few operations per voxel.
constexpr std::array<index_t, 32> extents{2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 18,
                                          20, 21, 22, 24, 25, 26, 27, 28, 30, 32, 36, 40, 44, 48, 56, 64};
constexpr std::array<index_t, 9> groups{1, 2, 3, 4, 6, 8, 12, 16, most_tiles_of_group};

struct Channels {
  double terms, lanes;           // reduction channels and lanes of the products
  double in_blocks, out_blocks;  // 64-byte blocks to transform and to invert, per tile
};

bool few_channels(const ConvProblem& p) { return p.groups == 1 && tiles_fill_lanes(p.in_channels, p.type); }

/// Returns whether Z can be unrolled into channels. Each tap along Z then transforms x again, which is cheap only if
/// tiles share lanes.
bool can_unroll_z(const ConvProblem& p, Direction direction) {
  return direction != Direction::backward_data && few_channels(p) && p.x_layout == Layout::plain && p.kernel.z > 1;
}

/// Returns the rate (operations per second) of transforms of tiles whose group holds `held` bytes. Extents with a prime
/// factor above 7 take longer.
double transform_rate(const Extent3& tile, double held, const MachineModel& machine) {
  const auto l2 = static_cast<double>(machine.usable_l2_bytes);
  const double spectrum = 128.0 * static_cast<double>(tile.z * tile.y * (tile.x / 2 + 1));
  // Rises from 0 to 1 for spectra from 0.28 to 0.53 of the L2. For planes, whose two passes exchange data through the
  // L1, it rises from one to three times the L1.
  const double outgrown = tile.z == 1 ? std::clamp((spectrum / static_cast<double>(machine.l1_bytes) - 1) / 2, 0.0, 1.0)
                                      : std::clamp((spectrum / l2 - 0.28) / 0.25, 0.0, 1.0);
  // Either the tile or its group exceeds the L2. Data that has left the L2 cannot leave it again, so only the larger
  // loss counts.
  const double spilled = std::clamp(1 - spilled_share * (held / l2 - 2), least_spilled_share, 1.0);
  const double best = machine.tile_transform_share;
  double efficiency = std::min(best + outgrown * (machine.spilled_tile_transform_share - best), best * spilled);
  if (tile.x > register_points) efficiency *= long_x_share;
  if (std::max(tile.z, tile.y) > register_points) efficiency *= tile.z == 1 ? long_plane_share : long_zy_share;
  for (int axis = 0; axis < 3; ++axis) efficiency *= tile[axis] % 11 == 0 || tile[axis] % 13 == 0 ? 0.94 : 1;
  return efficiency * machine.gflops_per_core * 1e9;
}

/// Returns seconds to write and read a byte of a buffer of `bytes` bytes, if one of several cores does it. The L3 also
/// holds what other cores use, so more and more of a larger buffer comes from memory.
double seconds_per_byte(double bytes, const MachineModel& machine) {
  if (bytes <= l2_free_share * static_cast<double>(machine.usable_l2_bytes)) return 0;
  const double part = bytes * machine.l3_cores / static_cast<double>(machine.usable_l3_bytes);
  const double missed = std::clamp((part - l3_kept_share) / (l3_lost_share - l3_kept_share), 0.0, 1.0);
  return 1e-9 * 2 * ((1 - missed) / machine.l3_gb_per_s + missed / machine.dram_gb_per_s);
}

class Model {
 public:
  /// `shared`: the tiles and spectra are those of the other directions. `z_unrolled`: see Tiling::z_unrolled.
  Model(const ConvProblem& p, Direction direction, bool shared, bool z_unrolled, const MachineModel& machine)
      : polyphase_(p, z_unrolled),
        problem_(polyphase_.dense),
        direction_(direction),
        shared_(shared),
        z_unrolled_(z_unrolled),
        machine_(machine) {
    const bool to_input = direction == Direction::backward_data;
    const bool depthwise = p.groups > 1;
    domain_ = to_input && !shared ? problem_.input : problem_.output();
    const index_t terms = to_input ? p.out_channels : p.in_channels;
    const index_t results = to_input ? p.in_channels : p.out_channels;
    const double block = static_cast<double>(channel_block(p.type));
    channels_.terms = depthwise ? 1 : static_cast<double>(terms);
    small_channels_ = !to_input && few_channels(p) && p.x_layout == Layout::plain;
    channels_.in_blocks =
        small_channels_ ? static_cast<double>(terms) / block : std::ceil(static_cast<double>(terms) / block);
    channels_.out_blocks = std::ceil(static_cast<double>(results) / block);
    // Every phase of x has its own channels.
    const auto phases = static_cast<double>(polyphase_.phases());
    (to_input ? channels_.out_blocks : channels_.in_blocks) *= phases;
    if (!to_input) channels_.terms *= phases;
    channels_.lanes = channels_.out_blocks * block;
    element_ = static_cast<double>(size_of(p.type));
    plain_in_ = (to_input ? p.y_layout : p.x_layout) == Layout::plain && !small_channels_;
    plain_out_ = (to_input ? p.x_layout : p.y_layout) == Layout::plain;
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
  double spectra_bytes(const Tiling& tiling) const {
    const Parts p = parts(tiling);
    return p.tiles * p.tile_bytes;
  }

  /// Returns whether one tile yields the whole axis of dx. Then only the zeros beside dy wrap around.
  bool covers(int axis, index_t tile) const {
    return direction_ == Direction::backward_data && problem_.groups == 1 && !shared_ &&
           tile >= domain_[axis] + std::max<index_t>({0, problem_.pad_before[axis], problem_.pad_after[axis]});
  }

  /// Returns the number of tiles along each axis.
  Extent3 counts(const Extent3& tile) const {
    Extent3 count;
    for (int axis = 0; axis < 3; ++axis) {
      const index_t valid = covers(axis, tile[axis]) ? domain_[axis] : tile[axis] - problem_.kernel[axis] + 1;
      count[axis] = (domain_[axis] + valid - 1) / valid;
    }
    return count;
  }

  Tiling tiling(const Extent3& tile, index_t group) const {
    Tiling tiling{.tile = tile, .valid = tile - problem_.kernel + Extent3::all(1), .domain = domain_, .group = group};
    tiling.z_unrolled = z_unrolled_;
    tiling.overlap_add = overlapping();
    for (int axis = 0; axis < 3; ++axis) {
      if (covers(axis, tile[axis])) tiling.valid[axis] = domain_[axis];
    }
    tiling.count = counts(tile);
    tiling.planes = planes_of(tiling);
    tiling.cost = direction_ == Direction::backward_weights ? sums_cost(tiling) : voxels_cost(tiling);
    return tiling;
  }

  /// Returns the tilings for all group sizes that are considered.
  std::vector<Tiling> tilings(const Extent3& tile) const {
    std::vector<Tiling> all;
    index_t before = 0;
    for (const index_t any : groups) {
      if (any > 1 && !grouped()) break;
      const index_t group = prefers_rows() && grouped() ? whole_rows(any, counts(tile).x) : any;
      if (group != before) all.push_back(tiling(tile, group));
      before = group;
    }
    return all;
  }

 private:
  bool overlapping() const { return shared_ && direction_ == Direction::backward_data; }
  /// Returns whether groups should be whole rows of tiles, because neighbouring tiles of a plain tensor are staged
  /// together. Overlapping tiles already come in rows or parts of a row (OverlapOrder), and tiles that share lanes come
  /// in fixed numbers.
  bool prefers_rows() const {
    return (plain_in_ || plain_out_) && !small_channels_ && !overlapping() && polyphase_.residues() == 1;
  }
  /// Returns the number of tiles near `group` that is whole rows, or, if rows are longer, an even part of a row.
  static index_t whole_rows(index_t group, index_t row) {
    if (group >= row) return std::min((2 * group + row) / (2 * row), most_tiles_of_group / row) * row;
    const index_t parts = (row + group - 1) / group;
    return (row + parts - 1) / parts;
  }

  double tiles_of_layer(const Tiling& tiling) const {
    return static_cast<double>(tiling.count.y * tiling.count.x * polyphase_.residues());
  }
  /// Returns the number of layers of tiles whose taps share planes of x: as many as leave enough tasks. Returns 1 if
  /// empty lanes would cost more than separate transforms for each tap.
  index_t planes_of(const Tiling& tiling) const {
    constexpr double tasks = 12;
    constexpr index_t least = 4, most = 16;
    if (!z_unrolled_ || polyphase_.x_step.z != 1 || tiling.count.z == 1) return 1;
    const double lanes = static_cast<double>(channel_block(problem_.type));
    const double of_layer = std::ceil(tiles_of_layer(tiling) / lanes);
    const double layers = static_cast<double>(problem_.batch / polyphase_.residues() * tiling.count.z);
    const auto share = static_cast<index_t>(of_layer * layers / tasks);
    const index_t planes = std::min(std::clamp(share, least, most), tiling.count.z);
    const double separate_cost = tiles_of_layer(tiling) / lanes * static_cast<double>(polyphase_.w_step.z);
    return of_layer * transforms_of_plane(planes) < separate_cost ? planes : 1;
  }
  /// Returns how often a plane of x is transformed, including the extra planes before the first layer.
  double transforms_of_plane(index_t planes) const {
    return 1 + static_cast<double>(polyphase_.w_step.z - 1) / static_cast<double>(planes);
  }
  /// Returns the number of 64-byte blocks of x to load, per tile.
  double loaded_blocks(const Tiling& tiling) const {
    if (tiling.planes == 1) return channels_.in_blocks;
    return channels_.in_blocks / static_cast<double>(polyphase_.w_step.z) * transforms_of_plane(tiling.planes);
  }
  /// Returns the number of 64-byte blocks of x to transform, per tile, those of empty lanes included.
  double in_blocks(const Tiling& tiling) const {
    if (tiling.planes == 1) return channels_.in_blocks;
    const double tiles = tiles_of_layer(tiling), lanes = static_cast<double>(channel_block(problem_.type));
    return loaded_blocks(tiling) * std::ceil(tiles / lanes) * lanes / tiles;
  }

  /// The quantities from which the cost of a tiling is computed.
  struct Parts {
    double tiles, frequencies, transform, kernels, w_bytes, tile_bytes, pair_bytes, multiplications;
  };

  Parts parts(const Tiling& tiling) const {
    const Extent3& t = tiling.tile;
    const double points = static_cast<double>(t.z * t.y * t.x);
    const double block = static_cast<double>(channel_block(problem_.type));
    Parts p{};
    p.frequencies = static_cast<double>(t.z * t.y * (t.x / 2 + 1));
    p.tiles = static_cast<double>(problem_.batch * tiling.count.z * tiling.count.y * tiling.count.x);
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
  /// Returns the factor to depthwise transforms of phases, which are read voxel by voxel. If x has many channels,
  /// products take longest.
  double apart_factor() const { return depthwise() && polyphase_.phases() > 1 ? depthwise_phases_factor : 1; }
  /// Returns the time to load so many blocks per tile if x has few channels, and a stride or dilation along X keeps its
  /// voxels apart. Each value is then loaded by itself. Otherwise loads take little of the transforms' time.
  double apart_time(const Tiling& tiling, const Parts& p, double blocks) const {
    if (!small_channels_ || polyphase_.x_step.x == 1) return 0;
    const double values = blocks * static_cast<double>(channel_block(problem_.type) * tiling.tile.volume());
    return p.tiles * values * apart_value_seconds;
  }
  static double setting_up(const Tiling& tiling) { return tiling.tile.z == 1 ? plane_seconds : tile_seconds; }

  /// Returns the time of a product stage. Most of the shorter of compute and memory time is hidden behind the longer
  /// one.
  static double overlapped(double computing, double moving) {
    return std::max(computing, moving) + 0.3 * std::min(computing, moving);
  }
  /// Returns the bytes that tiles read and write in tensors.
  double voxel_bytes(const Tiling& tiling, const Parts& p) const {
    const double block_bytes = element_ * static_cast<double>(channel_block(problem_.type));
    const auto read = static_cast<double>(tiling.overlap_add ? tiling.valid.volume() : tiling.tile.volume());
    const auto written = static_cast<double>(tiling.overlap_add ? tiling.tile.volume() : tiling.valid.volume());
    return p.tiles * block_bytes * (read * channels_.in_blocks + written * channels_.out_blocks);
  }

  /// Returns the time to transpose the channels of plain tensors.
  double plain_time(const Tiling& tiling, const Parts& p) const {
    // y or dy alone is transposed. Voxels of the last tiles beyond its end are not touched.
    if (small_channels_) {
      const auto voxels = static_cast<double>(domain_.volume() * problem_.batch);
      return plain_out_ ? voxels * channels_.out_blocks * plain_small_channels_seconds : 0;
    }
    const bool sums = direction_ == Direction::backward_weights;
    const auto read = static_cast<double>(tiling.overlap_add ? tiling.valid.volume() : tiling.tile.volume());
    const auto written = static_cast<double>(tiling.overlap_add || sums ? tiling.tile.volume() : tiling.valid.volume());
    const double blocks =
        p.tiles * ((plain_in_ ? read * channels_.in_blocks : 0) + (plain_out_ ? written * channels_.out_blocks : 0));
    return blocks * (depthwise() ? plain_depthwise_seconds : plain_seconds);
  }

  /// Returns the cost of the weight gradient, which sums over tiles.
  TiledCost sums_cost(const Tiling& tiling) const {
    const Parts p = parts(tiling);
    const double spectra = p.tiles * p.tile_bytes;
    const double products = p.multiplications / product_share(channels_.terms);
    const auto l2 = static_cast<double>(machine_.usable_l2_bytes);
    if (shared_) {
      const double seconds = spectra * written_or_read(spectra) + p.w_bytes * seconds_per_byte(p.w_bytes, machine_);
      return {.weights = {p.kernels, p.w_bytes}, .products = {overlapped(products, seconds), spectra + p.w_bytes}};
    }
    const double rate = transform_rate(tiling.tile, depthwise() ? own_bytes(p) : p.tile_bytes, machine_) * 4 / element_;
    const auto transforms_of = [&](double blocks) {
      return p.tiles * (blocks + channels_.out_blocks) * (p.transform / rate + setting_up(tiling));
    };
    const double transforms = apart_factor() * transforms_of(channels_.in_blocks) +
                              apart_time(tiling, p, channels_.in_blocks) + plain_time(tiling, p);
    const double voxels = voxel_bytes(tiling, p);
    // The sums and the spectra of one channel block stay in the L2.
    if (depthwise()) return {.weights = {p.kernels, 0}, .transforms = {transforms, voxels}, .products = {products, 0}};
    // If x has few channels, parts of the tiles have separate sums in the L2.
    if (small_channels_ && p.w_bytes <= l2) {
      const double spilled = spilled_sums(p);
      return {
          .weights = {p.kernels, p.w_bytes},
          .transforms = {transforms_of(in_blocks(tiling)) + apart_time(tiling, p, loaded_blocks(tiling)) +
                             plain_time(tiling, p),
                         voxels},
          .products = {products + staged_seconds(tiling, p) + spilled * 1e-9 / (machine_.l3_gb_per_s / 2), spilled}};
    }
    // Both sides are transformed. Sums are read and written once per chunk; spectra go to memory and back.
    const double chunks = std::max(1.0, spectra / static_cast<double>(sum_chunk_bytes));
    const double seconds =
        2 * p.w_bytes * chunks * seconds_per_byte(p.w_bytes, machine_) +
        2 * spectra * seconds_per_byte(std::min(spectra, static_cast<double>(sum_chunk_bytes)), machine_);
    return {.weights = {separate_sums_factor * p.kernels, p.w_bytes},
            .transforms = {separate_sums_factor * transforms, voxels + spectra},
            .products = {separate_sums_factor * overlapped(products, seconds), spectra + 2 * p.w_bytes * chunks}};
  }

  TiledCost voxels_cost(const Tiling& tiling) const {
    const Parts p = parts(tiling);
    const Grouping grouping = grouping_of(tiling);
    const double held = depthwise() ? own_bytes(p) : grouping.tiles * p.tile_bytes;
    const double rate = transform_rate(tiling.tile, held / 2, machine_) * 4 / element_;
    const double out_share = tiling.overlap_add ? 1 : cropped_share;
    const double spilled = depthwise() || seconds_per_byte(held, machine_) == 0 ? 0 : 2 * p.tiles * p.tile_bytes;
    StageCost transforms{apart_factor() * p.tiles * (in_blocks(tiling) + out_share * channels_.out_blocks) *
                                 (p.transform / rate + setting_up(tiling)) +
                             spilled * seconds_per_byte(held, machine_) + apart_time(tiling, p, loaded_blocks(tiling)) +
                             plain_time(tiling, p),
                         voxel_bytes(tiling, p) + spilled};
    if (shared_) transforms.seconds += shared_seconds(tiling, p);
    if (shared_) transforms.bytes += kept_bytes(p);
    const double w_held = depthwise() ? own_bytes(p) / 2 : p.w_bytes;
    const double w_time = p.w_bytes * seconds_per_byte(w_held, machine_);
    const bool planar = tiling.tile.z == 1;
    // Planes have no lines along Z, and depthwise convolutions have no separate product for each frequency block.
    const double calls = planar || depthwise()
                             ? 0
                             : grouping.rounds * static_cast<double>(tiling.tile.y * (tiling.tile.x / 2 + 1)) *
                                   (1 + channels_.in_blocks + channels_.out_blocks);
    const StageCost products{overlapped(p.multiplications / product_share(grouping.tiles), grouping.rounds * w_time) +
                                 staged_seconds(tiling, p) + calls * block_seconds,
                             w_time == 0 ? 0 : grouping.rounds * p.w_bytes};
    return {.weights = {p.kernels + w_time, p.w_bytes},
            .transforms = transforms,
            .products = products,
            .idle = (grouping.idle + waiting_share) * (transforms.seconds + products.seconds)};
  }

  /// Returns the bytes of sums that go to the L3 and back, once per step of a few tiles, if the sums leave the L2.
  double spilled_sums(const Parts& p) const {
    const double tile = p.pair_bytes * channels_.lanes;
    const auto step = static_cast<double>(tiles_of_step(tile, channel_block(problem_.type)));
    return p.w_bytes + step * tile > sum_step_bytes ? 2 * p.w_bytes * p.tiles / step : 0;
  }

  /// Returns the time to write planes to the L2 on one side of the products and to read them on the other.
  double staged_seconds(const Tiling& tiling, const Parts& p) const {
    if (tiling.tile.z > 1) return 0;
    return 2 * p.tiles * p.pair_bytes * channels_.lanes * 1e-9 / (machine_.l2_gb_per_s / 2);
  }

  /// Returns seconds per byte of a buffer of `bytes` bytes that is only written here, or only read.
  double written_or_read(double bytes) const { return seconds_per_byte(bytes, machine_) / 2; }

  double kept_bytes(const Parts& p) const {
    return p.tiles * p.pair_bytes * static_cast<double>(channel_block(problem_.type)) * channels_.in_blocks;
  }
  /// Returns the time to write the kept spectra, and to read again the voxels of dx that tiles share.
  double shared_seconds(const Tiling& tiling, const Parts& p) const {
    const double block_bytes = element_ * static_cast<double>(channel_block(problem_.type));
    double bytes = kept_bytes(p);
    if (tiling.overlap_add)
      bytes += p.tiles * static_cast<double>(tiling.tile.volume()) * block_bytes * channels_.out_blocks;
    return bytes * written_or_read(bytes);
  }

  /// The groups of tiles: tiles per group, number of groups, and the share of time that workers, one for each core of
  /// the machine, wait because the groups cannot be divided evenly or must follow each other.
  struct Grouping {
    double tiles, rounds, idle;
  };
  Grouping grouping_of(const Tiling& tiling) const {
    const double batch = static_cast<double>(problem_.batch), tiles = static_cast<double>(tiling.count.volume());
    const double all = batch * tiles;
    if (!tiling.overlap_add) {
      // A group lies in one sample; the last group holds the remaining tiles.
      const double group = std::min(static_cast<double>(tiling.group), tiles);
      // If x has few channels, tiles fill the lanes. As many tiles as there are lanes go together, even if fewer are
      // multiplied at a time.
      const double together =
          small_channels_ ? static_cast<double>(channel_block(problem_.type) * tiling.planes) : group;
      return {.tiles = group,
              .rounds = batch * std::ceil(tiles / group),
              .idle = idle_of(busiest(batch, tiles, together) / all)};
    }
    // Pieces are whole rows of a layer, or parts of a row.
    const OverlapOrder order(tiling.count, tiling.group);
    const Extent3 pieces = order.pieces();
    const auto rounds = batch * static_cast<double>(pieces.volume()), piece = static_cast<double>(order.piece.volume());
    const auto runs = batch * static_cast<double>(tiling.count.z * (pieces.x > 1 ? tiling.count.y : 1));
    // Layers advance from two sides. The classes of pieces in a layer follow each other.
    const index_t classes = (pieces.y > 1 ? 2 : 1) * (pieces.x > 1 ? 2 : 1);
    const double longest = all / rounds * static_cast<double>((pieces.z / 2 + 1) * classes);
    const double most = std::max(busiest(runs, all / runs, piece), longest);
    return {.tiles = all / rounds, .rounds = rounds, .idle = idle_of(most / all)};
  }
  /// `busiest` is the share of the busiest worker in all tiles. If more than half of the workers would wait all the
  /// time, there is not enough other work for them.
  double idle_of(double busiest) const {
    const double waiting = machine_.cores * busiest - 1;
    return std::max(idle_share * waiting, waiting - 1 + idle_share);
  }

  /// Returns the tiles of the busiest worker. The `tiles` tiles of each of `runs` runs are taken `together` at a time;
  /// the rests are taken last, each by the worker that has the fewest tiles.
  double busiest(double runs, double tiles, double together) const {
    const double whole = std::floor(tiles / together), rest = tiles - whole * together;
    const double workers = machine_.cores, least = std::floor(whole * runs / workers) * together;
    const auto ahead = static_cast<std::ptrdiff_t>(std::fmod(whole * runs, workers));
    if (rest == 0) return ahead > 0 ? least + together : least;
    std::vector<double> loads(static_cast<std::size_t>(machine_.cores), least);  // a heap, the least first
    std::for_each(loads.end() - ahead, loads.end(), [&](double& load) { load += together; });
    for (double run = 0; run < runs; ++run) {
      std::pop_heap(loads.begin(), loads.end(), std::greater<>());
      loads.back() += rest;
      std::push_heap(loads.begin(), loads.end(), std::greater<>());
    }
    return *std::max_element(loads.begin(), loads.end());
  }

  double peak() const { return machine_.gflops_per_core * 1e9 * 4 / element_; }
  /// Returns the share that products reach whose weight spectra are read by so many rows together.
  double product_share(double rows) const {
    return machine_.tile_product_share * few_rows_factor(rows, wide_vectors(machine_));
  }

  plan::Polyphase polyphase_;
  const ConvProblem& problem_;  // the dense problem of the components
  Direction direction_;
  bool shared_, z_unrolled_;
  const MachineModel& machine_;
  Extent3 domain_{};
  Channels channels_{};
  bool small_channels_ = false;
  bool plain_in_ = false, plain_out_ = false;  // the tensor that is transformed, and the other one
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

double seconds_of(const Tiling& tiling) { return tiling.cost.seconds(); }
double seconds_of(const Tilings& tilings) { return tilings.seconds(); }

template <class AnyTiling>
bool faster(const AnyTiling& a, const AnyTiling& b) {
  return seconds_of(a) < seconds_of(b);
}

/// Returns every tiling that is considered.
std::vector<Tiling> all_tilings(const ConvProblem& problem, Direction direction, const MachineModel& machine) {
  std::vector<Tiling> all;
  for (const bool z_unrolled : {false, true}) {
    if (z_unrolled && !can_unroll_z(problem, direction)) continue;
    const Model model(problem, direction, false, z_unrolled, machine);
    const auto first = static_cast<std::ptrdiff_t>(all.size());
    search_tiles(
        model.kernel(), [&](int axis, index_t tile) { return model.useful(axis, tile); },
        [&](const Extent3& tile) {
          for (const Tiling& tiling : model.tilings(tile)) all.push_back(tiling);
        },
        [&] { return std::min_element(all.begin() + first, all.end(), faster<Tiling>)->tile; });
  }
  return all;
}

bool can_share(const ConvProblem& problem, bool may_share) {
  // If x has few channels, its transform is cheap to repeat. A plain x then has tiles in the lanes, and a blocked x
  // must give the same bits. The polyphase components of x begin at different voxels.
  const Polyphase polyphase(problem);
  return may_share && problem.groups == 1 && !swaps_zy(problem) && !few_channels(problem) &&
         polyphase.residues() * polyphase.phases() == 1;
}

/// Returns whether at most two tiles per axis overlap at one voxel.
bool shareable(const Extent3& tile, const Extent3& kernel) {
  bool all = true;
  for (int axis = 0; axis < 3; ++axis) all = all && tile[axis] >= 2 * (kernel[axis] - 1);
  return all;
}

/// Returns the tilings that use the same tiles of y in all directions.
std::vector<Tilings> all_shared_tilings(const ConvProblem& problem, const MachineModel& machine) {
  const Model forward(problem, Direction::forward, true, false, machine);
  const Model data(problem, Direction::backward_data, true, false, machine);
  const Model weights(problem, Direction::backward_weights, true, false, machine);
  const auto best_group = [](const Model& model, const Extent3& tile) {
    const std::vector<Tiling> tilings = model.tilings(tile);
    return *std::min_element(tilings.begin(), tilings.end(), faster<Tiling>);
  };
  std::vector<Tilings> all;
  search_tiles(
      problem.kernel, [&](int axis, index_t tile) { return forward.useful(axis, tile); },
      [&](const Extent3& tile) {
        if (!shareable(tile, problem.kernel)) return;
        const Tilings tilings{best_group(forward, tile), best_group(data, tile), best_group(weights, tile), true};
        if (forward.spectra_bytes(tilings.forward) <= most_kept_spectra_bytes) all.push_back(tilings);
      },
      [&] {
        if (all.empty()) return Extent3{};
        return std::min_element(all.begin(), all.end(), faster<Tilings>)->forward.tile;
      });
  return all;
}

/// Returns whether two tilings are so similar that measuring one of them is enough.
bool similar(const Tiling& a, const Tiling& b) {
  const auto factor = [](index_t m, index_t n) {
    return static_cast<double>(std::max(m, n)) / static_cast<double>(std::min(m, n));
  };
  bool same = factor(a.group, b.group) < 2;
  for (int axis = 0; axis < 3; ++axis) same = same && factor(a.tile[axis], b.tile[axis]) < 1.2;
  return same;
}
bool similar(const Tilings& a, const Tilings& b) {
  return similar(a.forward, b.forward) && similar(a.data, b.data) && similar(a.weights, b.weights);
}

/// Returns at most `most` tilings, the best first, without tilings that are similar to a better one.
template <class AnyTiling>
std::vector<AnyTiling> rank(std::vector<AnyTiling> all, std::size_t most) {
  std::stable_sort(all.begin(), all.end(), faster<AnyTiling>);
  std::vector<AnyTiling> ranked;
  for (const AnyTiling& tiling : all) {
    if (ranked.size() == most) break;
    const auto like = [&](const AnyTiling& better) { return similar(better, tiling); };
    if (std::none_of(ranked.begin(), ranked.end(), like)) ranked.push_back(tiling);
  }
  return ranked;
}

/// Returns the problem that is tiled in a direction.
ConvProblem tiled_problem(const ConvProblem& problem, Direction direction) {
  return direction == Direction::backward_weights && swaps_zy(problem) ? swap_zy(problem) : problem;
}

Tiling tiling_of_choice(const ConvProblem& problem, Direction direction, bool shared, const MachineModel& machine,
                        const TileChoice& choice) {
  const auto& [tile, group] = choice;
  const bool z_unrolled = tile.z == 1 && !shared && can_unroll_z(problem, direction);
  const Model model(problem, direction, shared, z_unrolled, machine);
  for (int axis = 0; axis < 3; ++axis) {
    const index_t kernel = model.kernel()[axis];
    if (tile[axis] >= kernel && (kernel > 1 ? tile[axis] <= extents.back() : tile[axis] == 1)) continue;
    throw InvalidArgument(
        fmt::format("a tile of {} cannot serve a kernel of {}: along each axis it has as many voxels "
                    "at least and {} at most, but 1 where the kernel has 1",
                    to_string(tile), to_string(model.kernel()), extents.back()));
  }
  if (group < 1 || group > most_tiles_of_group) {
    throw InvalidArgument(fmt::format("{} tiles in a group; use 1 to {}", group, most_tiles_of_group));
  }
  return model.tiling(tile, group);
}

}  // namespace

index_t tiles_of_step(double tile_bytes, index_t lanes) {
  constexpr index_t least = 4;
  index_t step = lanes;
  while (step > least && static_cast<double>(step) * tile_bytes > sum_step_bytes / 2) step /= 2;
  return step;
}

bool swaps_zy(const ConvProblem& problem) {
  return problem.kernel.z == 1 && problem.kernel.y > 1 && problem.groups == 1;
}

ConvProblem swap_zy(ConvProblem p) {
  for (Extent3* extent : {&p.input, &p.kernel, &p.stride, &p.dilation, &p.pad_before, &p.pad_after}) {
    std::swap(extent->z, extent->y);
  }
  return p;
}

Tilings choose_tilings(const ConvProblem& problem, bool may_share, const Wanted& wanted, const MachineModel& machine) {
  const Tilings separate = rank_tilings(problem, wanted, machine, 1).front();
  const std::vector<Tilings> shared = rank_shared_tilings(problem, may_share, wanted, machine, 1);
  return !shared.empty() && faster(shared.front(), separate) ? shared.front() : separate;
}

std::vector<Tilings> rank_tilings(const ConvProblem& problem, const Wanted& wanted, const MachineModel& machine,
                                  std::size_t most) {
  std::array<std::vector<Tiling>, directions.size()> ranked;
  std::size_t ranks = 0;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    ranked[i] = rank(all_tilings(tiled_problem(problem, directions[i]), directions[i], machine), most);
    ranks = std::max(ranks, ranked[i].size());
  }
  std::vector<Tilings> together;
  const auto at = [&](std::size_t i, std::size_t place) { return ranked[i][std::min(place, ranked[i].size() - 1)]; };
  for (std::size_t place = 0; place < ranks; ++place) {
    together.push_back({at(0, place), at(1, place), at(2, place), false, wanted});
  }
  return together;
}

std::vector<Tilings> rank_shared_tilings(const ConvProblem& problem, bool may_share, const Wanted& wanted,
                                         const MachineModel& machine, std::size_t most) {
  // If one of the directions is not run, sharing spectra gains nothing.
  if (!can_share(problem, may_share) || wanted.count() < 3) return {};
  return rank(all_shared_tilings(problem, machine), most);
}

Tilings tilings_of(const ConvProblem& problem, bool may_share, const Wanted& wanted, const MachineModel& machine,
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
  const auto tiling = [&](std::size_t i) {
    return tiling_of_choice(tiled_problem(problem, directions[i]), directions[i], shared, machine, tiles[i]);
  };
  return {tiling(0), tiling(1), tiling(2), shared, wanted};
}

}  // namespace convolume::plan
