// Problems, directions and nests as the verbs of `plan` take them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "convolume/nest.hpp"

namespace convolume::tools {

inline constexpr std::array<const char*, 3> direction_names{"fwd", "bwd_d", "bwd_w"};

/// Returns the direction of one of direction_names.
plan::Direction direction_of(const std::string& name);

/// Reads a problem, whose elements are "f32" or "f64". Throws InvalidArgument.
ConvProblem read_problem(const std::string& text, const std::string& type);

/// Reads a nest or a blocking string. Throws InvalidArgument.
plan::LoopNest read_nest(const std::string& text);

/// Throws InvalidArgument if a direction has no phase of this number.
void check_phase(int phase, std::size_t phases, const std::string& direction);

}  // namespace convolume::tools
