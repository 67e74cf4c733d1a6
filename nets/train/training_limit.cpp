#include "nets/train/training_limit.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "nets/base/memory_limit.hpp"
#include "nets/graph/training_memory.hpp"

namespace convolume::nets {
namespace {

[[noreturn]] void refuse(const NetSpec& spec, const TrainingLimit& limit, std::size_t needed) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  const std::string text = limit.memory != 0
                               ? fmt::format("--memory {}M", limit.memory / mebibyte)
                               : fmt::format("{}: the system allows {}M", spec.origin, memory_limit(0) / mebibyte);
  throw InvalidArgument(
      fmt::format("{}: training this net{} needs at least {}M; see convolume info --memory-curve for what takes it",
                  text, limit.tune ? " with measured choices" : "", (needed + mebibyte - 1) / mebibyte));
}

/// Returns the bytes of the process beside an iteration, and all plans.
std::pair<std::size_t, std::vector<MemoryPlan>> draft(const NetSpec& spec, NetworkOptions options, int threads,
                                                      bool recorded) {
  try {
    return {fixed_process_bytes(spec, options, threads), memory_plans(spec, options, threads)};
  } catch (const Error&) {
    if (!recorded) throw;
    options.tuned = {};
    options.recorded = {};
    return {fixed_process_bytes(spec, options, threads), memory_plans(spec, options, threads)};
  }
}

}  // namespace

TrainingRoom plan_training_room(const NetSpec& spec, NetworkOptions options, const TrainingLimit& limit,
                                bool recorded) {
  const auto [fixed, plans] = draft(spec, std::move(options), limit.threads, recorded);
  const std::size_t most = memory_limit(limit.memory);
  const MemoryPlan* plan = &default_plan(plans);
  if (limit.memory != 0 || fixed + plan->memory.peak() > most) {
    plan = fastest_within(plans, most - std::min(most, fixed));
  }
  const std::size_t least = fixed + plans.back().memory.peak();
  if (plan == nullptr && limit.memory != 0) refuse(spec, limit, least);
  // Without --memory, the system decides whether the smallest plan is too much, unless it could never hold it.
  if (plan == nullptr && least / 4 * 3 > most) refuse(spec, limit, least);
  TrainingRoom room{.plan = plan != nullptr ? *plan : plans.back()};
  const std::size_t taken = fixed - least_volume_bytes + room.plan.memory.peak();
  room.volume_bytes = most >= taken + least_volume_bytes ? most - taken : least_volume_bytes;
  return room;
}

void require_room(const TrainingRoom& room, const NetSpec& spec, const TrainingLimit& limit, std::size_t arena_bytes) {
  if (!limit.tune || limit.memory == 0) return;
  const std::size_t planned = room.plan.memory.arena;
  if (arena_bytes > planned + room.volume_bytes - least_volume_bytes) {
    refuse(spec, limit, limit.memory + arena_bytes - planned);
  }
}

}  // namespace convolume::nets
