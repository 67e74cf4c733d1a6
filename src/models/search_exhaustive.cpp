// Exhaustive search by branch and bound. The bound of a partial nest is the least energy of its completions, tabulated
// beforehand for every state (search_states.hpp), so that the search goes straight to the best nests.
#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "models/blocking_search.hpp"
#include "models/search_options.hpp"
#include "models/search_states.hpp"

namespace convolume::plan {
namespace {

constexpr std::uint32_t no_parent = std::numeric_limits<std::uint32_t>::max();
/// Tabulated energies are rounded to float. A bound must not lie above the energy.
constexpr double rounding = 1 - 1e-6;

/// A partial nest: the last loop, and the nest inside of it.
struct Label {
  std::uint32_t state = 0, parent = no_parent;
  std::uint8_t dim = 0;  // of the last loop, as an index into the dimensions of the search
  std::uint8_t open = 0;
  Status status = 0;
  double pj = 0, bytes = 0;
  // A buffer of x grows while loops over taps are added around it. These are its reads and its size so far.
  double x_reads = 0, x_bytes = 0;
};

struct Entry {
  double bound = 0;
  std::uint32_t state = 0, label = 0;
  /// The least bound is the first; of equal ones the most complete nest.
  bool operator<(const Entry& other) const {
    if (bound != other.bound) return bound > other.bound;
    if (state != other.state) return state < other.state;
    return label > other.label;
  }
};

/// Returns the price of a byte that gives about the largest bound, found with few levels. Any price gives a bound.
double byte_price(const EnergyModel& model, int levels) {
  const double limit = model.options().limit_bytes;
  if (limit == 0) return 0;
  constexpr int few_levels = 2, steps = 12;
  const auto bound = [&](double price) {
    return SearchStates(model, std::min(levels, few_levels), price).least() - price * limit;
  };
  double best_price = 0, best = bound(0);
  const double largest = best / limit;
  for (int step = 0; step < steps; ++step) {
    const double price = largest * std::exp2(-step);
    const double one = bound(price);
    if (one > best) {
      best = one;
      best_price = price;
    }
  }
  for (const double factor : {0.6, 0.8, 1.25, 1.5}) {
    const double price = best_price * factor, one = price > 0 ? bound(price) : 0;
    if (one <= best) continue;
    best = one;
    best_price = price;
    break;
  }
  return best_price;
}

class Search {
 public:
  Search(const EnergyModel& model, const SearchOptions& options)
      : model_(model),
        options_(options),
        limit_(model.options().limit_bytes),
        states_(model, options.levels, byte_price(model, options.levels)) {}

  SearchResult run() {
    const bool shared = !model_.hierarchy().free && !is_separate(model_.hierarchy());
    if (shared) begin_with_known_nests();
    begin();
    double bound = 0;
    while (!queue_.empty() && static_cast<double>(labels_.size()) < options_.most_labels) {
      const Entry entry = queue_.top();
      bound = entry.bound;
      if (found_.size() >= wanted() && bound >= worst() * (1 - equal_pj)) break;
      queue_.pop();
      expand(entry.label);
    }
    if (queue_.empty() && !found_.empty()) bound = found_.rbegin()->pj;  // nothing was left out
    return result(bound);
  }

 private:
  std::size_t wanted() const { return static_cast<std::size_t>(options_.top); }
  /// Returns the energy of the last nest that is to be returned.
  double worst() const { return std::next(found_.begin(), static_cast<std::ptrdiff_t>(wanted() - 1))->pj; }

  /// The bounds of shared memories are not tight. Good nests that are known from the beginning leave out most others.
  void begin_with_known_nests() {
    double tried = 0;
    for (const BlockLoops& loops : iterative_nests(model_, options_, &tried)) add(loops);
  }

  void begin() {
    for (const LoopCost& choice : states_.begin(states_.costs(states_.tile(0)))) {
      push({.state = 0, .parent = no_parent, .dim = 0, .open = 0, .status = choice.status, .pj = choice.pj});
    }
  }

  void push(const Label& label) {
    if (limit_ > 0 && label.bytes > limit_) return;
    const double to_go = rounding * states_.to_go(label.state, label.open, label.status);
    if (to_go == std::numeric_limits<double>::infinity()) return;
    const double bound = label.pj + to_go + states_.byte_pj() * (label.bytes - limit_);
    if (found_.size() >= wanted() && bound >= worst() * (1 - equal_pj)) return;
    labels_.push_back(label);
    queue_.push({bound, label.state, static_cast<std::uint32_t>(labels_.size() - 1)});
  }

  /// Returns whether as many nests as are wanted reach the same state with less energy and bytes. Energies of shared
  /// memories are bounds only, and a buffer of x that still grows has no final energy.
  bool is_dominated(const Label& label) {
    if (!model_.hierarchy().free || (SearchStates::bits(label.open) & 1) != 0) return false;
    const std::uint64_t key = (static_cast<std::uint64_t>(label.state) * open_sets + label.open) * 8 + label.status;
    auto& seen = seen_[key * all_dims.size() + label.dim];
    std::size_t better = 0;
    for (const auto& [pj, bytes] : seen) {
      const bool less = pj <= label.pj * (1 + equal_pj) && (limit_ == 0 || bytes <= label.bytes);
      if (less && pj >= label.pj * (1 - equal_pj) && bytes == label.bytes) return true;
      if (less) ++better;
    }
    if (better >= wanted()) return true;
    seen.emplace_back(label.pj, label.bytes);
    return false;
  }

