// Algorithms 1 and 2 and equation 1 of paper 004. An element of a tensor is a product of coordinates, each of which
// depends on one dimension, or on the results and the taps of one axis. So the iterations that use an element are a
// product too, and the first or the last one in the order of the nest is found for each coordinate alone.
#include "convolume/reuse.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "plan/cost_constants.hpp"
#include "plan/nest/index_of.hpp"
#include "plan/nest/nest_text.hpp"
#include "plan/nest/window_reuse.hpp"
#include "plan/nest/working_sets.hpp"

namespace convolume::plan {
namespace {

using Positions = std::vector<index_t>;

/// The reuse of one operand.
class OperandReuse {
 public:
  OperandReuse(const NestSpace& space, std::span<const BoundLoop> loops, Operand operand)
      : space_(space), loops_(loops), operand_(operand) {
    if (operand != space.windowed) return;
    for (int axis = 0; axis < 3; ++axis) axes_.emplace_back(space, axis, loops);
    for (const WindowReuse& axis : axes_) firsts_.push_back(axis.first());
  }

  /// Returns the reuse that a loop carries, without working sets, or nothing if it carries none.
  std::optional<Dependence> carried_by(std::size_t loop) const {
    const bool own_axis = std::any_of(axes_.begin(), axes_.end(), [&](const auto& axis) { return axis.has(loop); });
    if (loops_[loop].trips() < 2 || (!own_axis && touches(space_, operand_, loops_[loop].dim))) return std::nullopt;
    const Positions start(loops_.size());
    Dependence found{.operand = operand_, .loop = loop, .source = start, .first_target = start, .last_target = start};
    if (!own_axis) found.first_target[loop] = 1;
    write_last(loop, found.last_target);
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      const auto source = axes_[i].has(loop) ? axes_[i].first_source(loop) : firsts_[i];
      if (!source) return std::nullopt;
      const WindowReuse::Targets targets = axes_[i].targets(*source, loop);
      axes_[i].write(*source, found.source);
      axes_[i].write(targets.first, found.first_target);
      axes_[i].write(targets.last, found.last_target);
    }
    return found;
  }

 private:
  bool is_free(Dim dim) const { return !touches(space_, operand_, dim); }

  /// Writes the last positions, from `loop` on, of the dimensions that do not decide the element. Loops outside are at
  /// their start, so the tile inside is whole.
  void write_last(std::size_t loop, Positions& positions) const {
    std::array<std::optional<index_t>, all_dims.size()> rest{};
    for (std::size_t i = loop; i < loops_.size(); ++i) {
      if (!is_free(loops_[i].dim)) continue;
      std::optional<index_t>& left = rest[index_of(loops_[i].dim)];
      if (!left) left = loops_[i].extent - 1;
      positions[i] = *left / loops_[i].step;
      *left %= loops_[i].step;
    }
  }

  const NestSpace& space_;
  std::span<const BoundLoop> loops_;
  Operand operand_;
  std::vector<WindowReuse> axes_;  ///< of the windowed operand only
  std::vector<std::optional<WindowReuse::Pair>> firsts_;
};

void check_level(const ReuseLevel& level, const std::string& name, bool sized) {
  const auto check = [&](const char* what, double value, const char* unit) {
    if (!(value > 0) || !std::isfinite(value)) {
      throw InvalidArgument(fmt::format("{} of {} = {} {}: write a positive number", what, name, value, unit));
    }
  };
  if (sized) check("size", level.bytes, "bytes");
  check("latency", level.latency, "ns");
  check("bandwidth", level.bandwidth, "GB/s");
}

}  // namespace

std::vector<Dependence> dependences(const LoopNest& nest, const NestSpace& space) {
  const std::vector<BoundLoop> loops = bind(nest, space);
  if (loops.size() > most_loops) {
    throw InvalidArgument(
        fmt::format("nest '{}' has {} loops; use at most {}", to_string(nest), loops.size(), most_loops));
  }
  WorkingSets sets(space, loops);
  std::vector<Dependence> all;
  for (const Operand operand : operands) {
    const OperandReuse reuse(space, loops, operand);
    for (std::size_t loop = 0; loop < loops.size(); ++loop) {
      std::optional<Dependence> found = reuse.carried_by(loop);
      if (!found) continue;
      found->first = sets.between(found->source, found->first_target);
      found->last = found->single() ? found->first : sets.between(found->source, found->last_target);
      all.push_back(std::move(*found));
    }
  }
  return all;
}

