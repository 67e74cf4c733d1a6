// The iterative search of paper 000, section 3.5: few levels first, then one level more, from the best nests and from
// perturbed ones.
#include "models/blocking_search.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "core/random.hpp"
#include "models/search_options.hpp"

namespace convolume::plan {
namespace {

constexpr int first_levels = 2;

/// A nest with the same number of loops over each dimension. Loops of one iteration count for nothing; they are there
/// to be moved and to grow.
struct Seed {
  double pj = 0;
  BlockLoops loops;
};

class IterativeSearch {
 public:
  IterativeSearch(const EnergyModel& model, const SearchOptions& options) : model_(model), options_(options) {
    for (const Dim dim : all_dims) {
      if (model.counts().sizes(dim).size() > 1) dims_.push_back(dim);
    }
  }

  std::vector<Seed> run() {
    std::vector<Seed> seeds;
    const int levels = std::min(first_levels, options_.levels);
    for (int i = 0; i < starts_per_seed * options_.seeds; ++i) seeds.push_back({0, random_nest(levels)});
    seeds = optimized(std::move(seeds));
    for (int level = levels + 1; level <= options_.levels; ++level) {
      const std::size_t kept = seeds.size();
      for (std::size_t i = 0; i < kept; ++i) seeds.push_back({0, perturbed(seeds[i].loops)});
      for (Seed& seed : seeds) seed.loops = with_another_level(seed.loops);
      seeds = optimized(std::move(seeds));
    }
    return seeds;
  }

  double tried() const noexcept { return tried_; }

 private:
  static constexpr int starts_per_seed = 4;

  /// Returns a number below `count`. The sequence depends on the seed alone.
  std::size_t draw(std::size_t count) {
    return static_cast<std::size_t>(uniform_below({.seed = options_.seed}, draws_++, count));
  }

  const std::vector<index_t>& sizes(Dim dim) const { return model_.counts().sizes(dim); }
  static bool is_tap(Dim dim) { return dim >= Dim::kz; }

  double evaluate(const BlockLoops& loops) {
    ++tried_;
    return model_.memory_pj(loops);
  }

  BlockLoops random_nest(int levels) {
    BlockLoops loops;
    for (const Dim dim : dims_) {
      for (int level = 0; level < (is_tap(dim) ? 1 : levels); ++level) loops.push_back({dim, sizes(dim).back()});
    }
    for (std::size_t i = loops.size(); i > 1; --i) std::swap(loops[i - 1], loops[draw(i)]);
    for (std::size_t i = 0; i < loops.size(); ++i) randomize_size(loops, i);
    return loops;
  }

  /// Sets the size of a loop to one between those of the next loops over its dimension. The outermost one stays.
  void randomize_size(BlockLoops& loops, std::size_t i) {
    const std::vector<index_t> valid = valid_sizes(loops, i);
    loops[i].extent = valid[draw(valid.size())];
  }

  /// Returns the sizes that divide the next size outside and are multiples of the next one inside.
  std::vector<index_t> valid_sizes(const BlockLoops& loops, std::size_t i) const {
    const Dim dim = loops[i].dim;
    index_t inside = sizes(dim).front(), outside = 0;
    for (std::size_t j = 0; j < loops.size(); ++j) {
      if (loops[j].dim != dim) continue;
      if (j < i) inside = loops[j].extent;
      if (j > i && outside == 0) outside = loops[j].extent;
    }
    if (outside == 0) return {sizes(dim).back()};
    std::vector<index_t> valid;
    for (const index_t size : sizes(dim)) {
      if (size % inside == 0 && outside % size == 0) valid.push_back(size);
    }
    return valid;
  }

  /// Changes some sizes and exchanges some neighbouring loops.
  BlockLoops perturbed(BlockLoops loops) {
    if (loops.size() < 2) return loops;  // nothing is blocked, or one dimension
    const std::size_t changes = 1 + draw(4);
    for (std::size_t i = 0; i < changes; ++i) {
      const std::size_t at = draw(loops.size() - 1);
      if (draw(2) == 0) {
        randomize_size(loops, at);
      } else if (loops[at].dim != loops[at + 1].dim) {
        std::swap(loops[at], loops[at + 1]);
      }
    }
    return loops;
  }

  /// Gives each dimension one more loop, outside of all. Its iterations come when the loop inside of it shrinks.
  BlockLoops with_another_level(BlockLoops loops) const {
    std::set<Dim> done;
    BlockLoops outer;
    for (std::size_t i = loops.size(); i-- > 0;) {
      if (!is_tap(loops[i].dim) && done.insert(loops[i].dim).second) outer.push_back(loops[i]);
    }
    std::reverse(outer.begin(), outer.end());
    loops.insert(loops.end(), outer.begin(), outer.end());
    return loops;
  }

