#include "nets/report/run_report.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/cpu.hpp"
#include "convolume/machine.hpp"
#include "convolume/version.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "nets/report/page.hpp"

namespace convolume::nets {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_losses = 1000, most_events = 30000;

Json chart_number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

std::string base64(std::span<const std::byte> bytes) {
  constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t k) { return i + k < bytes.size() ? std::to_integer<unsigned>(bytes[i + k]) : 0u; };
    const unsigned group = at(0) << 16 | at(1) << 8 | at(2);
    for (const unsigned shift : {18u, 12u, 6u, 0u}) text += digits[group >> shift & 63];
  }
  const std::size_t filled = (3 - bytes.size() % 3) % 3;
  return text.replace(text.size() - filled, filled, filled, '=');
}

/// Returns [last iteration, mean, least, largest] of runs of iterations.
Json losses_of(std::span<const LossPoint> losses) {
  Json all = Json::array();
  const std::size_t bins = std::min(losses.size(), most_losses);
  for (std::size_t b = 0; b < bins; ++b) {
    const auto bin =
        losses.subspan(b * losses.size() / bins, (b + 1) * losses.size() / bins - b * losses.size() / bins);
    double sum = 0, least = std::numeric_limits<double>::infinity(), largest = -least;
    for (const LossPoint& p : bin) {
      sum += p.loss;
      least = std::min(least, p.loss);
      largest = std::max(largest, p.loss);
    }
    all.push_back({bin.back().iteration, chart_number(sum / static_cast<double>(bin.size())), chart_number(least),
                   chart_number(largest)});
  }
  return all;
}

Json validations_of(std::span<const Validation> validations) {
  Json all = Json::array();
  for (const Validation& v : validations) {
    Json scores = Json::object();
    for (const Score& score : v.scores.values) scores[score.name] = chart_number(score.value);
    all.push_back({{"iteration", v.iteration}, {"scores", std::move(scores)}});
  }
  return all;
}

Json volume_of(const VolumeSlices& volume) {
  const auto [classes, regions] = volume.targets();
  Json json{{"name", volume.name()},
            {"classes", regions > 0 ? regions + 1 : classes},
            {"regions", regions},
            {"width", volume.width()},
            {"height", volume.height()}};
  for (const VolumeSlices::Slice& slice : volume.slices()) {
    json["z"].push_back(slice.z);
    json["image"].push_back(base64(slice.image));
    json["label"].push_back(base64(slice.label));
    json["prediction"].push_back(base64(slice.prediction));
  }
  return json;
}

Json cases_of(const CasePictures& cases, const Scores& scores) {
  Json json{
      {"classes", scores.classes}, {"confusion", scores.confusion}, {"note", scores.note}, {"pictures", Json::array()}};
  for (const auto* list : {&cases.wrong(), &cases.right()}) {
    for (const CasePictures::Picture& one : *list) {
      json["pictures"].push_back({{"name", one.name},
                                  {"actual", scores.classes.at(one.actual)},
                                  {"predicted", scores.classes.at(one.predicted)},
                                  {"image", base64(one.image)}});
    }
  }
  return json;
}

/// Returns the number of a text in a list, and adds it if the list does not have it.
std::size_t number_of(const std::string& text, std::vector<std::string>& list,
                      std::map<std::string, std::size_t>& known) {
  const auto [found, added] = known.try_emplace(text, list.size());
  if (added) list.push_back(text);
  return found->second;
}

/// When the tasks of an iteration ran, and how much earlier a report shows them.
struct TracedRun {
  std::size_t events = 0;
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0, shift = 0;
};

/// Returns the runs of whole iterations: as many as a page can hold, but at least one. They are shown one right after
/// the other, without what came in between.
std::map<int, TracedRun> traced_runs(std::span<const TraceEvent> events) {
  std::map<int, TracedRun> runs;
  for (const TraceEvent& event : events) {
    TracedRun& run = runs[event.run];
    ++run.events;
    run.begin = std::min(run.begin, event.begin);
    run.end = std::max(run.end, event.end);
  }
  std::size_t sum = 0;
  std::int64_t shown = 0;
  for (auto at = runs.begin(); at != runs.end(); ++at) {
    sum += at->second.events;
    if (sum > most_events && at != runs.begin()) {
      runs.erase(at, runs.end());
      break;
    }
    at->second.shift = at->second.begin - shown;
    shown += at->second.end - at->second.begin;
  }
  return runs;
}

