// Writes report.html: one file that shows a training run in a browser, without network access.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "convolume/scheduler.hpp"
#include "nets/data/dataset.hpp"
#include "nets/report/case_pictures.hpp"
#include "nets/report/run_log.hpp"
#include "nets/report/volume_slices.hpp"

namespace convolume::nets {

/// A table of a report. `head` may be empty.
struct ReportTable {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};

/// What a report shows.
struct Report {
  std::string title;
  std::string state;                                         ///< one sentence
  std::vector<std::pair<std::string, std::string>> cards{};  ///< names and values of the most important figures
  std::span<const LossPoint> losses;
  std::span<const Validation> validations;
  const VolumeSlices* volume = nullptr;  ///< null: no validation volume
  const CasePictures* cases = nullptr;   ///< of a classifier, with `scores`; null: no validation so far
  const Scores* scores = nullptr;        ///< of the last validation of a classifier
  std::span<const TraceEvent> trace;     ///< of whole iterations; empty: none were recorded
  std::vector<ReportTable> tables{};
  std::vector<std::pair<std::string, std::string>> texts{};  ///< titles and texts, e.g. of the net's file
};

/// Returns the page. More than 1,000 losses are shown as means with their range.
std::string report_html(const Report& report);

/// Replaces a file by the page. Throws IoError.
void write_report(const std::filesystem::path& file, const Report& report);

/// Returns one row per volume: split, name, extent, channels, and voxels of each class if they were counted. If volumes
/// have classes, it returns one row per class: split, class and number of cases.
ReportTable data_table(const Dataset& data);
/// Returns facts about this machine and this build.
ReportTable machine_table();

}  // namespace convolume::nets
