// Lists of convolutions in the grammar of oneDNN's benchdnn: one problem a line, # for comments, n"..." for a name.
#pragma once

#include <string>
#include <vector>

#include "convolume/conv_problem.hpp"

namespace convolume::bench {

struct NamedProblem {
  std::string name;  ///< unique in its list, without spaces
  ConvProblem problem;
};

/// The problems of `texts` and then those of `files`, named after their n"..." (and file), or after themselves.
/// Throws InvalidArgument naming file and line, IoError, and FormatError for a file without problems.
std::vector<NamedProblem> read_problems(const std::vector<std::string>& texts, const std::vector<std::string>& files);

/// What is run where nothing is named: a few problems worth timing, or many small ones of every kind worth checking.
std::vector<NamedProblem> problems_to_time();
std::vector<NamedProblem> problems_to_check();

}  // namespace convolume::bench
