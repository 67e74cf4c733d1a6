#include "models/search_states.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::plan {
namespace {

constexpr double most_entries = 1.2e8;
constexpr std::size_t x = 0, w = 1, y = 2;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Returns the largest number of loops that can lead to a size: its prime factors.
int most_loops_to(index_t size) {
  int factors = 0;
  for (index_t prime = 2; prime * prime <= size; ++prime) {
    for (; size % prime == 0; size /= prime) ++factors;
  }
  return factors + (size > 1 ? 1 : 0);
}

SearchDim search_dim(Dim dim, const std::vector<index_t>& sizes, int levels) {
  SearchDim result{.dim = dim};
  const auto full = static_cast<std::uint8_t>(sizes.size() - 1);
  result.states.push_back({});
  for (int used = 1; used < levels; ++used) {
    for (std::uint8_t size = 1; size < full; ++size) {
      if (most_loops_to(sizes[size] / sizes[0]) >= used) result.states.push_back({.size = size, .used = used});
    }
  }
  result.states.push_back({.size = full, .used = levels});
  for (DimState& from : result.states) {
    for (std::size_t to = 0; to < result.states.size(); ++to) {
      const DimState& next = result.states[to];
      const bool one_more = next.used == from.used + 1 || next.size == full;
      if (one_more && next.size > from.size && sizes[next.size] % sizes[from.size] == 0) {
        from.next.push_back(static_cast<std::uint16_t>(to));
      }
    }
  }
  return result;
}

}  // namespace

SearchStates::SearchStates(const EnergyModel& model, int levels, double byte_pj)
    : model_(model),
      free_(model.hierarchy().free),
      separate_(free_ || is_separate(model.hierarchy())),
      byte_pj_(byte_pj) {
  radix_ = static_cast<Status>(free_ ? 2 : model.hierarchy().levels.size() + 1);
  power_ = {1, radix_, static_cast<Status>(radix_ * radix_)};
  statuses_ = static_cast<Status>(radix_ * radix_ * radix_);
  double entries = static_cast<double>(open_sets) * statuses_;
  for (const Dim dim : all_dims) {
    const std::vector<index_t>& sizes = model.counts().sizes(dim);
    if (sizes.size() == 1) continue;
    dims_.push_back(search_dim(dim, sizes, dim >= Dim::kz ? 1 : levels));
    entries *= static_cast<double>(dims_.back().states.size());
    if (entries > most_entries) {
      throw InvalidArgument(
          fmt::format("an exhaustive search of {} levels has more than {:g} states; use fewer levels, "
                      "or the iterative search",
                      levels, most_entries));
    }
    dims_.back().stride = states_;
    states_ *= static_cast<std::uint32_t>(dims_.back().states.size());
  }
  fill();
}

Tile SearchStates::tile(std::uint32_t state) const noexcept {
  Tile tile{};
  for (const SearchDim& dim : dims_) tile[static_cast<std::size_t>(dim.dim)] = dim.states[local(dim, state)].size;
  return tile;
}

OpenSet SearchStates::bits(std::size_t open) noexcept {
  constexpr std::array<OpenSet, open_sets> all{0, 1 << x, 1 << y, 1 << w, 1 << x | 1 << y};
  return all[open];
}

std::size_t SearchStates::reused(Dim dim, const Tile& inside) const noexcept {
  if (dim == Dim::k) return 1;
  if (dim == Dim::c) return 2;
  if (dim < Dim::kz) return model_.counts().layer().weights ? 3 : 0;
  return model_.counts().reuses(Operand::x, dim, inside) ? 4 : 2;
}

SearchStates::TileCosts SearchStates::costs(const Tile& tile) const {
  TileCosts costs;
  for (const Operand operand : operands) {
    const auto o = static_cast<std::size_t>(operand);
    const double words = model_.counts().footprint(operand, tile);
    costs.accesses[o] = model_.counts().accesses(operand, tile);
    costs.bytes[o] = energy_word_bytes * words;
    costs.latched[o] = model_.in_latches(operand, words);
    if (free_) {
      costs.sram_pj[o] = costs.accesses[o] * model_.price(operand, costs.bytes[o]);
    } else {
      const std::vector<MemoryLevel>& levels = model_.hierarchy().levels;
      std::size_t& level = costs.level[o];
      while (level + 1 < levels.size() && (!serves(levels[level], operand) || levels[level].bytes < costs.bytes[o])) {
        ++level;
      }
    }
  }
  return costs;
}

Status SearchStates::with(Status status, std::size_t operand, std::size_t value) const noexcept {
  return static_cast<Status>(status + (value - of(status, operand)) * power_[operand]);
}

/// Returns what accesses of an operand have cost so far in a memory that may be shared. There, buffers may be placed
/// further outside than they would be alone. If the first buffer that is at least at a level pays only what the level
/// costs more than the level inside of it, no placement costs less.
double SearchStates::paid(std::size_t operand, std::size_t status) const noexcept {
  if (separate_ || status == 0) return 0;
  return model_.level_price(operands[operand], status - 1);
}