Json trace_of(std::span<const TraceEvent> events) {
  const auto runs = traced_runs(events);
  Json list = Json::array();
  std::vector<std::string> names, layers;
  std::map<std::string, std::size_t> known_names, known_layers;
  int threads = 1;
  const auto microseconds = [](std::int64_t nanoseconds) {
    return std::round(static_cast<double>(nanoseconds) / 10) / 100;
  };
  for (const TraceEvent& event : events) {
    const auto run = runs.find(event.run);
    if (run == runs.end()) continue;
    threads = std::max(threads, event.thread + 1);
    list.push_back({event.thread, microseconds(event.begin - run->second.shift), microseconds(event.end - event.begin),
                    number_of(event.name, names, known_names), number_of(event.layer, layers, known_layers)});
  }
  const TracedRun& last = runs.rbegin()->second;
  return {{"threads", threads}, {"iterations", runs.size()}, {"microseconds", microseconds(last.end - last.shift)},
          {"names", names},     {"layers", layers},          {"events", std::move(list)}};
}

/// Returns the JSON as text that can stand within a script element, whatever the names of files are.
std::string script_text(const Json& json) {
  std::string text;
  for (const char c : to_text(json)) c == '<' ? text += "\\u003c" : text += c;
  return text;
}

void add_volumes(ReportTable& table, const char* split, const std::vector<LabelledVolume>& volumes) {
  for (const LabelledVolume& v : volumes) {
    std::string classes;
    if (v.labels) {
      for (const ClassVoxels& c : v.labels->classes)
        classes += fmt::format("{}{}", classes.empty() ? "" : ", ", c.count);
    }
    table.rows.push_back({split, v.name, to_string(v.extent()), std::to_string(v.channels()), classes,
                          v.files ? "read when needed" : "in memory"});
  }
}

ReportTable class_table(const Dataset& data) {
  ReportTable table{"Data: " + data.name, {"split", "class", "cases"}, {}};
  const auto add = [&](const char* split, const std::vector<LabelledVolume>& volumes) {
    for (std::size_t c = 0; c < data.class_names.size(); ++c) {
      const auto cases = std::count_if(volumes.begin(), volumes.end(), [&](const LabelledVolume& volume) {
        return static_cast<std::size_t>(volume.class_number) == c;
      });
      table.rows.push_back({split, data.class_names[c], std::to_string(cases)});
    }
  };
  add("train", data.train);
  add("validation", data.validation);
  return table;
}

}  // namespace

std::string report_html(const Report& report) {
  Json json{{"title", report.title},
            {"state", report.state},
            {"cards", report.cards},
            {"losses", losses_of(report.losses)},
            {"validations", validations_of(report.validations)}};
  json["volume"] = report.volume == nullptr ? Json() : volume_of(*report.volume);
  const bool classified = report.cases != nullptr && report.scores != nullptr;
  json["cases"] = classified ? cases_of(*report.cases, *report.scores) : Json();
  json["trace"] = report.trace.empty() ? Json() : trace_of(report.trace);
  json["tables"] = Json::array();
  for (const ReportTable& table : report.tables) {
    json["tables"].push_back({{"title", table.title}, {"rows", table.rows}});
    if (!table.head.empty()) json["tables"].back()["head"] = table.head;
  }
  json["texts"] = report.texts;
  return std::string(page_begin) + script_text(json) + page_end;
}

void write_report(const std::filesystem::path& file, const Report& report) {
  write_file_atomically(file, report_html(report));
}

ReportTable data_table(const Dataset& data) {
  if (data.classifies()) return class_table(data);
  const char* const counted = data.regions > 0 ? "voxels outside, and per region" : "voxels per class";
  ReportTable table{"Data: " + data.name, {"split", "volume", "voxels (z, y, x)", "channels", counted, ""}, {}};
  add_volumes(table, "train", data.train);
  add_volumes(table, "validation", data.validation);
  return table;
}

ReportTable machine_table() {
  return {"Machine",
          {},
          {{"processor", cpu_name()},
           {"instruction set", simd_target()},
           {"processors", std::to_string(available_cpus())},
           {"machine row", fmt::format("{} ({})", machine_model().row, machine_reason())},
           {"convolume", version()}}};
}

}  // namespace convolume::nets