std::vector<double> working_set_bytes(std::span<const Dependence> dependences, std::size_t element_bytes) {
  std::vector<double> sets;
  const auto add = [&](const Words& words) {
    sets.push_back(static_cast<double>(words.all()) * static_cast<double>(element_bytes));
  };
  for (const Dependence& one : dependences) {
    add(one.first);
    if (!one.single()) add(one.last);
  }
  return sets;
}

void ReuseLevels::validate() const {
  for (std::size_t i = 0; i < caches.size(); ++i) {
    check_level(caches[i], fmt::format("cache {}", i + 1), true);
    if (i > 0 && !(caches[i].bytes > caches[i - 1].bytes)) {
      throw InvalidArgument(
          fmt::format("cache {} has {} bytes and cache {} has {}; write caches that grow, the "
                      "smallest first",
                      i, caches[i - 1].bytes, i + 1, caches[i].bytes));
    }
  }
  check_level(memory, "memory", false);
}

ReuseLevels reuse_levels(const MachineModel& machine) {
  const std::array bytes{static_cast<double>(machine.l1_bytes), static_cast<double>(machine.usable_l2_bytes),
                         usable_l3_share * static_cast<double>(machine.usable_l3_bytes)};
  const std::array bandwidths{machine.l1_gb_per_s, machine.l2_gb_per_s, machine.l3_gb_per_s};
  ReuseLevels levels{.caches = {},
                     .memory = {.latency = machine.latency_ns.back(), .bandwidth = machine.dram_gb_per_s}};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (!levels.caches.empty() && bytes[i] <= levels.caches.back().bytes) continue;
    levels.caches.push_back({.bytes = bytes[i], .latency = machine.latency_ns[i], .bandwidth = bandwidths[i]});
  }
  return levels;
}

PackedSets pack(std::span<const double> working_sets, std::span<const double> caches) {
  std::vector<std::size_t> order(working_sets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return working_sets[a] < working_sets[b]; });
  PackedSets packed{.cache_bytes = std::vector<double>(caches.size()),
                    .memory_bytes = 0,
                    .places = std::vector<std::size_t>(working_sets.size(), caches.size())};
  for (const std::size_t i : order) {
    std::size_t& place = packed.places[i];
    place = 0;
    while (place < caches.size() && packed.cache_bytes[place] + working_sets[i] > caches[place]) ++place;
    (place < caches.size() ? packed.cache_bytes[place] : packed.memory_bytes) += working_sets[i];
  }
  return packed;
}

double reuse_cost(const PackedSets& sets, const ReuseLevels& levels) {
  if (sets.cache_bytes.size() != levels.caches.size()) {
    throw InvalidArgument(fmt::format("working sets are packed into {} caches, but {} have prices; use the same caches",
                                      sets.cache_bytes.size(), levels.caches.size()));
  }
  double cost = sets.memory_bytes * levels.memory.price();
  for (std::size_t i = 0; i < levels.caches.size(); ++i) cost += sets.cache_bytes[i] * levels.caches[i].price();
  return cost;
}

PackedSets pack(const LoopNest& nest, const NestSpace& space, std::size_t element_bytes, const ReuseLevels& levels) {
  std::vector<double> caches;
  for (const ReuseLevel& cache : levels.caches) caches.push_back(cache.bytes);
  return pack(working_set_bytes(dependences(nest, space), element_bytes), caches);
}

double reuse_cost(const LoopNest& nest, std::span<const NestSpace> spaces, std::size_t element_bytes,
                  const ReuseLevels& levels) {
  double cost = 0;
  for (const NestSpace& space : spaces) cost += reuse_cost(pack(nest, space, element_bytes, levels), levels);
  return cost;
}

}  // namespace convolume::plan
