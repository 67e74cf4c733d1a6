#include <algorithm>
#include <cmath>
#include <string>

#include "convolume/blocking.hpp"
#include "plan/cost_constants.hpp"
#include "plan/cost_model.hpp"
#include "plan/nest/index_of.hpp"
#include "plan/nest/product_loops.hpp"

namespace convolume::plan {
namespace {

/// Shares of the caches that a nest's tiles may fill. The rest is for what the caches hold besides, and for the limits
/// of their replacement.
constexpr std::array<double, NestCost::levels> usable{0.5, 0.75, usable_l3_share};

double padded_channels(index_t channels, index_t block) {
  return static_cast<double>((channels + block - 1) / block * block);
}

/// Returns the (result, tap) pairs along an axis whose windowed voxel lies in the tensor.
double pairs_inside(const NestSpace& space, int axis) {
  const index_t results = space.extent[index_of(Dim::z) + static_cast<std::size_t>(axis)];
  const index_t taps = space.extent[index_of(Dim::kz) + static_cast<std::size_t>(axis)];
  const index_t step = space.result_step[axis];
  double pairs = 0;
  for (index_t t = 0; t < taps; ++t) {
    const index_t shift = t * space.tap_step[axis] - space.offset[axis];
    const index_t first = shift >= 0 ? 0 : (-shift + step - 1) / step;
    const index_t last = space.source_extent[axis] - 1 - shift;
    if (last >= 0) pairs += static_cast<double>(std::max<index_t>(0, std::min(results, last / step + 1) - first));
  }
  return pairs;
}

/// Counts one space of a direction.
class SpaceCost {
 public:
  SpaceCost(const LoopNest& nest, const NestSpace& space, const ConvProblem& problem, const MachineModel& machine)
      : nest_(nest),
        space_(space),
        loops_(bind(nest, space)),
        machine_(machine),
        element_(static_cast<double>(size_of(problem.type))),
        problem_(problem) {
    lanes_ = space.written == Operand::x || (space.written == Operand::w && space.transposed) ? Dim::c : Dim::k;
    terms_ = lanes_ == Dim::k ? Dim::c : Dim::k;
  }

  NestCost cost() const {
    NestCost cost;
    add_moves(cost);
    add_copies(cost);
    space_.written == Operand::w ? add_weight_products(cost) : add_voxel_products(cost);
    return cost;
  }

 private:
  static std::size_t index_of(Dim dim) { return static_cast<std::size_t>(dim); }
  static std::size_t index_of(Operand operand) { return static_cast<std::size_t>(operand); }

  /// Returns the bytes that the blocked layout takes per word of an operand.
  double word_bytes(Operand operand) const {
    const auto share = [&](Dim dim) {
      return padded_channels(space_.of(dim), space_.channel_block) / static_cast<double>(space_.of(dim));
    };
    switch (operand) {
      case Operand::x:
        return element_ * (space_.of(Dim::c) == 1 ? 1 : share(Dim::c));
      case Operand::w:
        return element_ * share(lanes_);  // terms without a channel are never read
      case Operand::y:
        return element_ * (space_.of(Dim::k) == 1 && space_.written != Operand::y ? 1 : share(Dim::k));
    }
    return element_;
  }

  using Fetches = std::array<Fetch, operands.size()>;

  Fetches fetches(std::size_t depth) const {
    Fetches all;
    for (const Operand operand : operands) {
      all[index_of(operand)] = fetch(nest_, space_, depth, operand, Layout::plain);
    }
    return all;
  }

  double held_bytes(const Fetches& fetches) const {
    double bytes = 0;
    for (const Operand operand : operands) {
      bytes += static_cast<double>(fetches[index_of(operand)].held) * word_bytes(operand);
    }
    return bytes;
  }