  void expand(std::uint32_t index) {
    const Label label = labels_[index];
    if (label.state == states_.last()) {
      add(loops(index));
      return;
    }
    if (is_dominated(label)) return;
    const Tile tile = states_.tile(label.state);
    const SearchStates::TileCosts costs = states_.costs(tile);
    for (std::size_t d = 0; d < states_.dims().size(); ++d) {
      const SearchDim& dim = states_.dims()[d];
      if (label.parent != no_parent && !may_follow(states_.dims()[label.dim].dim, dim.dim)) continue;
      const std::size_t to = states_.reused(dim.dim, tile), local = states_.local(dim, label.state);
      states_.choices(costs, label.open, to, label.status, choices_);
      for (const std::uint16_t next : dim.states[local].next) {
        for (const LoopCost& choice : choices_) {
          Label more = extended(label, costs, to, choice);
          more.parent = index;
          more.dim = static_cast<std::uint8_t>(d);
          more.state = static_cast<std::uint32_t>(label.state + (next - local) * dim.stride);
          push(more);
        }
      }
    }
  }

  /// Neighbouring loops over samples and voxels cost the same in any order, and loops over one dimension are one loop.
  static bool may_follow(Dim inner, Dim outer) {
    const auto moves = [](Dim dim) { return dim == Dim::n || dim == Dim::z || dim == Dim::y || dim == Dim::x; };
    return moves(inner) && moves(outer) ? inner > outer : inner != outer;
  }

  Label extended(const Label& label, const SearchStates::TileCosts& costs, std::size_t to,
                 const LoopCost& choice) const {
    Label more = label;
    more.open = static_cast<std::uint8_t>(to);
    more.status = choice.status;
    more.pj += choice.pj;
    more.bytes += choice.bytes;
    const bool was_open = (SearchStates::bits(label.open) & 1) != 0, is_open = (SearchStates::bits(to) & 1) != 0;
    if (!model_.hierarchy().free) return more;
    if (is_open && !was_open && !costs.latched[0] && choice.status % 2 == 0) {
      more.x_reads = costs.accesses[0];
      more.x_bytes = costs.bytes[0];
    } else if (!is_open) {
      const double grown = costs.bytes[0] - label.x_bytes;
      if (label.x_reads > 0 && grown > 0) {
        more.pj += label.x_reads * (model_.price(Operand::x, costs.bytes[0]) - model_.price(Operand::x, label.x_bytes));
        more.bytes += grown;
      }
      more.x_reads = more.x_bytes = 0;
    }
    return more;
  }

  BlockLoops loops(std::uint32_t index) const {
    BlockLoops loops;
    for (; labels_[index].parent != no_parent; index = labels_[index].parent) {
      const SearchDim& dim = states_.dims()[labels_[index].dim];
      const std::uint8_t size = dim.states[states_.local(dim, labels_[index].state)].size;
      loops.push_back({dim.dim, model_.counts().sizes(dim.dim)[size]});
    }
    std::reverse(loops.begin(), loops.end());
    return loops;
  }

  void add(const BlockLoops& loops) {
    const double pj = model_.memory_pj(loops);
    if (pj == std::numeric_limits<double>::infinity()) return;
    // Nests of the same energy differ in nothing that costs something.
    const auto same = std::find_if(found_.begin(), found_.end(), [&](const Found& f) {
      return f.pj >= pj * (1 - equal_pj) && f.pj <= pj * (1 + equal_pj);
    });
    if (same == found_.end()) found_.insert({pj, loops});
    if (found_.size() > wanted()) found_.erase(std::prev(found_.end()));
  }

  SearchResult result(double bound) const {
    SearchResult result{.best = {}, .tried = static_cast<double>(labels_.size())};
    for (const Found& found : found_) result.best.push_back(model_.report(found.loops));
    const double first = found_.empty() ? 0 : found_.begin()->pj;
    result.bound_pj = std::min(bound, first);
    result.proven = !found_.empty() && bound >= first * (1 - 2e-6);
    return result;
  }

  struct Found {
    double pj;
    BlockLoops loops;
    bool operator<(const Found& other) const { return pj < other.pj; }
  };

  const EnergyModel& model_;
  SearchOptions options_;
  double limit_;
  SearchStates states_;
  std::vector<Label> labels_;
  std::priority_queue<Entry> queue_;
  std::unordered_map<std::uint64_t, std::vector<std::pair<double, double>>> seen_;
  std::set<Found> found_;
  std::vector<LoopCost> choices_;
};

}  // namespace

SearchResult search_exhaustive(const EnergyLayer& layer, const Hierarchy& hierarchy, const EnergyOptions& options,
                               const SearchOptions& search) {
  check(search);
  if (options.counts == Counts::table2) {
    throw InvalidArgument(
        "the exhaustive search counts exactly, because the rates of Table 2 do not add up from the "
        "inside; use the iterative search");
  }
  const EnergyModel model(layer, hierarchy, options);
  SearchResult result = Search(model, search).run();
  if (result.best.empty()) {
    throw InvalidArgument(
        fmt::format("no nest was found for {:g} bytes within {:g} partial nests; raise the limit, use "
                    "fewer levels, or use the iterative search",
                    options.limit_bytes, search.most_labels));
  }
  return result;
}

}  // namespace convolume::plan
