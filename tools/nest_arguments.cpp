#include "tools/nest_arguments.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::tools {

plan::Direction direction_of(const std::string& name) {
  const auto found = std::find(direction_names.begin(), direction_names.end(), name);
  return plan::directions[static_cast<std::size_t>(found - direction_names.begin())];
}

ConvProblem read_problem(const std::string& text, const std::string& type) {
  ConvProblem problem = parse_problem(text);
  problem.type = type == "f64" ? DataType::f64 : DataType::f32;
  return problem;
}

plan::LoopNest read_nest(const std::string& text) {
  // Blocking strings have capital letters, nests have none.
  const bool blocking = std::any_of(text.begin(), text.end(), [](unsigned char c) { return std::isupper(c) != 0; });
  return blocking ? plan::parse_blocking_string(text) : plan::parse_nest(text);
}

void check_phase(int phase, std::size_t phases, const std::string& direction) {
  if (phase >= 0 && static_cast<std::size_t>(phase) < phases) return;
  throw InvalidArgument(fmt::format("--phase {}: the direction {} of this problem has {} phase{}; phases count from 0",
                                    phase, direction, phases, phases == 1 ? "" : "s"));
}

}  // namespace convolume::tools
