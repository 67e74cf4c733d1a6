#include "nets/train/training_loop.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convolume/error.hpp"
#include "nets/eval/confusion_matrix.hpp"
#include "nets/eval/scores.hpp"
#include "nets/graph/training_memory.hpp"

namespace convolume::nets {
namespace {

/// Returns whether validations after this iteration count for the best checkpoint. The validation at the end of a
/// training may come at any iteration. It does not count, because a longer training would not have it.
bool counts(const NetSpec& spec, std::int64_t iteration) { return iteration % spec.training.validate_every == 0; }

}  // namespace

Targets targets_of(const NetSpec& spec, const Dataset& data) {
  return {.classes = spec.softmax() ? infer_shapes(spec, spec.patch).output().channels : 0, .regions = data.regions};
}

void check_best(const NetSpec& spec, const Dataset& data, const std::string& data_file) {
  const std::string& best = spec.training.best;
  if (best.empty()) return;
  const auto names = data.classifies() ? classifier_score_names() : score_names(targets_of(spec, data));
  if (std::find(names.begin(), names.end(), best) == names.end()) {
    throw ConfigError(fmt::format("{}: training.best = \"{}\": this net has no such score; it has {}", spec.origin,
                                  best, fmt::join(names, ", ")));
  }
  if (data.validation.empty()) {
    throw ConfigError(fmt::format("{}: training.best = \"{}\" needs a validation volume; add [[validation]] to {}",
                                  spec.origin, best, data_file));
  }
}

bool lacks_validation(const NetSpec& spec, std::int64_t iteration, const BestValidation& best) {
  return !spec.training.best.empty() && iteration > 0 && counts(spec, iteration) && best.validated < iteration;
}

TrainingLoop::TrainingLoop(const NetSpec& spec, const Dataset& data, Trainer& trainer, const Options& options,
                           Scheduler& scheduler, std::pmr::memory_resource* memory)
    : spec_(spec), data_(data), trainer_(trainer), options_(options), scheduler_(scheduler), memory_(memory) {
  if (data_.validation.empty()) return;
  if (data_.classifies()) {
    const NetworkOptions network{.batch = validation_batch(spec_),
                                 .engine = options_.predictor.engine,
                                 .low_error = options_.predictor.low_error,
                                 .memory_budget = options_.predictor.memory_budget,
                                 .fft = options_.predictor.fft};
    classifier_ = std::make_unique<Classifier>(spec_, trainer_.parameters(), network, data_.sampling.pad, memory_);
    return;
  }
  predictor_ = std::make_unique<Predictor>(spec_, trainer_.parameters(), options_.predictor, scheduler_, memory_);
  for (const LabelledVolume& volume : data_.validation) predictor_->network(predictor_->grid(volume.grid()));
}

bool TrainingLoop::run(TrainingObserver& observer) {
  bool interrupted = false;
  if (lacks_validation(spec_, trainer_.iteration(), options_.best)) {
    if (const auto scores = validate()) {
      observer.made_up(trainer_.iteration(), *scores);
      count_validation(*scores, observer);
    }
  }
  while (trainer_.iteration() < options_.total && !ends_early()) {
    const auto loss = step();
    interrupted = !loss || options_.stop.stop_requested();
    const bool late = out_of_time();
    if (loss) finish_iteration(*loss, interrupted, late, observer);
    // A stop request may have come during validation.
    interrupted = interrupted || options_.stop.stop_requested();
    if (interrupted || late) break;
  }
  trainer_.flush();
  return interrupted;
}

/// Runs one iteration. The first iteration is not traced, because it allocates memory from the system.
std::optional<double> TrainingLoop::step() {
  constexpr std::int64_t first_traced = 2, last_traced = 4;
  ++steps_begun_;
  const bool traced = steps_begun_ >= first_traced && steps_begun_ <= last_traced;
  if (traced) scheduler_.record(options_.trace);
  const auto loss = trainer_.step(options_.stop);
  scheduler_.record(nullptr);
  return loss;
}

void TrainingLoop::finish_iteration(double loss, bool interrupted, bool late, TrainingObserver& observer) {
  const std::int64_t i = trainer_.iteration();
  loss_ = loss;
  const bool last = i == options_.total || late;
  const bool due = !interrupted && (last || i % spec_.training.validate_every == 0);
  std::optional<Scores> scores;
  if (due) scores = validate();
  if (scores && counts(spec_, i)) count_validation(*scores, observer);
  observer.completed(i, loss, scores);
  if (!last && !interrupted && i % spec_.training.checkpoint_every == 0) {
    trainer_.flush();
    observer.checkpoint_due();
  }
  if (due && !last) observer.validated();
  ++steps_;
  observer.progress(loss, scores);
}

/// Keeps the checkpoint if it is the best one so far.
void TrainingLoop::count_validation(const Scores& scores, TrainingObserver& observer) {
  const std::string& name = spec_.training.best;
  if (!name.empty() && options_.best.count(trainer_.iteration(), scores.at(name))) observer.best();
}

/// Returns the scores over all validation volumes together. There are none if a stop request came first.
std::optional<Scores> TrainingLoop::validate() {
  if (data_.validation.empty()) return std::nullopt;
  const double begin = seconds();
  trainer_.flush();
  auto scores = classifier_ ? score_cases() : score_volumes();
  if (!scores) return std::nullopt;
  validation_ = std::move(scores);
  add_pause(seconds() - begin);
  return validation_;
}

std::optional<Scores> TrainingLoop::score_cases() {
  std::vector<const StoredVolume*> images;
  for (const LabelledVolume& volume : data_.validation) {
    images.push_back(volume.resampled ? &volume.resampled : &volume.image);
  }
  const auto probabilities = classifier_->run(images, scheduler_, options_.stop);
  if (probabilities.empty()) return std::nullopt;
  ConfusionMatrix matrix(data_.class_names);
  cases_ = CasePictures(spec_.patch);
  for (std::size_t v = 0; v < images.size(); ++v) {
    const LabelledVolume& volume = data_.validation[v];
    const auto actual = static_cast<std::size_t>(volume.class_number);
    const std::size_t predicted = most_probable(probabilities[v]);
    matrix.add(actual, predicted);
    cases_.add(volume.name, *images[v], actual, predicted, memory_);
  }
  return matrix.result();
}

std::optional<Scores> TrainingLoop::score_volumes() {
  const Targets targets = targets_of(spec_, data_);
  ScoreSums sums(targets, 0.5);
  for (std::size_t v = 0; v < data_.validation.size(); ++v) {
    const LabelledVolume& volume = data_.validation[v];
    auto probabilities = predictor_->run(volume.resampled ? volume.resampled : volume.image, {}, options_.stop);
    if (!probabilities) return std::nullopt;
    if (volume.resampling) {
      probabilities = resample(volume.resampling->inverse(), std::as_const(probabilities).view(), memory_);
    }
    const Tensor<float> label = volume.label.floats(memory_);
    const Tensor<float> mask = volume.mask ? volume.mask.floats(memory_) : Tensor<float>();
    sums.add(std::as_const(probabilities).view(), label.view(), mask ? mask.view() : View<const float>{});
    if (v > 0) continue;
    if (slices_.slices().empty()) slices_ = VolumeSlices(volume, targets, memory_);
    slices_.predict(std::as_const(probabilities).view());
    shown_ = foreground(spec_, std::move(probabilities));
  }
  return sums.result();
}

double TrainingLoop::seconds() const { return std::chrono::duration<double>(Clock::now() - options_.start).count(); }

double TrainingLoop::step_seconds() const {
  return (seconds() - pause_seconds_) / static_cast<double>(std::max<std::int64_t>(1, steps_));
}

}  // namespace convolume::nets
