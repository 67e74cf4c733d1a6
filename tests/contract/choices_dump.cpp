// Prints what the cost model chooses for lists of problems: choices_dump FILE ...
// One line for each problem, layout and set of results that are wanted: list:line, layout, wanted, choice.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include "convolume/conv.hpp"
#include "convolume/cpu.hpp"

namespace {

using namespace convolume;

void print_choices(const std::string& place, const ConvProblem& problem) {
  for (const Layout layout : {Layout::plain, Layout::blocked}) {
    ConvProblem p = problem;
    p.x_layout = p.y_layout = layout;
    for (const bool training : {false, true}) {
      std::string choice;
      try {
        choice = ConvPlan::make(p, {.want_dx = training, .want_dw = training}).choice();
      } catch (const Unsupported&) {
        choice = "none";
      }
      std::printf("%s %s %s %s\n", place.c_str(), name_of(layout), training ? "training" : "forward", choice.c_str());
    }
  }
}

void print_list(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    print_choices(file.stem().string() + ":" + std::to_string(number), parse_problem(line));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::printf("row %s\n", machine_model().row.c_str());
    for (int i = 1; i < argc; ++i) print_list(argv[i]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "choices_dump: %s\n", error.what());
    return 1;
  }
  return 0;
}
