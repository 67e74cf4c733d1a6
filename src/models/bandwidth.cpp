// Required against measured bandwidth of a convolution on a chip with scratch memories: paper 003, section 3.
#include "convolume/bandwidth.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::plan {
namespace {

constexpr double giga = 1e9;
/// Section 3.1: a multiply-add reads three vectors.
constexpr double operands_of_multiply_add = 3;
/// Table 4.
constexpr index_t least_direct_channels = 64;

void check_problem(const ConvProblem& p) {
  p.validate();
  const auto refuse = [&](const char* what, const std::string& remedy) {
    throw Unsupported(fmt::format("{}: the bandwidth model has no {}; {}", to_string(p), what, remedy));
  };
  if (p.transposed) refuse("transposed convolutions", "write the convolution whose gradient it is");
  if (p.groups != 1) {
    refuse("groups of channels",
           fmt::format("it has {} groups; write one group as a problem of its own (paper 003 has none)", p.groups));
  }
  if (p.input.z != 1 || p.kernel.z != 1) {
    refuse("volumes",
           fmt::format("it has {} planes and a kernel of {}; write a problem of one plane, with ih, oh and kh",
                       p.input.z, p.kernel.z));
  }
}

void check_options(const BandwidthOptions& o) {
  const bool single = o.issue == IssueOrder::single || o.issue == IssueOrder::float2double;
  if (single != (o.type == DataType::f32)) {
    throw InvalidArgument(fmt::format("issue order {} is for elements of type {}; with type {} use {}",
                                      name_of(o.issue), single ? "f32" : "f64", name_of(o.type),
                                      single ? "simple or reordered" : "float or float2double"));
  }
  if (o.pattern == AccessPattern::ldm) return;
  if (!o.double_buffer) {
    throw InvalidArgument("access pattern gload has no scratch memory and so no buffers; use ldm for a single buffer");
  }
  if (o.issue == IssueOrder::float2double) {
    throw InvalidArgument("issue order float2double casts in the scratch memory, which gload does not use; use float");
  }
}

double slots_of(const Chip& chip, IssueOrder order) {
  const auto need = [&](const std::optional<double>& slots, const char* field) {
    if (!slots) {
      throw InvalidArgument(
          fmt::format("chip '{}': issue.{} is missing, which issue order {} needs; write it, or use "
                      "another issue order",
                      chip.name, field, name_of(order)));
    }
    return *slots;
  };
  if (order == IssueOrder::simple) return need(chip.task.simple, "simple");
  if (order == IssueOrder::single) return need(chip.task.single, "float");
  if (order == IssueOrder::float2double) need(chip.task.cast_slots, "cast_slots");
  return chip.task.reordered;
}

/// Counts one core group.
class GroupModel {
 public:
  GroupModel(const ConvProblem& problem, const Chip& chip, const BandwidthOptions& options)
      : chip_(chip), o_(options), side_(std::round(std::sqrt(static_cast<double>(chip.cores)))) {
    const auto padded = [&](index_t n) { return std::ceil(static_cast<double>(n) / side_) * side_; };
    ni_ = padded(problem.in_channels);
    no_ = padded(problem.out_channels);
    bs_ = padded(problem.batch);
    taps_ = static_cast<double>(problem.kernel.volume());
    rows_ = problem.output().y;
    row_ = problem.output().x;
    memory_element_ = static_cast<double>(size_of(options.type));
    element_ = options.issue == IssueOrder::float2double ? 8 : memory_element_;
    vector_ = static_cast<double>(chip.vector);
    slots_ = slots_of(chip, options.issue);
  }

  BandwidthReport report(double flops) const {
    BandwidthReport r;
    r.columns = columns();
    r.cdr_one_column = cdr(1);
    r.cdr = cdr(static_cast<double>(r.columns));
    r.cdr_needed = operands_of_multiply_add * vector_ / load_elements();
    if (ldm()) {
      r.core_bytes = tile_bytes(1) / cores();
      r.tile_bytes = tile_bytes(static_cast<double>(r.columns)) / cores();
      r.tile_limit_bytes = limit_bytes() / cores();
    }
    r.ee = efficiency(static_cast<double>(r.columns));
    add_levels(r);
    r.seconds = tile_seconds(r) * tiles(r.columns);
    r.gflops = flops / r.seconds / giga;
    r.efficiency = r.gflops / chip_.gflops();
    r.bound = bound_of(r);
    return r;
  }

