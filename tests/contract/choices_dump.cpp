// Prints what the cost model chooses for lists of problems: choices_dump [--time] FILE ...
// One line for each problem, layout and set of results that are wanted: list:line, layout, wanted, choice.
// With --time it prints the median and the longest time of ConvPlan::make instead.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "convolume/conv.hpp"
#include "convolume/machine.hpp"

namespace {

using namespace convolume;

std::vector<double> seconds;  // of each call of ConvPlan::make

void print_choices(const std::string& place, const ConvProblem& problem, bool timed) {
  for (const Layout layout : {Layout::plain, Layout::blocked}) {
    ConvProblem p = problem;
    p.x_layout = p.y_layout = layout;
    for (const bool training : {false, true}) {
      std::string choice;
      const auto begin = std::chrono::steady_clock::now();
      try {
        choice = ConvPlan::make(p, {.want_dx = training, .want_dw = training}).choice();
      } catch (const Unsupported&) {
        choice = "none";
      }
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      if (timed) continue;
      std::printf("%s %s %s %s\n", place.c_str(), name_of(layout), training ? "training" : "forward", choice.c_str());
    }
  }
}

void print_list(const std::filesystem::path& file, bool timed) {
  std::ifstream in(file);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    print_choices(file.stem().string() + ":" + std::to_string(number), parse_problem(line), timed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bool timed = argc > 1 && std::strcmp(argv[1], "--time") == 0;
    std::printf("row %s\n", machine_model().row.c_str());
    for (int i = timed ? 2 : 1; i < argc; ++i) print_list(argv[i], timed);
    if (timed && !seconds.empty()) {
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
