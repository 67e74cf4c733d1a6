// The choices against which bench_conv --choices measures the model's pick.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "conv/choice.hpp"

namespace convolume::bench {

/// What a machine row makes the model pick.
struct RowPick {
  std::string row;
  std::size_t choice;  ///< index into ChoiceField::choices
};

struct ChoiceField {
  std::vector<conv::Choice> choices;  ///< the first is the pick with the row in use
  std::vector<RowPick> picks;         ///< one for each built-in row
};

/// Returns the model's pick, then what the model picks with every built-in machine row, then every other engine, then a
/// fixed grid of tiles: cubes of 8 to 32 voxels in groups of 4 and 16, separate and shared. Estimates cut nothing off;
/// only choices that no engine supports, or that would take too much memory, are left out. oneDNN and the reference are
/// left out too. If the options force a choice, it is the whole field.
ChoiceField choice_field(const ConvProblem& problem, const ConvOptions& options);

/// Returns whether a problem belongs to the quarter that is held out from fitting constants. A hash of its text
/// decides.
bool is_held_out(const ConvProblem& problem);

}  // namespace convolume::bench
