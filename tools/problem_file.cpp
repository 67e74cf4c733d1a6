#include "tools/problem_file.hpp"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::tools {
namespace {

/// Returns the text between n" and the next quotation mark, or else the problem.
std::string name_in(const std::string& line, const ConvProblem& problem) {
  const std::size_t begin = line.find("n\"");
  const std::size_t end = begin == std::string::npos ? begin : line.find('"', begin + 2);
  return end == std::string::npos ? to_string(problem) : line.substr(begin + 2, end - begin - 2);
}

}  // namespace

std::vector<plan::NamedProblem> read_problem_file(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw IoError(fmt::format("--problems {}: the file cannot be read; check the path", file));
  std::vector<plan::NamedProblem> problems;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    line.resize(std::min(line.find('#'), line.size()));
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    line = line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
    try {
      const ConvProblem problem = parse_problem(line);
      problems.push_back({.name = name_in(line, problem), .problem = problem});
    } catch (const Error& error) {
      throw InvalidArgument(fmt::format("{}:{}: {}", file, number, error.what()));
    }
  }
  if (problems.empty()) throw FormatError(fmt::format("--problems {}: the file contains no problem", file));
  return problems;
}

}  // namespace convolume::tools
