// What a training run leaves in its folder for people: the log, event files, the report and a picture.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "convolume/training.hpp"
#include "nets/report/event_files.hpp"
#include "nets/report/run_log.hpp"
#include "nets/report/run_report.hpp"
#include "nets/train/run_folder.hpp"
#include "nets/train/training_loop.hpp"

namespace convolume::nets {

/// Writes the records of a run. What the constructor gets must outlive it.
class RunRecords {
 public:
  /// Starts the records, or continues those of a run after an iteration. Throws IoError.
  RunRecords(const TrainOptions& options, const RunFolder& folder, std::int64_t iteration);

  double seconds_before() const { return log_.seconds_before(); }
  /// Add an iteration, and the scores of an earlier one. Throw IoError.
  void write(std::int64_t iteration, double seconds, double loss, const std::optional<Scores>& scores);
  void add_scores(std::int64_t iteration, const Scores& scores);
  /// Writes report.html. `state` is the begin of a sentence about the run.
  void write_report(const std::string& state, const TrainingLoop& loop, const NetSpec& spec, const Dataset& data,
                    const Trainer& trainer, const Scheduler& scheduler, const Trace& trace) const;

 private:
  void update_events() {
    if (events_) events_->update(log_);
  }

  const TrainOptions& options_;
  const RunFolder& folder_;
  RunLog log_;
  std::unique_ptr<EventFiles> events_{};  // null without --tensorboard
};

/// Writes a picture of the middle slice of the first validation volume. Throws IoError.
void write_slice(const std::filesystem::path& file, const LabelledVolume& volume, const Tensor<float>& prediction,
                 std::pmr::memory_resource* memory);

}  // namespace convolume::nets
