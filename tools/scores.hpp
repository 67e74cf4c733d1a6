// Compares predictions with labels, case by case, and prints scores.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convolume/nets.hpp"

namespace convolume::tools {

struct CaseScores {
  std::string name;  ///< of the case; empty if there is only one
  nets::Scores scores;
};

/// Evaluates one pair of volumes, or each pair of two folders or of two patterns "folder/*.nii.gz", in which the star
/// stands for the same text. Throws IoError if a case has no label, and what evaluate_files() throws.
std::vector<CaseScores> evaluate_cases(const nets::EvaluateOptions& options);

/// Returns the label values of each region in "1,2,3;2,3;3". Throws InvalidArgument for a text that is no such list.
std::vector<std::vector<double>> regions_of(const std::string& text);

/// Returns one score per line, e.g. "pixel error   0.1234".
std::string score_table(const nets::Scores& scores);
/// Returns the scores in one line, those per class or region left out.
std::string score_line(const nets::Scores& scores);

/// Returns a table of one case; or a line per case, and then the mean. `metrics` selects scores; if it is empty, all.
/// Throws InvalidArgument for a score that there is not.
std::string scores_text(const std::vector<CaseScores>& cases, const std::vector<std::string>& metrics);
/// Returns the same as JSON. A score that is undefined is null.
std::string scores_json(const std::vector<CaseScores>& cases, const std::vector<std::string>& metrics);

}  // namespace convolume::tools