  /// Adds the traffic into each level: the loads of the outermost loops whose tiles fit into it. Loops further in are
  /// not counted, because they cut the space into many tiles.
  void add_moves(NestCost& cost) const {
    const std::array capacity{static_cast<double>(machine_.l1_bytes), static_cast<double>(machine_.usable_l2_bytes),
                              static_cast<double>(machine_.usable_l3_bytes)};
    const std::array bandwidth{machine_.l2_gb_per_s, machine_.l3_gb_per_s, machine_.dram_gb_per_s};
    std::vector<Fetches> tiles{fetches(0)};
    for (std::size_t level = 0; level < NestCost::levels; ++level) {
      std::size_t depth = 0;
      while (depth < loops_.size() && held_bytes(tiles[depth]) > usable[level] * capacity[level]) {
        if (++depth == tiles.size()) tiles.push_back(fetches(depth));
      }
      double bytes = 0;
      for (const Operand operand : operands) {
        double words = tiles[depth][index_of(operand)].words;
        // What is written is read too, but for the first time.
        if (operand == space_.written) {
          words = 2 * words - tiles[0][index_of(operand)].words;
        } else {
          words /= taps_of_pass(operand, depth);
        }
        bytes += words * word_bytes(operand);
      }
      cost.bytes[level] += bytes;
      cost.move_seconds[level] += bytes / (bandwidth[level] * 1e9);
    }
  }

  /// Returns how many of the taps for which fetch() counts an operand at `depth` share a pass over the voxels: the
  /// weight gradient sums several together. A tap moves x. It moves dy only if a loop over voxels lies inside.
  double taps_of_pass(Operand operand, std::size_t depth) const {
    if (space_.written != Operand::w) return 1;
    const bool counted = operand == space_.windowed ? depth >= nest_.microkernel : depth > nest_.microkernel;
    if (!counted) return 1;
    double passes = 0;
    for (const WeightTaps& some : weight_taps(weight_vectors())) passes += some.count / some.together;
    return taps() / passes;
  }

  double taps() const { return static_cast<double>(space_.of(Dim::kz) * space_.of(Dim::ky) * space_.of(Dim::kx)); }
  /// Returns the number of tasks.
  double tasks() const {
    double tasks = 1;
    for (std::size_t i = 0; i < task_depth(); ++i) tasks *= static_cast<double>(loops_[i].trips());
    return tasks;
  }
  /// Returns the number of loops whose iterations are tasks.
  std::size_t task_depth() const {
    std::size_t depth = 0;
    while (depth < nest_.loops.size() && (nest_.loops[depth].parallel || nest_.loops[depth].separate)) ++depth;
    return depth;
  }
  /// Returns how many iterations of a dimension a task covers.
  index_t of_task(Dim dim) const {
    index_t covered = space_.of(dim);
    for (std::size_t i = 0; i < task_depth(); ++i) {
      if (loops_[i].dim == dim) covered = loops_[i].step;
    }
    return covered;
  }

  Layout layout_of(Operand operand) const { return operand == Operand::x ? problem_.x_layout : problem_.y_layout; }
  index_t channels_of_task(Operand operand) const { return of_task(operand == Operand::x ? Dim::c : Dim::k); }

  /// Returns how many results at one end of a row read padding along X. Products leave out the padding of one result.
  index_t padded_results() const {
    const index_t step = space_.result_step.x, spread = (space_.of(Dim::kx) - 1) * space_.tap_step.x;
    const index_t first = std::min<index_t>(0, spread) - space_.offset.x;
    const index_t last = (space_.of(Dim::x) - 1) * step + std::max<index_t>(0, spread) - space_.offset.x;
    const index_t beyond = std::max(-first, last - (space_.source_extent.x - 1));
    return std::max<index_t>(0, beyond + step - 1) / step;
  }

  /// Returns whether each source voxel has a box of few results of its own. Then the lanes are the voxels of the boxes,
  /// and the source is read in place.
  bool has_patches() const {
    const Operand target = space_.windowed == Operand::x ? Operand::y : Operand::x;
    const bool high_res = space_.written != Operand::w && (target == Operand::x) != space_.transposed;
    return high_res && tile_of(Dim::n) == 1 && problem_.kernel == problem_.stride && problem_.kernel.volume() > 1 &&
           problem_.dilation == Extent3::all(1) && problem_.pad_before == Extent3::all(0) &&
           layout_of(target) == Layout::plain && layout_of(space_.windowed) == Layout::blocked &&
           space_.of(lanes_) <= 6;
  }
  /// Returns whether lines of plain tensors are multiplied in place: there is one tap, without strides, and a product
  /// sums all channels.
  bool reads_lines() const {
    return taps() == 1 && passes() == 1 && !reads_padding(0) && !reads_padding(1) && !reads_padding(2) &&
           space_.written != Operand::w && tile_of(Dim::n) == 1 && space_.result_step == Extent3{1, 1, 1} &&
           problem_.x_layout == Layout::plain && problem_.y_layout == Layout::plain;
  }
  /// Returns the lanes that products compute per result, those without a channel included.
  double lanes_of_results() const {
    return has_patches() ? static_cast<double>(space_.of(lanes_))
                         : padded_channels(space_.of(lanes_), space_.channel_block);
  }