 private:
  bool ldm() const { return o_.pattern == AccessPattern::ldm; }
  double cores() const { return static_cast<double>(chip_.cores); }
  /// Returns the elements that a load instruction loads.
  double load_elements() const { return ldm() ? vector_ : 1; }
  /// Returns the bytes that a tile may take of a group. With two buffers it is half (section 3.3.2).
  double limit_bytes() const { return static_cast<double>(chip_.scratch_bytes) * cores() / (o_.double_buffer ? 2 : 1); }

  /// Returns the bytes of W, of `columns` of x and of as many of y (equation 3, and its extension in section 3.3.3).
  double tile_bytes(double columns) const { return (ni_ * no_ + columns * (ni_ + no_) * bs_) * element_; }

  /// Returns b_C: the largest divisor of a row of y that fits.
  index_t columns() const {
    if (!ldm()) return 1;
    if (tile_bytes(1) > limit_bytes()) refuse_size();
    index_t most = 1;
    for (index_t i = 1; i <= row_ / i; ++i) {
      if (row_ % i != 0) continue;
      for (const index_t divisor : {i, row_ / i}) {
        if (tile_bytes(static_cast<double>(divisor)) <= limit_bytes()) most = std::max(most, divisor);
      }
    }
    return most;
  }

  [[noreturn]] void refuse_size() const {
    const double buffers = o_.double_buffer ? 2 : 1, least = std::ceil(tile_bytes(1) / cores()) * buffers;
    throw Unsupported(fmt::format(
        "one column of {:.0f} input channels, {:.0f} output channels and {:.0f} samples does not fit into the {} "
        "bytes of scratch memory of chip '{}'; it needs scratch_bytes = {:.0f} at least, or a smaller batch",
        ni_, no_, bs_, chip_.scratch_bytes, chip_.name, least));
  }

  /// Returns the multiply-adds of a core for one tap.
  double multiply_adds(double columns) const { return columns * ni_ * no_ * bs_ / (cores() * vector_); }
  /// Returns the elements that a core reads for one tap: its rows of W and columns of x, which it shares with others of
  /// the mesh, and its part of y.
  double read_elements(double columns) const {
    return ni_ * no_ / side_ + columns * ni_ * bs_ / side_ + columns * no_ * bs_ / cores();
  }
  /// Returns multiply-adds per load instruction (equations 2 and 4).
  double cdr(double columns) const { return multiply_adds(columns) * load_elements() / read_elements(columns); }

  /// Returns multiply-adds per issue slot (section 3.5). Casts take slots for each vector of W and x at each tap, and
  /// for each vector of y when it comes and when it goes.
  double efficiency(double columns) const {
    const double products = multiply_adds(columns);
    double slots = products * slots_ / chip_.task.multiply_adds;
    if (o_.issue == IssueOrder::float2double) {
      const double cast = ni_ * no_ + columns * ni_ * bs_ + 2 * columns * no_ * bs_ / taps_;
      slots += *chip_.task.cast_slots * cast / (cores() * vector_);
    }
    return products / slots;
  }

  double compute_seconds(const BandwidthReport& r) const {
    return taps_ * multiply_adds(static_cast<double>(r.columns)) / (r.ee * chip_.ghz * giga);
  }