  /// Optimises all nests and returns the best ones, as many as there are seeds, no two of the same energy.
  std::vector<Seed> optimized(std::vector<Seed> seeds) {
    for (Seed& seed : seeds) climb(seed);
    std::stable_sort(seeds.begin(), seeds.end(), [](const Seed& a, const Seed& b) { return a.pj < b.pj; });
    std::vector<Seed> best;
    for (Seed& seed : seeds) {
      if (!best.empty() && seed.pj <= best.back().pj * (1 + equal_pj)) continue;
      best.push_back(std::move(seed));
      if (best.size() == static_cast<std::size_t>(options_.seeds)) break;
    }
    return best;
  }

  /// Takes every change that saves energy, until there is none.
  void climb(Seed& seed) {
    seed.pj = evaluate(seed.loops);
    for (bool better = true; better;) {
      better = try_sizes(seed);
      better = try_moves(seed) || better;
      if (!better) better = try_shifts(seed);
    }
  }

  bool take_if_better(Seed& seed, const BlockLoops& loops) {
    const double pj = evaluate(loops);
    if (pj >= seed.pj * (1 - equal_pj)) return false;
    seed = {pj, loops};
    return true;
  }

  bool try_sizes(Seed& seed) {
    bool better = false;
    for (std::size_t i = 0; i < seed.loops.size(); ++i) {
      for (const index_t size : valid_sizes(seed.loops, i)) {
        if (size == seed.loops[i].extent) continue;
        BlockLoops changed = seed.loops;
        changed[i].extent = size;
        better = take_if_better(seed, changed) || better;
      }
    }
    return better;
  }

  /// Moves a loop to any place between the next loops over its dimension.
  bool try_moves(Seed& seed) {
    bool better = false;
    for (std::size_t i = 0; i < seed.loops.size(); ++i) {
      for (const int step : {-1, 1}) {
        BlockLoops moved = seed.loops;
        for (std::size_t at = i; step < 0 ? at > 0 : at + 1 < moved.size();) {
          const std::size_t to = step < 0 ? at - 1 : at + 1;
          if (moved[at].dim == moved[to].dim) break;
          std::swap(moved[at], moved[to]);
          at = to;
          if (take_if_better(seed, moved)) {
            better = true;
            break;
          }
        }
      }
    }
    return better;
  }

  /// Changes the sizes of two loops at once: what one tile gains another one gives.
  bool try_shifts(Seed& seed) {
    for (std::size_t i = 0; i < seed.loops.size(); ++i) {
      for (const index_t size : valid_sizes(seed.loops, i)) {
        if (size == seed.loops[i].extent) continue;
        BlockLoops changed = seed.loops;
        changed[i].extent = size;
        for (std::size_t j = i + 1; j < changed.size(); ++j) {
          const index_t before = changed[j].extent;
          for (const index_t other : valid_sizes(changed, j)) {
            changed[j].extent = other;
            if (other != before && take_if_better(seed, changed)) return true;
          }
          changed[j].extent = before;
        }
      }
    }
    return false;
  }

  const EnergyModel& model_;
  SearchOptions options_;
  std::vector<Dim> dims_;
  std::uint64_t draws_ = 0;
  double tried_ = 0;
};

}  // namespace

void check(const SearchOptions& options) {
  const auto refuse = [](const char* what, int value, int least, int most) {
    throw InvalidArgument(fmt::format("{} is {}; valid are {} to {}", what, value, least, most));
  };
  constexpr int most_levels = 5, most_top = 1000, most_seeds = 4096;
  if (options.levels < 1 || options.levels > most_levels)
    refuse("the number of levels", options.levels, 1, most_levels);
  if (options.top < 1 || options.top > most_top) refuse("the number of nests to return", options.top, 1, most_top);
  if (options.seeds < 1 || options.seeds > most_seeds) refuse("the number of seeds", options.seeds, 1, most_seeds);
  if (!(options.most_labels >= 1 && options.most_labels <= 1e8)) {
    throw InvalidArgument(fmt::format("the number of partial nests is {}; valid are 1 to 1e8", options.most_labels));
  }
}

std::vector<BlockLoops> iterative_nests(const EnergyModel& model, const SearchOptions& search, double* tried) {
  check(search);
  IterativeSearch iterative(model, search);
  std::vector<BlockLoops> nests;
  for (Seed& seed : iterative.run()) {
    if (std::isfinite(seed.pj)) nests.push_back(std::move(seed.loops));
  }
  *tried += iterative.tried();
  return nests;
}

SearchResult search_iterative(const EnergyLayer& layer, const Hierarchy& hierarchy, const EnergyOptions& options,
                              const SearchOptions& search) {
  const EnergyModel model(layer, hierarchy, options);
  SearchResult result;
  for (const BlockLoops& loops : iterative_nests(model, search, &result.tried)) {
    if (result.best.size() == static_cast<std::size_t>(search.top)) break;
    result.best.push_back(model.report(loops));
  }
  return result;
}

}  // namespace convolume::plan