void SearchStates::add_buffer(const TileCosts& costs, std::size_t o, std::vector<LoopCost>& choices) const {
  const std::size_t dram = radix_ - 1U, count = choices.size();
  for (std::size_t i = 0; i < count; ++i) {
    LoopCost& choice = choices[i];
    const std::size_t status = of(choice.status, o);
    if (status == dram || costs.latched[o]) continue;
    if (free_) {
      LoopCost other = choice;
      other.pj += costs.accesses[o] * model_.dram_price();
      other.status = with(choice.status, o, dram);
      const bool fits = costs.bytes[o] <= most_sram_bytes;
      if (fits) choices.push_back(other);
      LoopCost& first = choices[i];
      first = fits ? LoopCost{first.pj + costs.sram_pj[o], first.bytes + costs.bytes[o], first.status} : other;
    } else if (costs.level[o] + 1 > status) {
      choice.pj += costs.accesses[o] * (model_.level_price(operands[o], costs.level[o]) - paid(o, status));
      choice.status = with(choice.status, o, costs.level[o] + 1);
    }
  }
}

/// The reads of x depend on the tile even outside of its outermost buffer, because windows overlap. So a choice tells
/// that no further buffer follows, and pays for the DRAM.
void SearchStates::add_end_of_x(const TileCosts& costs, std::vector<LoopCost>& choices) const {
  const std::size_t dram = radix_ - 1U, count = choices.size();
  for (std::size_t i = 0; i < count; ++i) {
    LoopCost other = choices[i];
    const std::size_t status = of(other.status, x);
    if (status == dram) continue;
    other.pj += costs.accesses[x] * (model_.dram_price() - paid(x, status));
    other.status = with(other.status, x, dram);
    choices.push_back(other);
  }
}

void SearchStates::choices(const TileCosts& costs, std::size_t from, std::size_t to, Status status,
                           std::vector<LoopCost>& choices) const {
  choices.assign(1, {.pj = 0, .bytes = 0, .status = status});
  const OpenSet opened = static_cast<OpenSet>(bits(to) & ~bits(from)),
                closed = static_cast<OpenSet>(bits(from) & ~bits(to));
  for (std::size_t o = 0; o < operands.size(); ++o) {
    if ((opened >> o & 1) != 0) add_buffer(costs, o, choices);
  }
  if ((closed >> x & 1) != 0) add_end_of_x(costs, choices);
}

std::vector<LoopCost> SearchStates::begin(const TileCosts& costs) const {
  std::vector<LoopCost> choices(1);
  add_end_of_x(costs, choices);
  return choices;
}

double SearchStates::least() const {
  double least = infinity;
  for (const LoopCost& choice : begin(costs(tile(0)))) least = std::min(least, choice.pj + to_go(0, 0, choice.status));
  return least;
}

double SearchStates::end_pj(const TileCosts& costs, std::size_t open, Status status) const noexcept {
  const std::size_t dram = radix_ - 1U;
  double sum = 0;
  for (std::size_t o = 0; o < operands.size(); ++o) {
    const std::size_t at = of(status, o);
    if (at == dram) continue;
    if (o == x && (bits(open) >> x & 1) == 0) return infinity;
    sum += costs.accesses[o] * (model_.dram_price() - paid(o, at));
  }
  return sum;
}

void SearchStates::fill() {
  to_go_.assign(static_cast<std::size_t>(states_) * open_sets * statuses_, std::numeric_limits<float>::infinity());
  std::vector<LoopCost> choices;
  for (std::uint32_t state = states_; state-- > 0;) {
    const Tile tile = this->tile(state);
    const TileCosts costs = this->costs(tile);
    float* const to_go = to_go_.data() + static_cast<std::size_t>(state) * open_sets * statuses_;
    if (state == last()) {
      for (std::size_t i = 0; i < open_sets * statuses_; ++i) {
        to_go[i] = static_cast<float>(end_pj(costs, i / statuses_, static_cast<Status>(i % statuses_)));
      }
      continue;
    }
    // The least energy behind each loop, for each set that the loop reuses.
    std::array<std::vector<float>, open_sets> behind;
    for (const SearchDim& dim : dims_) {
      const std::size_t local = this->local(dim, state), to = reused(dim.dim, tile);
      for (const std::uint16_t next : dim.states[local].next) {
        const std::size_t after = state + (next - local) * dim.stride;
        const float* const from = to_go_.data() + (after * open_sets + to) * statuses_;
        std::vector<float>& least = behind[to];
        if (least.empty()) least.assign(statuses_, std::numeric_limits<float>::infinity());
        for (std::size_t s = 0; s < statuses_; ++s) least[s] = std::min(least[s], from[s]);
      }
    }
    for (std::size_t to = 0; to < open_sets; ++to) {
      if (behind[to].empty()) continue;
      for (std::size_t i = 0; i < open_sets * statuses_; ++i) {
        this->choices(costs, i / statuses_, to, static_cast<Status>(i % statuses_), choices);
        for (const LoopCost& choice : choices) {
          to_go[i] =
              std::min(to_go[i], static_cast<float>(choice.pj + byte_pj_ * choice.bytes) + behind[to][choice.status]);
        }
      }
    }
  }
}

}  // namespace convolume::plan
