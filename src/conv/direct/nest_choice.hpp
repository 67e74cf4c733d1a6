// The parts of a choice that are loop nests: "fwd=NEST bwd_d=NEST bwd_w=NEST", where a nest has points for spaces.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "conv/choice.hpp"
#include "convolume/nest.hpp"

namespace convolume::conv {

/// The loop nests of all directions of a problem, in the order of plan::directions.
using Nests = std::array<plan::LoopNest, plan::directions.size()>;

class NestParts final : public ChoiceParts {
 public:
  /// If groups of channels are computed one after the other, these are the nests of one group.
  explicit NestParts(Nests nests) : nests_(std::move(nests)) {}

  const Nests& nests() const { return nests_; }
  std::string text() const override;
  SharedParts with(plan::Direction direction, const ChoiceParts& other) const override;

 private:
  Nests nests_;
};

/// How messages show the text of these parts.
inline constexpr const char* nest_form =
    "\"direct fwd=NEST bwd_d=NEST bwd_w=NEST\", where a nest has points for spaces";
/// Reads the words that text() returns. Throws InvalidArgument that names the invalid word.
SharedParts parse_nest_parts(std::span<const std::string> words);
/// Returns parts that are worth measuring, the best first: at most `most`. A direction with fewer nests repeats its
/// last one. See Implementation::propose().
std::vector<SharedParts> propose_nests(const ConvProblem& problem, const ConvOptions& options, std::size_t most);

}  // namespace convolume::conv