  /// Adds what tasks copy: voxels of plain tensors, and windows that reach into the padding.
  void add_copies(NestCost& cost) const {
    const Operand target = space_.windowed == Operand::x ? Operand::y : Operand::x;
    double window = 1, results = 1;
    for (int axis = 0; axis < 3; ++axis) {
      const auto i = static_cast<std::size_t>(axis);
      const auto result_dim = static_cast<Dim>(index_of(Dim::z) + i), tap_dim = static_cast<Dim>(index_of(Dim::kz) + i);
      const index_t reach = (space_.of(tap_dim) - 1) * std::abs(space_.tap_step[axis]) + 1;
      window *= static_cast<double>((of_task(result_dim) - 1) * space_.result_step[axis] + reach);
      results *= static_cast<double>(of_task(result_dim));
    }
    const double samples = tasks() * static_cast<double>(of_task(Dim::n));
    const auto blocks = [&](Operand operand) {
      return std::ceil(static_cast<double>(channels_of_task(operand)) / static_cast<double>(space_.channel_block));
    };
    const auto copied = [&](Operand operand, double voxels, bool copies_blocked) {
      const double lines = samples * voxels * blocks(operand);
      if (layout_of(operand) == Layout::plain && channels_of_task(operand) > 1) {
        cost.copy_seconds += lines * machine_.transpose_s;
      } else if (copies_blocked) {
        cost.copy_seconds += 2 * 64 * lines / (machine_.l3_gb_per_s * 1e9);
      }
    };
    cost.task_seconds += tasks() * machine_.task_s;
    if (reads_lines() || has_patches()) return;
    // Rows of taps of one channel, or for one block of results, read plain tensors as they are.
    const bool in_place = space_.written != Operand::w && layout_of(space_.windowed) == Layout::plain &&
                          taps_of_row() > 1 && (space_.of(terms_) == 1 || space_.of(lanes_) <= space_.channel_block);
    const bool copies_padding = space_.written != Operand::w && tile_of(Dim::n) == 1 && padded_results() > 1;
    if (!in_place) copied(space_.windowed, window, copies_padding);
    copied(target, results, false);
  }

  /// Returns the share of the peak that a tile of `rows` times `vectors` registers reaches. Each step loads `vectors`
  /// vectors, and one value per row. The `taps` of a row share the values of rows that are `distance` taps apart, and
  /// are added to a sum one after the other.
  double issue_share(double rows, double vectors, double taps = 1, double distance = 1) const {
    const IssueTable& issue = machine_.issue;
    const double products = taps * rows * vectors / issue.multiply_adds;
    const double loads = (taps * vectors + (rows - 1) * distance + taps) / issue.loads;
    return products / std::max({products, loads, taps * issue.latency});
  }

  /// Returns how many taps of a row are summed at each term. A single channel has no loop over terms.
  double taps_of_row() const {
    const double distance = tap_distance();
    if (!wide() || (distance != 1 && distance != 2)) return 1;
    std::size_t i = nest_.microkernel;
    for (std::size_t loop = i; loop < loops_.size(); ++loop) {
      if (loops_[loop].dim == terms_) i = loop;
    }
    for (; i < loops_.size(); ++i) {
      if (loops_[i].dim == Dim::kx && loops_[i].step == 1) return static_cast<double>(loops_[i].extent);
    }
    return 1;
  }
  /// Returns how many taps apart neighbouring results of a row read.
  double tap_distance() const {
    return static_cast<double>(space_.result_step.x) /
           static_cast<double>(std::max<index_t>(1, std::abs(space_.tap_step.x)));
  }

