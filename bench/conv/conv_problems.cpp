#include "bench/conv/conv_problems.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>

namespace convolume::bench {
namespace {

constexpr const char* timed =
    "mb1ic2oc2id8kd3n\"smoke\"\n"
    "mb1ic32id52oc32od48kd5n\"paper 5x5x5\"\n"
    "mb1ic32id52oc32od50kd3n\"paper 3x3x3\"\n"
    "mb1ic8id8ih128iw128oc8od8oh128ow128kd1kh5kw5ph2pw2pd0n\"anisotropic, top level\"\n"
    "mb1ic1id64oc16od52kd13n\"first layer, large kernel\"\n";

constexpr const char* checked =
    "mb1ic2oc2id8kd3n\"valid\"\n"
    "mb2ic3oc5id9ih8iw7kd3kh2kw4n\"uneven\"\n"
    "mb1ic17oc20id10kd3pd1n\"more than a block of channels\"\n"
    "mb1ic1oc8id12kd5n\"one map in\"\n"
    "mb1ic8oc1id12kd5pd2n\"one map out\"\n"
    "mb1ic16oc16id7kd1n\"pointwise\"\n"
    "mb1ic4oc4id4ih16iw18kd1kh3kw3pd0ph1pw1n\"within planes\"\n"
    "mb2ic6oc4ih19iw21kh4kw5n\"two-dimensional\"\n"
    "mb1ic4oc6id11kd3sd2pd1n\"strided\"\n"
    "mb1ic4oc6id13kd3dd1n\"dilated\"\n"
    "mb1ic4oc4id14kd3sd2dd2pd1n\"strided and dilated\"\n"
    "g4mb1ic8oc12id8kd3pd1n\"groups\"\n"
    "g20mb1ic20oc20id9kd5pd2n\"depthwise\"\n"
    "mb1ic3oc3id14kd11pd5n\"large kernel\"\n"
    "mb1ic2oc3id20kd2n\"even kernel\"\n";

/// Returns the name of a problem as a part of a benchmark's name: its n"..." after the name of the list, or its text.
std::string name_of_line(const std::string& list, const std::string& line, const ConvProblem& problem) {
  const std::size_t mark = line.find("n\"");
  const std::size_t end = mark == std::string::npos ? mark : line.find('"', mark + 2);
  if (end == std::string::npos || end == mark + 2) return to_string(problem);
  std::string name = list.empty() ? std::string() : fmt::format("{}:", list);
  for (const char c : line.substr(mark + 2, end - mark - 2)) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_';
    if (plain || (!name.empty() && name.back() != '-')) name += plain ? c : '-';
  }
  return name;
}

/// Appends the problems of a stream. `origin` is used in error messages, `list` in names.
void read(std::istream& in, const std::string& origin, const std::string& list, std::vector<NamedProblem>& problems) {
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    line.resize(std::min(line.find('#'), line.size()));
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty()) continue;
    try {
      const ConvProblem problem = parse_problem(line);
      std::string name = name_of_line(list, line, problem);
      const auto same = [&](const NamedProblem& other) { return other.name == name; };
      if (std::any_of(problems.begin(), problems.end(), same)) name = fmt::format("{}:{}", name, to_string(problem));
      problems.push_back({std::move(name), problem});
    } catch (const Error& error) {
      throw InvalidArgument(fmt::format("{}:{}: {}", origin, number, error.what()));
    }
  }
}

std::vector<NamedProblem> built_in(const char* list) {
  std::vector<NamedProblem> problems;
  std::istringstream text(list);
  read(text, "built-in list", "", problems);
  return problems;
}

}  // namespace

std::vector<NamedProblem> read_problems(const std::vector<std::string>& texts, const std::vector<std::string>& files) {
  std::vector<NamedProblem> problems;
  for (const std::string& text : texts) {
    std::istringstream in(text);
    const std::size_t before = problems.size();
    read(in, "--problem", "", problems);
    if (problems.size() == before) {
      throw InvalidArgument(
          fmt::format("--problem: '{}' contains no problem; write e.g. mb1ic32id52oc32od48kd5", text));
    }
  }
  for (const std::string& file : files) {
    std::ifstream in(file);
    if (!in) throw IoError(fmt::format("problem file '{}' cannot be read", file));
    const std::size_t before = problems.size();
    read(in, file, std::filesystem::path(file).stem().string(), problems);
    if (problems.size() == before) throw FormatError(fmt::format("problem file '{}' contains no problem", file));
  }
  return problems;
}

std::vector<NamedProblem> with_batches(const std::vector<NamedProblem>& problems, const std::vector<index_t>& batches) {
  std::vector<NamedProblem> all;
  for (const index_t batch : batches) {
    for (const NamedProblem& one : problems) {
      all.push_back(one);
      all.back().problem.batch = batch;
      if (batch != one.problem.batch) all.back().name += fmt::format("-mb{}", batch);
    }
  }
  return all;
}

std::vector<NamedProblem> problems_to_time() { return built_in(timed); }
std::vector<NamedProblem> problems_to_check() { return built_in(checked); }

}  // namespace convolume::bench
