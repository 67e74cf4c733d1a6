#include "nets/run_log.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/files.hpp"

namespace convolume::nets {
namespace {

/// Returns null for NaN and infinity, because JSON has neither.
nlohmann::ordered_json number(double value) {
  if (std::isfinite(value)) return value;
  return nullptr;
}

}  // namespace

RunLog::RunLog(std::filesystem::path file, bool resume, std::int64_t iteration) : file_(std::move(file)) {
  std::string kept;
  if (resume && std::filesystem::exists(file_)) {
    std::istringstream lines(read_file(file_));
    for (std::string line; std::getline(lines, line);) {
      const auto object = nlohmann::json::parse(line, nullptr, false);
      // The last line of a killed run may be incomplete. The first line that is not a log entry ends the log.
      if (!object.is_object() || !object.contains("iteration") || !object["iteration"].is_number_integer()) break;
      const auto at = object["iteration"].get<std::int64_t>();
      if (at > iteration) break;
      kept += line + "\n";
      const auto value = [&](const char* key) {
        const auto found = object.find(key);
        return found != object.end() && found->is_number() ? found->get<double>() : std::nan("");
      };
      if (std::isfinite(value("seconds"))) seconds_before_ = value("seconds");
      std::optional<Scores> scores;
      if (object.contains("pixel_error")) {
        scores.emplace();
        for (const char* name : {"pixel_error", "roc_auc", "dice"}) {
          if (object.contains(name)) scores->values.push_back({name, value(name)});
        }
      }
      note(at, value("loss"), scores);
    }
  }
  write_file_atomically(file_, kept);
  stream_.open(file_, std::ios::app);
  if (!stream_) throw IoError(fmt::format("{}: opening for appending failed; check the permissions", file_.string()));
}

void RunLog::note(std::int64_t iteration, double loss, const std::optional<Scores>& validation) {
  losses_.push_back({iteration, loss});
  if (!validation) return;
  const auto named = [](const char* name) { return [name](const Score& score) { return score.name == name; }; };
  const bool binary = std::any_of(validation->values.begin(), validation->values.end(), named("roc_auc"));
  second_score_ = binary ? "roc_auc" : "dice";
  validations_.push_back({iteration, validation->at("pixel_error"), validation->at(second_score_)});
}

void RunLog::write(std::int64_t iteration, double seconds, double loss, const std::optional<Scores>& validation) {
  nlohmann::ordered_json line{
      {"iteration", iteration}, {"seconds", std::round(seconds * 1e3) / 1e3}, {"loss", number(loss)}};
  if (validation) {
    for (const Score& score : validation->values) line[score.name] = number(score.value);
  }
  stream_ << line.dump() << '\n' << std::flush;
  if (!stream_) throw IoError(fmt::format("{}: writing failed; free some space and resume the run", file_.string()));
  note(iteration, loss, validation);
}

}  // namespace convolume::nets
