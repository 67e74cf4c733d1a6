// Prints what the cost model chooses for lists of problems: choices_dump [--time | --numerics | --candidates] FILE ...
// One line for each problem, layout and set of results that are wanted: list:line, layout, wanted, choice.
// With --time it prints the median and the longest time of ConvPlan::make instead, with --numerics also the numerics of
// the plan. With --candidates it checks that each candidate of an autotuning run, written and read again, is the same.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "conv/candidates.hpp"
#include "conv/implementations.hpp"
#include "convolume/conv.hpp"
#include "convolume/machine.hpp"

namespace {

using namespace convolume;

enum class Mode { choices, time, numerics, candidates };

std::vector<double> seconds;  // of each call of ConvPlan::make
std::size_t round_trips = 0;

/// Throws Error if the text of a candidate is read as something else.
void check_candidates(const std::string& place, const ConvProblem& problem, const ConvOptions& options) {
  constexpr std::size_t most = 5;
  for (const conv::Choice& choice : conv::candidates(problem, options, most)) {
    const std::string text = to_string(choice);
    if (!(conv::parse_choice(text) == choice) || to_string(conv::parse_choice(text)) != text) {
      throw Error(place + ": '" + text + "' is read as '" + to_string(conv::parse_choice(text)) + "'");
    }
    ++round_trips;
  }
}

void print_choices(const std::string& place, const ConvProblem& problem, Mode mode) {
  for (const Layout layout : {Layout::plain, Layout::blocked}) {
    ConvProblem p = problem;
    p.x_layout = p.y_layout = layout;
    for (const bool training : {false, true}) {
      std::string choice, numerics;
      const ConvOptions options{.want_dx = training, .want_dw = training};
      const auto begin = std::chrono::steady_clock::now();
      try {
        const ConvPlan plan = ConvPlan::make(p, options);
        choice = plan.choice();
        if (mode == Mode::numerics) numerics.append(" ").append(plan.numerics());
        if (mode == Mode::candidates) check_candidates(place, p, options);
      } catch (const Unsupported&) {
        choice = "none";
      }
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      if (mode == Mode::time || mode == Mode::candidates) continue;
      std::printf("%s %s %s %s%s\n", place.c_str(), name_of(layout), training ? "training" : "forward", choice.c_str(),
                  numerics.c_str());
    }
  }
}

void print_list(const std::filesystem::path& file, Mode mode) {
  std::ifstream in(file);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    print_choices(file.stem().string() + ":" + std::to_string(number), parse_problem(line), mode);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Mode mode = Mode::choices;
    for (const auto& [word, other] : {std::pair{"--time", Mode::time}, std::pair{"--numerics", Mode::numerics},
                                      std::pair{"--candidates", Mode::candidates}}) {
      if (argc > 1 && std::strcmp(argv[1], word) == 0) mode = other;
    }
    std::printf("row %s\n", machine_model().row.c_str());
    for (int i = mode == Mode::choices ? 1 : 2; i < argc; ++i) print_list(argv[i], mode);
    if (mode == Mode::candidates) std::printf("%zu candidates are read as they were written\n", round_trips);
    if (mode == Mode::time && !seconds.empty()) {
      std::sort(seconds.begin(), seconds.end());
      std::printf("%zu plans, median %.3f ms, longest %.3f ms\n", seconds.size(), 1e3 * seconds[seconds.size() / 2],
                  1e3 * seconds.back());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "choices_dump: %s\n", error.what());
    return 1;
  }
  return 0;
}
