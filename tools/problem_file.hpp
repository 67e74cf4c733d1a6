// Lists of convolutions in text files.
#pragma once

#include <string>
#include <vector>

#include "convolume/transfer.hpp"

namespace convolume::tools {

/// Reads a file with a problem in benchdnn's grammar per line. "#" begins a comment. The text behind n" is the name, or
/// else the problem is. Throws IoError if the file cannot be read, InvalidArgument that names file and line, and
/// FormatError if there is no problem.
std::vector<plan::NamedProblem> read_problem_file(const std::string& file);

}  // namespace convolume::tools