  double cycle_seconds() const { return 1e-9 / machine_.ghz; }
  double peak() const { return machine_.gflops_per_core * 1e9 * 4 / element_; }
  bool wide() const { return wide_vectors(machine_); }
  /// Returns the most results of a row that products compute together.
  double most_rows(double vectors, double taps) const {
    if (!wide()) return 6;
    return static_cast<double>(most_row_voxels(static_cast<index_t>(vectors), static_cast<index_t>(taps)));
  }

  /// Returns the products of `vectors` that compute so many lanes of a result.
  double columns(double lanes, double vectors) const {
    return std::ceil(lanes / (vectors * static_cast<double>(space_.channel_block) / (wide() ? 1 : 2)));
  }

  double tile_of(Dim dim) const {
    for (std::size_t i = nest_.microkernel; i < loops_.size(); ++i) {
      if (loops_[i].dim == dim) return static_cast<double>(loops_[i].extent);
    }
    return 1;
  }

  void add_voxel_products(NestCost& cost) const {
    const double block = static_cast<double>(space_.channel_block);
    const double vectors = wide() ? std::min(4.0, std::ceil(tile_of(lanes_) / block)) : 2;
    // Two vectors of a single channel have no kernels for rows of taps.
    const double taps = vectors > 1 && space_.of(terms_) == 1 ? 1 : taps_of_row();
    // Results that a product computes together: voxels of a row, or samples.
    const double row = std::max(tile_of(Dim::x), tile_of(Dim::n));
    const double voxels = row / std::ceil(row / most_rows(vectors, taps));
    const double lanes = lanes_of_results();
    const double pairs = pairs_inside(space_, 0) * pairs_inside(space_, 1);
    const double products = static_cast<double>(space_.of(Dim::n)) * pairs *
                            static_cast<double>(space_.of(Dim::x) * space_.of(Dim::kx) * space_.of(terms_)) * lanes;
    // A single tap loads one value per voxel, however far apart the voxels are.
    const double share = issue_share(voxels, vectors, taps, taps == 1 ? 1 : tap_distance());
    cost.compute_seconds += 2 * products / (peak() * machine_.direct_share * share);
    // Each register tile of each pass begins and ends a sum.
    const double results =
        static_cast<double>(space_.of(Dim::n) * space_.of(Dim::z) * space_.of(Dim::y) * space_.of(Dim::x));
    const double tiles = results / voxels * (has_patches() ? lanes / block : columns(lanes, vectors)) * passes();
    cost.tile_seconds += tiles * (machine_.issue.tile + voxels * vectors) * cycle_seconds();
    if (!reads_lines() && !has_patches()) cost.tile_seconds += calls() * nest_product_cycles * cycle_seconds();
  }

  /// Returns how often the engine begins a product that yields voxels.
  double calls() const {
    double calls = tasks();
    const ProductChannels channels{.lanes = lanes_, .terms = terms_, .block = space_.channel_block};
    for (const std::size_t i : loops_around_products(loops_, task_depth(), nest_.microkernel, channels)) {
      calls *= static_cast<double>(loops_[i].trips());
    }
    return calls;
  }

