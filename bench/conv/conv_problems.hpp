// Lists of convolutions in the grammar of oneDNN's benchdnn: one problem per line, # for comments, n"..." for a name.
#pragma once

#include <string>
#include <vector>

#include "convolume/conv_problem.hpp"

namespace convolume::bench {

struct NamedProblem {
  std::string name;  ///< unique in its list, without spaces
  ConvProblem problem;
};

/// Returns the problems of `texts`, then those of `files`. Each is named by its n"..." (with the file name), or by its
/// own text. Throws InvalidArgument that names file and line, IoError, or FormatError for a file without problems.
std::vector<NamedProblem> read_problems(const std::vector<std::string>& texts, const std::vector<std::string>& files);

/// Returns every problem with every batch. Names end with the batch, e.g. "-mb2", where it is not the problem's own.
std::vector<NamedProblem> with_batches(const std::vector<NamedProblem>& problems, const std::vector<index_t>& batches);

/// Return the built-in lists: a few problems to time, or many small ones of every kind to check.
std::vector<NamedProblem> problems_to_time();
std::vector<NamedProblem> problems_to_check();

}  // namespace convolume::bench
