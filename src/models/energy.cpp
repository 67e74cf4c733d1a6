#include "convolume/energy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convolume/error.hpp"
#include "core/lazy.hpp"
#include "models/energy_model.hpp"
#include "plan/groups.hpp"
#include "plan/nest/index_of.hpp"

namespace convolume::plan {
namespace {

constexpr std::array buffer_names{"IB", "KB", "OB"};

index_t padded(index_t channels, index_t step) { return (channels + step - 1) / step * step; }

void check(const EnergyOptions& options) {
  const auto positive = [](double value) { return value > 0 && std::isfinite(value); };
  if (!(options.mac_pj >= 0 && std::isfinite(options.mac_pj))) {
    throw InvalidArgument(fmt::format("the energy of a multiply-add is {}; it is at least 0 pJ", options.mac_pj));
  }
  if (options.register_pj && !positive(*options.register_pj)) {
    throw InvalidArgument(fmt::format("the energy of a register file is {}; it is positive", *options.register_pj));
  }
  if (options.word_bits != 0) access_pj(1024, options.word_bits);
  if (!(options.limit_bytes >= 0 && std::isfinite(options.limit_bytes))) {
    throw InvalidArgument(
        fmt::format("the limit of all memories is {} bytes; it is positive, or 0 for none", options.limit_bytes));
  }
}

/// A row of Table 4.
struct Row {
  const char* name;
  index_t x, y, c, k, f;
};
constexpr std::array table4{
    Row{"conv1", 256, 256, 256, 384, 11}, Row{"conv2", 500, 375, 32, 48, 9}, Row{"conv3", 32, 32, 108, 200, 4},
    Row{"conv4", 56, 56, 128, 256, 3},    Row{"conv5", 28, 28, 256, 512, 3}, Row{"fc1", 1, 1, 200, 100, 1},
    Row{"fc2", 1, 1, 4096, 4096, 1},      Row{"pool", 56, 56, 128, 1, 2},    Row{"lrn", 55, 55, 96, 1, 1}};

/// Layers without sums over channels: each channel is a sample of one channel.
EnergyLayer channelwise(const Row& row, index_t batch) {
  const bool pool = std::string_view(row.name) == "pool";
  constexpr index_t lrn_channels = 5;
  ConvProblem problem;
  problem.in_channels = problem.out_channels = 1;
  if (pool) {
    problem.batch = batch * row.c;
    problem.input = {1, 2 * row.y, 2 * row.x};
    problem.kernel = {1, row.f, row.f};
    problem.stride = {1, 2, 2};
  } else {
    problem.batch = batch;
    problem.input = {row.c + lrn_channels - 1, row.y, row.x};
    problem.kernel = {lrn_channels, 1, 1};
  }
  EnergyLayer layer = energy_layer(problem, {.c = 1, .k = 1}, row.name);
  layer.weights = false;
  return layer;
}

}  // namespace

double EnergyReport::memory_pj() const noexcept {
  double sum = broadcast_pj + shuffle_pj;
  for (std::size_t o = 0; o < operands.size(); ++o) sum += sram_pj[o] + dram_pj[o];
  return sum;
}

EnergyLayer energy_layer(ConvProblem problem, Datapath datapath, std::string name) {
  if (datapath.c < 1 || datapath.k < 1) {
    throw InvalidArgument(
        fmt::format("a datapath of {} x {} channels multiplies nothing; use at least 1 x 1", datapath.c, datapath.k));
  }
  if (problem.transposed || problem.groups != 1) {
    throw Unsupported(
        "energies are counted for convolutions with one group that are not transposed; describe one "
        "group as a problem of its own");
  }
  problem.validate();
  EnergyLayer layer{.name = name.empty() ? to_string(problem) : std::move(name), .space = {}, .datapath = datapath};
  layer.macs = static_cast<double>(problem.batch) * static_cast<double>(problem.in_channels) *
               static_cast<double>(problem.out_channels);
  const Extent3 output = problem.output();
  for (int axis = 0; axis < 3; ++axis) {
    layer.macs *= static_cast<double>(output[axis]) * static_cast<double>(problem.kernel[axis]);
  }
  problem.in_channels = padded(problem.in_channels, datapath.c);
  problem.out_channels = padded(problem.out_channels, datapath.k);
  layer.space = spaces(problem, Direction::forward).front();
  return layer;
}

const std::vector<std::string>& table4_layers() {
  static constinit Lazy<const std::vector<std::string>> names;
  return names.get([] {
    std::vector<std::string> all;
    for (const Row& row : table4) all.emplace_back(row.name);
    return all;
  });
}

EnergyLayer table4_layer(std::string_view name, std::optional<index_t> batch, Datapath datapath) {
  const auto row = std::find_if(table4.begin(), table4.end(), [&](const Row& r) { return name == r.name; });
  if (row == table4.end()) {
    throw InvalidArgument(fmt::format("there is no layer '{}'; valid are {}", name, fmt::join(table4_layers(), ", ")));
  }
  constexpr index_t samples_of_fc = 64;
  const bool fully_connected = name.starts_with("fc");
  const index_t samples = batch.value_or(fully_connected ? samples_of_fc : 1);
  if (name == "pool" || name == "lrn") return channelwise(*row, samples);
  ConvProblem problem;
  problem.batch = samples;
  problem.in_channels = row->c;
  problem.out_channels = row->k;
  problem.kernel = {1, row->f, row->f};
  problem.input = {1, row->y + row->f - 1, row->x + row->f - 1};
  return energy_layer(problem, datapath, row->name);
}

EnergyModel::EnergyModel(const EnergyLayer& layer, const Hierarchy& hierarchy, const EnergyOptions& options)
    : counts_(layer), hierarchy_(hierarchy), options_(options) {
  check(options);
  validate(hierarchy);
  if (options.limit_bytes > 0 && !hierarchy.free) {
    throw InvalidArgument(fmt::format("a limit of {} bytes needs the hierarchy 'free'; '{}' has memories of its own",
                                      options.limit_bytes, hierarchy.name));
  }
  for (const Operand operand : operands) {
    for (std::size_t i = 0; i < hierarchy.levels.size(); ++i) {
      const MemoryLevel& level = hierarchy.levels[i];
      const double bytes = i + 1 < hierarchy.levels.size() ? level.bytes : 2 * most_sram_bytes;
      level_price_[index_of(operand)].push_back(level.pj_per_word.value_or(price(operand, bytes)));
    }
    check_rising(operand);
  }
}

/// Levels whose energy is given may lie between levels of Table 3.
void EnergyModel::check_rising(Operand operand) const {
  double before = 0;
  for (std::size_t i = 0; i < hierarchy_.levels.size(); ++i) {
    if (!serves(hierarchy_.levels[i], operand)) continue;
    const double pj = level_price(operand, i);
    if (pj < before) {
      throw InvalidArgument(
          fmt::format("hierarchy '{}': level {} ('{}'): pj_per_word: {:.4g} for {} is less than {:.4g} "
                      "of the level inside of it; energies rise outwards",
                      hierarchy_.name, i, hierarchy_.levels[i].name, pj, name_of(operand), before));
    }
    before = pj;
  }
}

double EnergyModel::price(Operand operand, double bytes) const {
  const double registers = std::max(most_register_bytes, energy_word_bytes * counts_.latch_words(operand));
  if (options_.register_pj && bytes <= registers) return *options_.register_pj;
  constexpr int wide = 512, narrow = 256;
  const int bits = options_.word_bits != 0 ? options_.word_bits : operand == Operand::w ? wide : narrow;
  return access_pj(bytes, bits);
}

double EnergyModel::dram_price() const noexcept { return level_price_[0].back(); }

std::array<std::size_t, 3> EnergyModel::latched(const BufferChains& chains) const noexcept {
  std::array<std::size_t, 3> count{};
  for (const Operand operand : operands) {
    const BufferChain& chain = chains[index_of(operand)];
    std::size_t& i = count[index_of(operand)];
    while (i < chain.count && in_latches(operand, chain.buffers[i].words)) ++i;
  }
  return count;
}

EnergyModel::Cut EnergyModel::best_cut(const BufferChains& chains) const {
  constexpr std::size_t most = BufferChain::most + 1;
  const std::array<std::size_t, 3> first = latched(chains);
  std::array<std::array<double, most>, 3> pj{}, bytes{};
  for (const Operand operand : operands) {
    const std::size_t o = index_of(operand);
    const BufferChain& chain = chains[o];
    double inside = 0, held = 0;
    for (std::size_t i = first[o]; i <= chain.count; ++i) {
      const double asked = i < chain.count ? chain.buffers[i].reads : chain.dram;
      pj[o][i] = inside + asked * dram_price();
      bytes[o][i] = held;
      if (i == chain.count) break;
      const double size = energy_word_bytes * chain.buffers[i].words;
      inside += asked * price(operand, size);
      held += size > most_sram_bytes ? std::numeric_limits<double>::infinity() : size;
    }
  }
  const double limit = options_.limit_bytes > 0 ? options_.limit_bytes : std::numeric_limits<double>::max();
  Cut best{.memories = first, .pj = std::numeric_limits<double>::infinity()};
  for (std::size_t x = first[0]; x <= chains[0].count; ++x) {
    for (std::size_t w = first[1]; w <= chains[1].count; ++w) {
      for (std::size_t y = first[2]; y <= chains[2].count; ++y) {
        const double sum = pj[0][x] + pj[1][w] + pj[2][y];
        if (sum < best.pj && bytes[0][x] + bytes[1][w] + bytes[2][y] <= limit) {
          best = {.memories = {x, w, y}, .pj = sum};
        }
      }
    }
  }
  return best;
}

double EnergyModel::memory_pj(const BlockLoops& loops) const {
  BufferChains chains;
  counts_.chains(loops, options_.counts, chains);
  if (hierarchy_.free) return best_cut(chains).pj;
  const std::array<std::size_t, 3> first = latched(chains);
  Placement placement;
  pack(chains, first, hierarchy_, placement);
  const std::size_t dram = hierarchy_.levels.size() - 1;
  double sum = 0;
  for (const Operand operand : operands) {
    const std::size_t o = index_of(operand);
    const BufferChain& chain = chains[o];
    std::size_t before = hierarchy_.levels.size();
    for (std::size_t i = first[o]; i < chain.count; ++i) {
      if (placement[o][i] != before) sum += chain.buffers[i].reads * level_price(operand, placement[o][i]);
      before = placement[o][i];
    }
    if (before != dram) sum += chain.dram * dram_price();
  }
  return sum;
}

void EnergyModel::report_free(const BufferChains& chains, EnergyReport& report) const {
  const Cut cut = best_cut(chains);
  const std::array<std::size_t, 3> first = latched(chains);
  MemoryUse dram{.name = hierarchy_.levels.back().name};
  dram.pj_per_word.fill(dram_price());
  for (const Operand operand : operands) {
    const std::size_t o = index_of(operand);
    const BufferChain& chain = chains[o];
    for (std::size_t i = first[o]; i < cut.memories[o]; ++i) {
      const BufferUse& buffer = chain.buffers[i];
      MemoryUse memory{.name = fmt::format("{}{}", buffer_names[o], i - first[o]),
                       .bytes = energy_word_bytes * buffer.words};
      memory.pj_per_word[o] = price(operand, memory.bytes);
      memory.accesses[o] = buffer.reads;
      memory.held[o] = buffer.words;
      report.sram_pj[o] += buffer.reads * memory.pj_per_word[o];
      report.sram_bytes += memory.bytes;
      report.memories.push_back(memory);
    }
    dram.accesses[o] = cut.memories[o] < chain.count ? chain.buffers[cut.memories[o]].reads : chain.dram;
    report.dram_pj[o] = dram.accesses[o] * dram_price();
  }
  report.memories.push_back(dram);
}

void EnergyModel::report_fixed(const BufferChains& chains, EnergyReport& report) const {
  const std::array<std::size_t, 3> first = latched(chains);
  Placement placement;
  pack(chains, first, hierarchy_, placement);
  for (std::size_t i = 0; i < hierarchy_.levels.size(); ++i) {
    const MemoryLevel& level = hierarchy_.levels[i];
    MemoryUse memory{.name = level.name, .bytes = level.bytes, .shared = level.shared};
    for (const Operand operand : operands) memory.pj_per_word[index_of(operand)] = level_price(operand, i);
    report.memories.push_back(memory);
    report.sram_bytes += memory.bytes;
  }
  for (const Operand operand : operands) {
    const std::size_t o = index_of(operand), dram = hierarchy_.levels.size() - 1;
    const BufferChain& chain = chains[o];
    std::size_t before = hierarchy_.levels.size();
    for (std::size_t i = first[o]; i < chain.count; ++i) {
      MemoryUse& memory = report.memories[placement[o][i]];
      memory.held[o] = chain.buffers[i].words;
      if (placement[o][i] != before) memory.accesses[o] = chain.buffers[i].reads;
      before = placement[o][i];
    }
    if (before != dram) report.memories[dram].accesses[o] = chain.dram;
    for (std::size_t i = 0; i < dram; ++i) {
      report.sram_pj[o] += report.memories[i].accesses[o] * report.memories[i].pj_per_word[o];
    }
    report.dram_pj[o] = report.memories[dram].accesses[o] * dram_price();
  }
}

EnergyReport EnergyModel::report(const BlockLoops& loops) const {
  EnergyReport report;
  report.nest = nest_of(loops, counts_.layer());
  report.string = blocking_string(report.nest);
  report.macs = counts_.layer().macs;
  report.mac_pj = report.macs * options_.mac_pj;
  BufferChains chains;
  counts_.chains(loops, options_.counts, chains);
  if (hierarchy_.free) {
    report_free(chains, report);
  } else {
    report_fixed(chains, report);
  }
  report.area_mm2 = chip_area_mm2(report.sram_bytes);
  return report;
}

EnergyReport nest_energy(const LoopNest& nest, const EnergyLayer& layer, const Hierarchy& hierarchy,
                         const EnergyOptions& options) {
  const EnergyModel model(layer, hierarchy, options);
  return model.report(block_loops(nest, model.counts()));
}

std::vector<std::string> energy_assumptions(const EnergyLayer& layer, const Hierarchy& hierarchy,
                                            const EnergyOptions& options) {
  std::vector<std::string> all;
  all.emplace_back(
      "Words have 16 bits. Energies of memories come from Table 3 of the paper, interpolated on logarithmic scales.");
  all.push_back(fmt::format("A multiply-add costs {} pJ. The paper does not publish it.", options.mac_pj));
  all.emplace_back("The area is our fit to two points of the paper: 0.8 mm2 + 5.5 mm2 per MiB.");
  if (options.word_bits == 0) all.emplace_back("Memories of x and y are 256 bits wide, those of w 512 bits.");
  if (options.register_pj) {
    all.push_back(
        fmt::format("Memories up to {:g} bytes, and latches of the datapath, are register files of {} pJ per word.",
                    most_register_bytes, *options.register_pj));
  } else {
    all.push_back(
        fmt::format("Memories below 1 KiB go on with the slope of Table 3, down to {} pJ.", least_register_pj));
  }
  all.emplace_back(options.free_latches ? "What the datapath holds for one step costs no access."
                                        : "What the datapath holds for one step is a buffer as others are.");
  all.emplace_back(options.counts == Counts::exact
                       ? "A buffer is read once per pass; a window that slides inside of a tile shifts its registers."
                       : "Reads follow Table 2 and equation 1 to the letter.");
  const NestSpace& space = layer.space;
  if (space.macs() > 1.0001 * layer.macs) {
    all.push_back(fmt::format("Channels are padded to {} x {}; pads count as words and accesses, not as multiply-adds.",
                              space.of(Dim::c), space.of(Dim::k)));
  }
  if (!layer.weights) all.emplace_back("The layer has no weights, and is computed one channel at a time.");
  if (hierarchy.free) all.emplace_back("Each buffer is a memory of its own size.");
  return all;
}

}  // namespace convolume::plan