  /// Returns what DMA moves for a tile: W and x for each tap, y once in each direction (Algorithm 3). A core moves
  /// 1 / side of the input channels of W, or of the samples of x and y, at a stretch.
  std::vector<DmaStream> streams(double columns) const {
    const auto stream = [&](Operand operand, DmaDirection direction, double neighbours, double elements) {
      const double run = neighbours / side_ * memory_element_;
      return DmaStream{.operand = operand,
                       .direction = direction,
                       .run_bytes = run,
                       .bytes = elements * memory_element_,
                       .gb_per_s = dma_gb_per_s(chip_, run, direction)};
    };
    return {stream(Operand::x, DmaDirection::get, bs_, taps_ * columns * ni_ * bs_),
            stream(Operand::w, DmaDirection::get, ni_, taps_ * ni_ * no_),
            stream(Operand::y, DmaDirection::get, bs_, columns * no_ * bs_),
            stream(Operand::y, DmaDirection::put, bs_, columns * no_ * bs_)};
  }

  void add_levels(BandwidthReport& r) const {
    const double compute = compute_seconds(r);
    double bytes = 0, seconds = 0;
    if (ldm()) {
      r.streams = streams(static_cast<double>(r.columns));
      for (const DmaStream& stream : r.streams) {
        bytes += stream.bytes;
        seconds += stream.bytes / (stream.gb_per_s * giga);
      }
    } else {
      if (!chip_.gload_gb_per_s) {
        throw InvalidArgument(
            fmt::format("chip '{}': gload_gb_per_s is missing, which access pattern gload needs; write it, or use ldm",
                        chip_.name));
      }
      bytes = taps_ * read_elements(1) * memory_element_ * cores();
      seconds = bytes / (*chip_.gload_gb_per_s * giga);
    }
    r.levels.push_back({"memory", bytes / compute / giga, bytes / seconds / giga});
    // A load instruction issues each cycle. Registers wait for loads if the ratio is less than section 3.1 needs.
    const double loads = load_elements() * element_ * chip_.ghz;
    r.levels.push_back({ldm() ? "scratch" : "loads", loads * r.ee * r.cdr_needed / r.cdr, loads});
  }

  /// Returns how many times as long as the computation the loads of a level take.
  static double wait(const BandwidthLevel& level) { return level.needed_gb_per_s / level.available_gb_per_s; }

  double tile_seconds(const BandwidthReport& r) const {
    const double compute = compute_seconds(r), memory = wait(r.levels[0]), registers = std::max(1.0, wait(r.levels[1]));
    return compute * (o_.double_buffer ? std::max(registers, memory) : registers + memory);
  }

  /// Returns the tiles of the group that has most rows of y.
  double tiles(index_t columns) const {
    const double rows = std::ceil(static_cast<double>(rows_) / static_cast<double>(chip_.groups));
    return rows * static_cast<double>(row_ / columns);
  }

  static std::string bound_of(const BandwidthReport& r) {
    const auto most = std::max_element(r.levels.begin(), r.levels.end(),
                                       [](const auto& a, const auto& b) { return wait(a) < wait(b); });
    return wait(*most) > 1 ? most->name : "computation";
  }

  const Chip& chip_;
  const BandwidthOptions& o_;
  double side_, ni_ = 0, no_ = 0, bs_ = 0, taps_ = 0, vector_ = 0;
  double memory_element_ = 0, element_ = 0;  ///< bytes in memory, and in scratch memory and registers
  double slots_ = 0;                         ///< of a kernel task, without casts
  index_t rows_ = 1, row_ = 1;               ///< rows of y, and voxels of a row
};

}  // namespace

const char* name_of(AccessPattern pattern) noexcept { return pattern == AccessPattern::gload ? "gload" : "ldm"; }

const char* name_of(IssueOrder order) noexcept {
  constexpr std::array names{"simple", "reordered", "float", "float2double"};
  return names[static_cast<std::size_t>(order)];
}

BandwidthReport plan_bandwidth(const ConvProblem& problem, const Chip& chip, const BandwidthOptions& options) {
  validate(chip);
  check_problem(problem);
  check_options(options);
  return GroupModel(problem, chip, options).report(problem.flops());
}

const char* table4_way(const ConvProblem& problem) {
  if (problem.output().volume() == 1 && problem.kernel == problem.input) return "gemm";
  return std::min(problem.in_channels, problem.out_channels) >= least_direct_channels ? "direct" : "im2col";
}

}  // namespace convolume::plan