  /// Taps that products of the weight gradient sum alike: how many there are, how many of them are summed together, and
  /// the channels beside them.
  struct WeightTaps {
    double count, together, rows;
  };
  /// Returns the taps that are summed together, and the others. `vectors` are those of the lanes.
  std::array<WeightTaps, 2> weight_taps(double vectors) const {
    const double block = static_cast<double>(space_.channel_block), terms = static_cast<double>(space_.of(terms_));
    const double taps = this->taps();
    const auto row = static_cast<double>(space_.of(Dim::kx));
    const auto rows_of = [&](double most) {
      const double in_block = std::min(block, terms);
      return in_block / std::ceil(in_block / most);
    };
    const WeightTaps single{taps, 1, rows_of(!wide() ? 6 : vectors == 1 ? 16 : 8)};
    if (!wide() || !has_taps_innermost()) return {WeightTaps{0, 1, 1}, single};
    if (has_row_of_taps()) {
      // Longer rows are divided, mostly into parts of four or five taps.
      const double part = row == 6 ? 3 : row <= 7 ? row : 4.5;
      const double together = std::min(taps, std::min(5.0, std::floor(25 / part)) * part);
      return {WeightTaps{taps, together, 1}, {0, 1, 1}};
    }
    // Three taps that meet padding in the same rows.
    const double of_row = std::floor(row / 3) * 3 / row, of_all = std::floor(taps / 3) * 3 / taps;
    const double grouped = taps * (reads_padding(0) || reads_padding(1) ? of_row : of_all);
    return {WeightTaps{grouped, 3, rows_of(8 / vectors)}, {taps - grouped, 1, single.rows}};
  }
  /// Returns whether the innermost loop around the products of the weight gradient runs over taps.
  bool has_taps_innermost() const {
    std::size_t i = nest_.microkernel;
    while (i > 0 && loops_[i - 1].trips() == 1) --i;
    return i > 0 && loops_[i - 1].dim >= Dim::kz;
  }
  /// Returns whether a window reads padding along an axis.
  bool reads_padding(int axis) const {
    const auto i = static_cast<std::size_t>(axis);
    const index_t taps = space_.extent[index_of(Dim::kz) + i], results = space_.extent[index_of(Dim::z) + i];
    const index_t last = (results - 1) * space_.result_step[axis] + (taps - 1) * std::abs(space_.tap_step[axis]);
    return space_.offset[axis] > 0 || last - space_.offset[axis] >= space_.source_extent[axis];
  }
  /// Returns the vectors of lanes that products of the weight gradient compute together.
  double weight_vectors() const {
    const double block = static_cast<double>(space_.channel_block);
    return wide() ? std::min(has_row_of_taps() ? 1.0 : 2.0, std::ceil(tile_of(lanes_) / block)) : 2;
  }
  /// Returns whether taps along X read neighbouring voxels of a single plain channel.
  bool has_row_of_taps() const {
    return space_.of(terms_) == 1 && layout_of(space_.windowed) == Layout::plain && space_.of(Dim::kx) >= 3 &&
           std::abs(space_.tap_step.x) == 1;
  }

  void add_weight_products(NestCost& cost) const {
    const double vectors = weight_vectors();
    const double lanes = padded_channels(space_.of(lanes_), space_.channel_block);
    const double pairs = pairs_inside(space_, 0) * pairs_inside(space_, 1) * pairs_inside(space_, 2);
    const auto terms = static_cast<double>(space_.of(terms_));
    const double products = static_cast<double>(space_.of(Dim::n)) * pairs * terms * lanes;
    double voxel_pieces = 1;
    for (std::size_t i = 0; i < nest_.microkernel; ++i) {
      const Dim dim = loops_[i].dim;
      if (dim == Dim::n || dim == Dim::z || dim == Dim::y || dim == Dim::x)
        voxel_pieces *= static_cast<double>(loops_[i].trips());
    }
    for (const WeightTaps& some : weight_taps(vectors)) {
      const double rows = some.together * some.rows;
      cost.compute_seconds +=
          2 * products * (some.count / taps()) / (peak() * machine_.direct_share * issue_share(rows, vectors));
      const double tiles = terms / some.rows * columns(lanes, vectors) * some.count / some.together * voxel_pieces;
      cost.tile_seconds += tiles * (machine_.issue.tile + rows * vectors) * cycle_seconds();
    }
  }

  /// Returns how often a result is added to: the trips of loops outside of the microkernel that sum.
  double passes() const {
    double passes = 1;
    for (std::size_t i = 0; i < nest_.microkernel; ++i) {
      if (loops_[i].dim == terms_ || loops_[i].dim >= Dim::kz) passes *= static_cast<double>(loops_[i].trips());
    }
    return passes;
  }

