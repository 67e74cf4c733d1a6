#include "nets/report/run_log.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/files.hpp"
#include "core/json.hpp"

namespace convolume::nets {
namespace {

using Json = nlohmann::ordered_json;

/// Returns null for NaN and infinity, because JSON has neither.
Json number(double value) {
  if (std::isfinite(value)) return value;
  return nullptr;
}

/// Returns an entry of the log, or null if the line is none.
nlohmann::json log_entry(const std::string& line) {
  try {
    return parse_json(line);
  } catch (const FormatError&) {
    return nullptr;
  }
}

Json line_of(std::int64_t iteration, double seconds, double loss, const std::optional<Scores>& validation) {
  Json line{{"iteration", iteration}, {"seconds", std::round(seconds * 1e3) / 1e3}, {"loss", number(loss)}};
  if (validation) {
    for (const Score& score : validation->values) line[score.name] = number(score.value);
    if (!validation->confusion.empty()) line["confusion"] = validation->confusion;
  }
  return line;
}

/// Returns the place of a score in the order of Scores: its class, and its place within the class.
std::pair<int, std::size_t> score_place(const std::string& name) {
  constexpr std::array<std::string_view, 6> order{"error", "balanced_error", "pixel_error", "roc_auc", "dice", "iou"};
  const auto line = name.find_last_of('_');
  const bool of_class = line != name.npos && name.find_first_not_of("0123456789", line + 1) == name.npos;
  const std::string_view kind = std::string_view(name).substr(0, of_class ? line : name.size());
  const auto found = std::find(order.begin(), order.end(), kind);
  return {of_class && name.size() < line + 6 ? std::atoi(name.c_str() + line + 1) : 0,
          static_cast<std::size_t>(found - order.begin())};
}

/// Returns the scores of an entry: its numbers, and what was undefined. An entry without an error was not validated.
std::optional<Scores> scores_of(const nlohmann::json& entry) {
  if (!entry.contains("pixel_error") && !entry.contains("error")) return std::nullopt;
  Scores scores;
  for (const auto& [name, value] : entry.items()) {
    if (name == "iteration" || name == "seconds" || name == "loss") continue;
    if (value.is_number()) scores.values.push_back({name, value.get<double>()});
    if (value.is_null()) scores.values.push_back({name, std::nan("")});
  }
  std::stable_sort(scores.values.begin(), scores.values.end(),
                   [](const Score& a, const Score& b) { return score_place(a.name) < score_place(b.name); });
  return scores;
}

}  // namespace

RunLog::RunLog(std::filesystem::path file, bool resume, std::int64_t iteration) : file_(std::move(file)) {
  std::string kept;
  if (resume && std::filesystem::exists(file_)) {
    std::istringstream lines(read_file(file_));
    for (std::string line; std::getline(lines, line);) {
      // The last line of a killed run may be incomplete. The first line that is not a log entry ends the log.
      const auto entry = log_entry(line);
      if (!entry.is_object() || !entry.contains("iteration") || !entry["iteration"].is_number_integer()) break;
      const auto at = entry["iteration"].get<std::int64_t>();
      if (at > iteration) break;
      kept += line + "\n";
      const auto value = [&](const char* key) {
        const auto found = entry.find(key);
        return found != entry.end() && found->is_number() ? found->get<double>() : std::nan("");
      };
      if (std::isfinite(value("seconds"))) seconds_before_ = value("seconds");
      losses_.push_back({at, value("loss")});
      if (auto scores = scores_of(entry)) validations_.push_back({at, std::move(*scores)});
    }
  }
  write_file_atomically(file_, kept);
  open();
}

void RunLog::open() {
  stream_.open(file_, std::ios::app);
  if (!stream_) throw IoError(fmt::format("{}: opening for appending failed; check the permissions", file_.string()));
}

void RunLog::append(const std::string& line) {
  stream_ << line << '\n' << std::flush;
  if (!stream_) throw IoError(fmt::format("{}: writing failed; free some space and resume the run", file_.string()));
}

void RunLog::write(std::int64_t iteration, double seconds, double loss, const std::optional<Scores>& validation) {
  append(to_text(line_of(iteration, seconds, loss, validation)));
  losses_.push_back({iteration, loss});
  if (validation) validations_.push_back({iteration, *validation});
}

void RunLog::add_scores(std::int64_t iteration, const Scores& validation) {
  if (losses_.empty() || losses_.back().iteration != iteration) return;  // a part of the log was lost
  const LossPoint last = losses_.back();
  if (!validations_.empty() && validations_.back().iteration == last.iteration) return;
  std::string text = read_file(file_);
  text.pop_back();
  text.resize(text.rfind('\n') == text.npos ? 0 : text.rfind('\n') + 1);
  stream_.close();
  write_file_atomically(file_, text + to_text(line_of(last.iteration, seconds_before_, last.loss, validation)) + "\n");
  open();
  validations_.push_back({last.iteration, validation});
}

}  // namespace convolume::nets
