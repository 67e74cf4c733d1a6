#include "tools/scores.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/error.hpp"

namespace convolume::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using nets::Score;
using nets::Scores;

/// Returns whether a path is a folder of volumes. A Zarr is a folder, but one volume.
bool is_folder(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return false;
  for (const char* name : {".zarray", ".zgroup", ".zattrs"}) {
    if (fs::exists(path / name, error)) return false;
  }
  return true;
}

/// Returns whether the star of a path stands for cases. In FOLDER/*.png and FOLDER/*.tif it stands for slices.
bool is_pattern(const fs::path& path) {
  const std::string name = path.filename().string(), extension = path.extension().string();
  return std::count(name.begin(), name.end(), '*') == 1 && extension != ".png" && extension != ".tif" &&
         extension != ".tiff";
}

/// Returns what the star of a pattern stands for in a name, or nothing if the name does not match.
std::optional<std::string> star_in(const std::string& name, const std::string& pattern) {
  const auto star = pattern.find('*');
  const std::string before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (name.size() < before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) return {};
  return name.substr(before.size(), name.size() - before.size() - after.size());
}

struct Pair {
  std::string name, prediction, label;
};

std::vector<Pair> pairs_of(const fs::path& prediction, const fs::path& label) {
  const bool pattern = is_pattern(prediction), folder = !pattern && is_folder(prediction);
  if (!pattern && !folder) return {};
  if (pattern ? !is_pattern(label) : !is_folder(label)) {
    throw InvalidArgument(fmt::format("{}: {} names several cases, so this must be a {} too", label.string(),
                                      prediction.string(), pattern ? "pattern with a *" : "folder"));
  }
  std::vector<Pair> pairs;
  const fs::path where = pattern ? prediction.parent_path() : prediction;
  for (const auto& entry : fs::directory_iterator(where.empty() ? fs::path(".") : where)) {
    const std::string name = entry.path().filename().string();
    const auto star = pattern ? star_in(name, prediction.filename().string()) : std::optional(name);
    if (!star || name.starts_with(".")) continue;
    fs::path other = label / name;
    if (pattern) {
      const std::string text = label.filename().string();
      const auto at = text.find('*');
      other = label.parent_path() / fmt::format("{}{}{}", text.substr(0, at), *star, text.substr(at + 1));
    }
    if (!fs::exists(other)) {
      throw IoError(fmt::format("{}: the label of the case '{}' does not exist; add it, or leave the case out",
                                other.string(), *star));
    }
    pairs.push_back({*star, entry.path().string(), other.string()});
  }
  if (pairs.empty()) throw IoError(fmt::format("{}: there is no case; check the path", prediction.string()));
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.name < b.name; });
  return pairs;
}

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    c == separator ? static_cast<void>(parts.emplace_back()) : parts.back().push_back(c);
  }
  return parts;
}

std::string title_of(const std::string& name) {
  if (name == "pixel_error") return "pixel error";
  if (name == "balanced_error") return "balanced error";
  if (name == "roc_auc") return "ROC AUC";
  const std::size_t bar = name.find('_');
  const std::string_view key = std::string_view(name).substr(0, bar);
  if (key != "dice" && key != "iou") return name;
  const std::string_view of_class = bar == name.npos ? "" : std::string_view(name).substr(bar + 1);
  return fmt::format("{}{}{}", key == "dice" ? "Dice" : "IoU", of_class.empty() ? "" : " ", of_class);
}

/// Returns the scores with the wanted names. "dice" also selects "dice_1", "dice_2", ...
std::vector<Score> selected(const Scores& scores, const std::vector<std::string>& metrics) {
  if (metrics.empty()) return scores.values;
  std::vector<Score> some;
  for (const std::string& metric : metrics) {
    const auto before = some.size();
    for (const Score& score : scores.values) {
      if (score.name == metric || score.name.starts_with(metric + "_")) some.push_back(score);
    }
    if (some.size() > before) continue;
    std::string names;
    for (const Score& score : scores.values) names += fmt::format("{}{}", names.empty() ? "" : ", ", score.name);
    throw InvalidArgument(fmt::format("--metrics {}: there is no such score; there are {}", metric, names));
  }
  return some;
}