  const LoopNest& nest_;
  const NestSpace& space_;
  std::vector<BoundLoop> loops_;
  const MachineModel& machine_;
  double element_;
  const ConvProblem& problem_;
  Dim lanes_ = Dim::k, terms_ = Dim::c;
};

/// Returns whether two spaces cost the same. Phases of a stride differ only in the voxels and taps at which they begin.
bool equal_cost(const NestSpace& a, const NestSpace& b) {
  return a.extent == b.extent && a.result_step == b.result_step && a.tap_step == b.tap_step && a.offset == b.offset &&
         a.source_extent == b.source_extent;
}

/// Returns the seconds that it takes to write the voxels of dx that no tap reaches. They belong to no space.
double bias_seconds(const ConvProblem& problem, Direction direction, const std::vector<NestSpace>& spaces,
                    const MachineModel& machine) {
  if (direction != Direction::backward_data || problem.transposed) return 0;
  double voxels = static_cast<double>(problem.input.volume());
  for (const NestSpace& space : spaces) {
    voxels -= static_cast<double>(space.of(Dim::z)) * static_cast<double>(space.of(Dim::y)) *
              static_cast<double>(space.of(Dim::x));
  }
  const double bytes = voxels * static_cast<double>(problem.batch) * static_cast<double>(size_of(problem.type)) *
                       padded_channels(problem.in_channels / problem.groups, channel_block(problem.type));
  return bytes / (machine.l3_gb_per_s * 1e9);
}

/// Rows of millions of voxels have millions of tiles, which would take seconds to count. Of a longer axis only so many
/// results are counted.
constexpr index_t most_results = 1 << 14;

/// Shortens the long axes of a space. Returns by which factor the results become fewer.
double shorten(NestSpace& space) {
  double factor = 1;
  for (int axis = 0; axis < 3; ++axis) {
    index_t& results = space.extent[index_of(Dim::z) + static_cast<std::size_t>(axis)];
    const index_t left_out = results - most_results;
    if (left_out <= 0) continue;
    factor *= static_cast<double>(results) / static_cast<double>(most_results);
    results = most_results;
    space.source_extent[axis] -= left_out * space.result_step[axis];
    space.target_extent[axis] -= left_out * space.target_step[axis];
  }
  index_t& samples = space.extent[index_of(Dim::n)];
  if (samples > most_results) {
    factor *= static_cast<double>(samples) / static_cast<double>(most_results);
    samples = most_results;
  }
  return factor;
}

}  // namespace

void NestCost::add(const NestCost& other, double times) noexcept {
  compute_seconds += times * other.compute_seconds;
  tile_seconds += times * other.tile_seconds;
  copy_seconds += times * other.copy_seconds;
  pack_seconds += times * other.pack_seconds;
  task_seconds += times * other.task_seconds;
  for (std::size_t level = 0; level < levels; ++level) {
    bytes[level] += times * other.bytes[level];
    move_seconds[level] += times * other.move_seconds[level];
  }
}

std::size_t NestCost::slowest_level() const noexcept {
  return static_cast<std::size_t>(std::max_element(move_seconds.begin(), move_seconds.end()) - move_seconds.begin());
}

double NestCost::seconds() const noexcept {
  return std::max({compute_seconds + tile_seconds, move_seconds[0], move_seconds[1], move_seconds[2]}) + copy_seconds +
         pack_seconds + task_seconds;
}

NestCost nest_cost(const LoopNest& nest, const ConvProblem& problem, Direction direction, const MachineModel& machine) {
  NestCost cost;
  const std::vector<NestSpace> all = spaces(problem, direction);
  std::vector<NestSpace> left = all;
  while (!left.empty()) {
    NestSpace space = left.back();
    const auto equal =
        std::remove_if(left.begin(), left.end(), [&](const NestSpace& s) { return equal_cost(s, space); });
    const auto times = static_cast<double>(left.end() - equal) * shorten(space);
    left.erase(equal, left.end());
    cost.add(SpaceCost(nest, space, problem, machine).cost(), times);
  }
  cost.copy_seconds += bias_seconds(problem, direction, all, machine);
  // Weights are read once and written once in the order of the products, or the gradient's sums the other way.
  const double weights = packed_weight_bytes(problem);
  const bool cached = weights < usable[2] * static_cast<double>(machine.usable_l3_bytes);
  cost.pack_seconds = 2 * weights / ((cached ? machine.l3_gb_per_s : machine.dram_gb_per_s) * 1e9);
  return cost;
}

}  // namespace convolume::plan
