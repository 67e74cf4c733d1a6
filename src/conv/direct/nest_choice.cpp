#include "conv/direct/nest_choice.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "conv/direct/direct_nest.hpp"
#include "convolume/error.hpp"
#include "convolume/machine.hpp"
#include "convolume/reuse.hpp"

namespace convolume::conv {
namespace {

/// Returns at most `most` nests of a direction: three fifths of them have the least estimated seconds, and the others
/// have the least reuse cost of the rest. Seconds come first, because the first nest is taken without measuring.
std::vector<RankedNest> best_by_both_ranks(const ConvProblem& problem, plan::Direction direction, std::size_t most) {
  std::vector<RankedNest> nests = rank_nests(problem, direction, machine_model());
  const std::size_t by_seconds = std::min(nests.size(), (3 * most + 4) / 5);
  if (nests.size() > by_seconds && most > by_seconds) {
    const std::vector<plan::NestSpace> spaces = plan::spaces(problem, direction);
    const plan::ReuseLevels levels = plan::reuse_levels(machine_model());
    std::vector<std::pair<double, RankedNest>> others;
    for (std::size_t i = by_seconds; i < nests.size(); ++i) {
      others.emplace_back(plan::reuse_cost(nests[i].nest, spaces, size_of(problem.type), levels), std::move(nests[i]));
    }
    std::stable_sort(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = 0; i < others.size(); ++i) nests[by_seconds + i] = std::move(others[i].second);
  }
  nests.resize(std::min(nests.size(), most));
  return nests;
}

}  // namespace

std::string NestParts::text() const {
  std::string text;
  for (const plan::Direction direction : plan::directions) {
    std::string nest = plan::to_string(nests_[static_cast<std::size_t>(direction)]);
    std::replace(nest.begin(), nest.end(), ' ', '.');
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name_of(direction), nest);
  }
  return text;
}

SharedParts NestParts::with(plan::Direction direction, const ChoiceParts& other) const {
  Nests nests = nests_;
  const auto d = static_cast<std::size_t>(direction);
  nests[d] = dynamic_cast<const NestParts&>(other).nests_[d];
  return std::make_shared<NestParts>(std::move(nests));
}

SharedParts parse_nest_parts(std::span<const std::string> words) {
  Nests nests;
  if (words.size() != nests.size()) throw InvalidArgument("it has to say the nests of three directions");
  for (const plan::Direction direction : plan::directions) {
    const std::string& word = words[static_cast<std::size_t>(direction)];
    const std::string begin = fmt::format("{}=", name_of(direction));
    if (!word.starts_with(begin)) {
      throw InvalidArgument(fmt::format("'{}' does not say the nest of {}", word, name_of(direction)));
    }
    std::string nest = word.substr(begin.size());
    std::replace(nest.begin(), nest.end(), '.', ' ');
    nests[static_cast<std::size_t>(direction)] = plan::parse_nest(nest);
  }
  return std::make_shared<NestParts>(std::move(nests));
}

std::vector<SharedParts> propose_nests(const ConvProblem& problem, const ConvOptions&, std::size_t most) {
  std::array<std::vector<RankedNest>, plan::directions.size()> ranked;
  std::size_t count = 0;
  for (std::size_t d = 0; d < ranked.size(); ++d) {
    ranked[d] = best_by_both_ranks(problem, plan::directions[d], most);
    count = std::max(count, ranked[d].size());
  }
  std::vector<SharedParts> all;
  for (std::size_t i = 0; i < count; ++i) {
    Nests nests;
    for (std::size_t d = 0; d < ranked.size(); ++d) nests[d] = ranked[d][std::min(i, ranked[d].size() - 1)].nest;
    all.push_back(std::make_shared<NestParts>(std::move(nests)));
  }
  return all;
}

}  // namespace convolume::conv