/// Returns the mean of each score over the cases in which it is defined.
std::vector<Score> mean_of(const std::vector<std::vector<Score>>& cases) {
  std::vector<Score> mean;
  for (const Score& first : cases.front()) {
    double sum = 0;
    int count = 0;
    for (const auto& scores : cases) {
      const auto found =
          std::find_if(scores.begin(), scores.end(), [&](const Score& score) { return score.name == first.name; });
      if (found == scores.end() || std::isnan(found->value)) continue;
      sum += found->value;
      ++count;
    }
    mean.push_back({first.name, count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN()});
  }
  return mean;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json json_of(const std::vector<Score>& scores) {
  Json object = Json::object();
  for (const Score& score : scores) object[score.name] = number(score.value);
  return object;
}

Json json_of(const CaseScores& one, const std::vector<std::string>& metrics) {
  Json object = json_of(selected(one.scores, metrics));
  object["voxels"] = one.scores.voxels;
  object["positives"] = one.scores.positives;
  if (!one.scores.note.empty()) object["note"] = one.scores.note;
  return object;
}

std::string table_of(const std::vector<Score>& scores) {
  std::string text;
  for (const Score& score : scores) text += fmt::format("{:<13} {:.4f}\n", title_of(score.name), score.value);
  return text;
}

/// Returns a row per true class and a column per predicted class; an empty text for other nets than classifiers.
std::string confusion_table(const Scores& scores) {
  if (scores.confusion.empty()) return "";
  std::size_t width = std::string_view("predicted").size();
  for (const std::string& name : scores.classes) width = std::max(width, name.size());
  std::string text = fmt::format("{:<{}}  predicted\n{:<{}}", "cases", width, "true", width);
  for (const std::string& name : scores.classes) text += fmt::format("  {:>{}}", name, width);
  for (std::size_t c = 0; c < scores.confusion.size(); ++c) {
    text += fmt::format("\n{:<{}}", scores.classes[c], width);
    for (const std::int64_t count : scores.confusion[c]) text += fmt::format("  {:>{}}", count, width);
  }
  return text + "\n";
}

}  // namespace

std::vector<CaseScores> evaluate_cases(const nets::EvaluateOptions& options) {
  const std::vector<Pair> pairs = pairs_of(options.prediction, options.label);
  if (pairs.empty()) return {{"", nets::evaluate_files(options)}};
  std::vector<CaseScores> cases;
  for (const Pair& pair : pairs) {
    nets::EvaluateOptions one = options;
    one.prediction = pair.prediction;
    one.label = pair.label;
    cases.push_back({pair.name, nets::evaluate_files(one)});
  }
  return cases;
}

std::vector<std::vector<double>> regions_of(const std::string& text) {
  const auto value_of = [&](const std::string& number) {
    std::size_t used = 0;
    try {
      const double value = std::stod(number, &used);
      if (used == number.size() && std::isfinite(value)) return value;
    } catch (const std::logic_error&) {
      // It is no number, or beyond the range of a double.
    }
    throw InvalidArgument(
        fmt::format("--regions '{}': '{}' is no label value; write e.g. \"1,2,3;2,3;3\"", text, number));
  };
  std::vector<std::vector<double>> regions;
  for (const std::string& list : parts_of(text, ';')) {
    auto& region = regions.emplace_back();
    for (const std::string& number : parts_of(list, ',')) region.push_back(value_of(number));
  }
  return regions;
}

std::string score_table(const Scores& scores) {
  return table_of(scores.values) + confusion_table(scores) + (scores.note.empty() ? "" : scores.note + "\n");
}

std::string score_line(const Scores& scores) {
  std::string line;
  for (const char* name : {"error", "balanced_error", "pixel_error", "roc_auc", "dice"}) {
    const bool known =
        std::any_of(scores.values.begin(), scores.values.end(), [&](const Score& score) { return score.name == name; });
    if (known) line += fmt::format("{}{} {:.4f}", line.empty() ? "" : "  ", title_of(name), scores.at(name));
  }
  return line;
}

std::string scores_text(const std::vector<CaseScores>& cases, const std::vector<std::string>& metrics) {
  if (cases.size() == 1 && cases.front().name.empty()) {
    const Scores& scores = cases.front().scores;
    std::string text = table_of(selected(scores, metrics));
    text += fmt::format("voxels        {} ({} positive)\n", scores.voxels, scores.positives);
    return scores.note.empty() ? text : text + scores.note + "\n";
  }
  std::size_t width = 4;
  for (const CaseScores& one : cases) width = std::max(width, one.name.size());
  const std::vector<Score> first = selected(cases.front().scores, metrics);
  std::string text = fmt::format("{:<{}}", "case", width);
  for (const Score& score : first) text += fmt::format("  {:>11}", title_of(score.name));
  text += "\n";
  std::vector<std::vector<Score>> all;
  const auto add = [&](const std::string& name, const std::vector<Score>& scores) {
    text += fmt::format("{:<{}}", name, width);
    for (const Score& score : scores) text += fmt::format("  {:>11.4f}", score.value);
    text += "\n";
  };
  for (const CaseScores& one : cases) {
    all.push_back(selected(one.scores, metrics));
    add(one.name, all.back());
  }
  add("mean", mean_of(all));
  for (const CaseScores& one : cases) {
    if (!one.scores.note.empty()) text += fmt::format("{}: {}\n", one.name, one.scores.note);
  }
  return text;
}

std::string scores_json(const std::vector<CaseScores>& cases, const std::vector<std::string>& metrics) {
  if (cases.size() == 1 && cases.front().name.empty()) return json_of(cases.front(), metrics).dump() + "\n";
  Json report{{"cases", Json::array()}, {"mean", nullptr}};
  std::vector<std::vector<Score>> all;
  for (const CaseScores& one : cases) {
    Json object{{"case", one.name}};
    object.update(json_of(one, metrics));
    report["cases"].push_back(std::move(object));
    all.push_back(selected(one.scores, metrics));
  }
  report["mean"] = json_of(mean_of(all));
  return report.dump() + "\n";
}

}  // namespace convolume::tools
