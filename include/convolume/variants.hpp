// Variants of a loop nest: orders and tiles of the loops around a microkernel, ranked by models and by measurement
// (paper 004). Engines are reached by callbacks only. docs/planning.md explains it.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convolume/machine.hpp"
#include "convolume/nest.hpp"
#include "convolume/version.hpp"

namespace convolume::plan {

/// Which variants there are. `orders`: all orders of the loops over k, c, z, y, kz, ky and kx that have more than one
/// step around the microkernel. `tiles`: the default order with tiles of 16, 64 or all channels of each side and of 1,
/// 7, 14, 28 or all rows. `all`: the orders, and then every order with every tile. The first variant is always the
/// default order (k c z y kz ky kx, paper 004, figure 6).
enum class VariantSpace { orders, tiles, all };

struct VariantOptions {
  VariantSpace space = VariantSpace::orders;
  std::size_t limit = 720;  ///< of more candidates, a fixed hash of their texts takes so many
};

/// Bytes of working sets in the caches of reuse_levels(), the smallest first, and last in memory, by algorithm 2. If
/// there are fewer than three caches, the places before memory are 0.
using LevelBytes = std::array<double, 4>;

struct Variant {
  LoopNest nest{};
  double reuse_cost = 0;             ///< of all spaces of the direction
  double model_seconds = 0;          ///< NestCost::seconds()
  LevelBytes level_bytes{};          ///< of all spaces of the direction together
  std::optional<double> measured{};  ///< seconds
};

struct VariantList {
  std::vector<Variant> variants{};               ///< those that are accepted, the default order first if it is
  std::size_t candidates = 0;                    ///< distinct nests, before the limit
  std::size_t taken = 0;                         ///< after it
  std::map<std::string, std::size_t> refused{};  ///< reasons, and how many candidates have them
};

/// Returns the reason why a nest is refused; an empty text accepts it.
using AcceptVariant = std::function<std::string(const LoopNest&)>;

/// Returns the candidates of a direction with equal texts counted once. The microkernel has a row of up to 14 voxels
/// and two channel blocks of the result (backward weights: one row, and one block of each side). Samples are tasks.
/// Deterministic. Throws Unsupported for problems with groups, InvalidArgument for a limit of 0.
CONVOLUME_API std::vector<LoopNest> variant_nests(const ConvProblem& problem, Direction direction,
                                                  const VariantOptions& options);

/// Returns the candidates that `accept` accepts, with what the models say. Throws as variant_nests() does.
CONVOLUME_API VariantList variants(const ConvProblem& problem, Direction direction, const VariantOptions& options,
                                   const MachineModel& machine, const AcceptVariant& accept);

enum class VariantRank { reuse, seconds };
/// Returns the indices of variants, the best by a model first. Equal ones are ordered by the other model, then by their
/// place in the list.
CONVOLUME_API std::vector<std::size_t> ranked(std::span<const Variant> variants, VariantRank rank);

/// How variants are measured. Functions return seconds of one execution.
struct VariantTimer {
  std::function<double(const LoopNest&)> measure;
  std::function<double()> measure_automatic;  ///< the library's own choice
  /// Called after each measurement with its number and the number of all. Returns false to end.
  std::function<bool(std::size_t, std::size_t)> on_progress;
};

/// A variant that is measured in turn with others. Without an index, it is the library's own choice.
struct Finalist {
  std::string name;  ///< "pick", "best", "default" or "automatic"
  std::optional<std::size_t> index;
  std::vector<double> rounds{};  ///< seconds

  /// Returns the lower quartile of the rounds.
  CONVOLUME_API double seconds() const;
};

/// The measurement of one problem.
struct VariantContest {
  static constexpr std::size_t control_every = 16, rounds = 9;
  static constexpr double steady_ratio = 1.1;
  std::size_t pick = 0;  ///< the fastest of those that a rank puts first
  std::size_t best = 0;  ///< the fastest of all
  /// Seconds of the default order at the begin and after every sixteenth variant.
  std::vector<double> control{};
  bool steady = true;  ///< the longest control takes at most 1.1 times the shortest
  int passes = 1;      ///< 2 if the first pass was unsteady
  std::vector<Finalist> finalists{};

  CONVOLUME_API const Finalist& finalist(std::string_view name) const;
};

/// Measures all variants and sets Variant::measured. The default order is measured again after every sixteenth variant.
/// If its times differ by more than 10 %, all are measured once more. Then the pick (the fastest of `first`), the best,
/// the default order and the library's choice are measured in turn in nine rounds, because the least of many noisy
/// times is too small. Returns nothing if on_progress() returned false.
CONVOLUME_API std::optional<VariantContest> measure_variants(std::vector<Variant>& variants,
                                                             std::span<const std::size_t> first,
                                                             const VariantTimer& timer);

}  // namespace convolume::plan
