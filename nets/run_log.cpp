#include "nets/run_log.hpp"

#include <cmath>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/files.hpp"

namespace convolume::nets {
namespace {

/// JSON has no NaN.
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
      // The last line of a killed run may be cut short.
      if (!object.is_object() || !object.contains("iteration") || object["iteration"].get<std::int64_t>() > iteration)
        break;
      kept += line + "\n";
      seconds_before_ = object.value("seconds", 0.0);
      std::optional<Scores> scores;
      if (object.contains("pixel_error")) {
        const auto auc = object.find("roc_auc");
        scores = Scores{.pixel_error = object["pixel_error"].get<double>(),
                        .roc_auc = auc != object.end() && auc->is_number() ? auc->get<double>() : std::nan("")};
      }
      note(object["iteration"].get<std::int64_t>(),
           object["loss"].is_number() ? object["loss"].get<double>() : std::nan(""), scores);
    }
  }
  write_file_atomically(file_, kept);
  stream_.open(file_, std::ios::app);
  if (!stream_) throw IoError(fmt::format("{}: opening for appending failed; check the permissions", file_.string()));
}

void RunLog::note(std::int64_t iteration, double loss, const std::optional<Scores>& validation) {
  losses_.push_back({iteration, loss});
  if (validation) validations_.push_back({iteration, validation->pixel_error, validation->roc_auc});
}

void RunLog::write(std::int64_t iteration, double seconds, double loss, const std::optional<Scores>& validation) {
  nlohmann::ordered_json line{
      {"iteration", iteration}, {"seconds", std::round(seconds * 1e3) / 1e3}, {"loss", number(loss)}};
  if (validation) {
    line["pixel_error"] = number(validation->pixel_error);
    line["roc_auc"] = number(validation->roc_auc);
    line["dice"] = number(validation->dice);
    line["iou"] = number(validation->iou);
  }
  stream_ << line.dump() << '\n' << std::flush;
  if (!stream_) throw IoError(fmt::format("{}: writing failed; free some space and resume the run", file_.string()));
  note(iteration, loss, validation);
}

}  // namespace convolume::nets
