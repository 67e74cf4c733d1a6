// The loop of a training: iterations, validations, and when it ends. It reads and writes no file.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>

#include "convolume/evaluation.hpp"
#include "nets/data/dataset.hpp"
#include "nets/infer/classifier.hpp"
#include "nets/infer/predictor.hpp"
#include "nets/report/case_pictures.hpp"
#include "nets/report/volume_slices.hpp"
#include "nets/train/best_validation.hpp"
#include "nets/train/trainer.hpp"

namespace convolume::nets {

/// Returns what the channels of a net stand for on this data.
Targets targets_of(const NetSpec& spec, const Dataset& data);
/// Throws ConfigError if the score that [training] best names does not exist, or is never computed. `data_file` is the
/// name of the data set in messages.
void check_best(const NetSpec& spec, const Dataset& data, const std::string& data_file);

/// Returns whether a training was interrupted between an iteration and a validation that counts for the best
/// checkpoint.
bool lacks_validation(const NetSpec& spec, std::int64_t iteration, const BestValidation& best);

/// What a training tells while it runs. Functions are called by the thread that called run(), between iterations.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  /// An iteration is complete. It has scores if it was validated.
  virtual void completed(std::int64_t iteration, double loss, const std::optional<Scores>& scores) = 0;
  /// A validation is made up for: the run was interrupted between an iteration and its validation.
  virtual void made_up(std::int64_t iteration, const Scores& scores) = 0;
  /// The last validation is the best one so far.
  virtual void best() = 0;
  /// A checkpoint is due. All updates are applied.
  virtual void checkpoint_due() = 0;
  /// There was a validation, and the training goes on.
  virtual void validated() = 0;
  /// Comes last after each iteration.
  virtual void progress(double loss, const std::optional<Scores>& scores) = 0;
};

/// Trains a net on data. Net, data, trainer, scheduler, memory and trace must outlive it. Not thread-safe.
class TrainingLoop {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    Clock::time_point start = Clock::now();  ///< of the training, from which seconds count
    std::int64_t total = 0;                  ///< iterations of the training, those before this call included
    double max_minutes = 0;                  ///< 0: no limit
    BestValidation best{};                   ///< so far
    PredictorOptions predictor{};
    std::stop_token stop{};
    Trace* trace = nullptr;  ///< gets the tasks of iterations 2 to 4 of this call; null: nothing is traced
  };
  /// Plans the validation, so a patch that does not tile a volume is an error before the first iteration.
  TrainingLoop(const NetSpec& spec, const Dataset& data, Trainer& trainer, const Options& options, Scheduler& scheduler,
               std::pmr::memory_resource* memory);

  /// Trains until the end, a stop request, or the time limit. Returns whether a stop request came.
  bool run(TrainingObserver& observer);

  /// Returns whether validations that were not better have ended the training.
  bool ends_early() const { return spec_.training.early_stop > 0 && options_.best.worse >= spec_.training.early_stop; }
  std::int64_t total() const { return options_.total; }
  std::int64_t steps() const { return steps_; }  ///< iterations of this call
  double loss() const { return loss_; }          ///< of the last iteration
  const BestValidation& best() const { return options_.best; }
  const std::optional<Scores>& validation() const { return validation_; }
  const VolumeSlices& slices() const { return slices_; }
  const CasePictures& cases() const { return cases_; }  ///< of the last validation of a classifier
  /// Returns the prediction for the first validation volume; empty without one.
  const Tensor<float>& shown() const { return shown_; }

  double seconds() const;       ///< since the start
  double step_seconds() const;  ///< mean of an iteration, without validations and what add_pause() counts
  void add_pause(double seconds) { pause_seconds_ += seconds; }

 private:
  std::optional<double> step();
  void finish_iteration(double loss, bool interrupted, bool late, TrainingObserver& observer);
  std::optional<Scores> validate();
  std::optional<Scores> score_volumes();
  std::optional<Scores> score_cases();
  void count_validation(const Scores& scores, TrainingObserver& observer);
  bool out_of_time() const { return options_.max_minutes > 0 && seconds() >= 60 * options_.max_minutes; }

  const NetSpec& spec_;
  const Dataset& data_;
  Trainer& trainer_;
  Options options_;
  Scheduler& scheduler_;
  std::pmr::memory_resource* memory_;
  // Both are null without validation volumes. The second one is for volumes that have classes, the first one otherwise.
  std::unique_ptr<Predictor> predictor_;
  std::unique_ptr<Classifier> classifier_;
  double pause_seconds_ = 0, loss_ = std::nan("");
  std::int64_t steps_ = 0, steps_begun_ = 0;
  std::optional<Scores> validation_;
  Tensor<float> shown_;
  VolumeSlices slices_;
  CasePictures cases_;
};

}  // namespace convolume::nets
