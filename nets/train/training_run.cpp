// Performs a training run: from files on disk to a trained net, a log and pictures.
#include <algorithm>

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "convolume/memory.hpp"
#include "convolume/training.hpp"
#include "core/files.hpp"
#include "nets/base/memory_limit.hpp"
#include "nets/spec/checkpoint.hpp"
#include "nets/train/resumed_run.hpp"
#include "nets/train/run_folder.hpp"
#include "nets/train/run_records.hpp"
#include "nets/train/trainer.hpp"
#include "nets/train/training_limit.hpp"
#include "nets/train/training_loop.hpp"

namespace convolume::nets {
namespace {

/// Reads the net, and checks that it fits its patch and that each of its nodes could fit into the memory of this
/// system.
NetSpec load_possible_net(const TrainOptions& o) {
  NetSpec spec = load_net(o.net, o.overrides);
  require_memory_of_nodes(spec, memory_limit(0) / 3 * 4);
  static_cast<void>(infer_shapes(spec, spec.patch));
  return spec;
}

/// Returns the bytes that a whole validation volume takes per voxel while it is predicted: probabilities, the label and
/// the mask as floats. A classifier predicts one patch of it.
std::size_t validation_bytes(const NetSpec& spec) {
  const NetShapes shapes = infer_shapes(spec, spec.patch);
  if (!shapes.keeps_resolution()) return 0;
  return static_cast<std::size_t>(shapes.output().channels + 2) * sizeof(float);
}

/// Keeps the checkpoints and the records of a training up to date while it runs.
class RunKeeper final : public TrainingObserver {
 public:
  RunKeeper(const TrainOptions& options, const RunFolder& folder, const NetSpec& spec, const Dataset& data,
            const Trainer& trainer, const Scheduler& scheduler, const Trace& trace, TrainingLoop& loop)
      : o_(options),
        folder_(folder),
        spec_(spec),
        data_(data),
        trainer_(trainer),
        scheduler_(scheduler),
        trace_(trace),
        loop_(loop),
        records_(options, folder, trainer.iteration()) {
    if (o_.resume) saved_ = trainer.iteration();
  }

  void completed(std::int64_t iteration, double loss, const std::optional<Scores>& scores) override {
    records_.write(iteration, records_.seconds_before() + loop_.seconds(), loss, scores);
  }
  void made_up(std::int64_t iteration, const Scores& scores) override {
    records_.add_scores(iteration, scores);
    saved_ = -1;  // the checkpoint has to hold this validation
  }
  void best() override { save_checkpoint(folder_.best(), header(), trainer_.parameters()); }
  void checkpoint_due() override { save(); }
  void validated() override { write_report("It is running"); }
  void progress(double loss, const std::optional<Scores>& scores) override {
    if (!o_.on_progress) return;
    const std::int64_t i = trainer_.iteration();
    const double voxels =
        static_cast<double>(trainer_.network().logits().shape().extent.volume() * spec_.training.batch);
    double left = loop_.step_seconds() * static_cast<double>(loop_.total() - i);
    if (o_.max_minutes > 0) left = std::min(left, std::max(0.0, 60 * o_.max_minutes - loop_.seconds()));
    o_.on_progress({.iteration = i,
                    .total = loop_.total(),
                    .loss = loss,
                    .voxels_per_second = voxels / loop_.step_seconds(),
                    .seconds_left = left,
                    .validation = scores});
  }

  void save() {
    if (saved_ == trainer_.iteration()) return;
    folder_.keep(header(), trainer_.parameters());
    saved_ = trainer_.iteration();
  }
  void write_report(const std::string& state) {
    const double begin = loop_.seconds();
    records_.write_report(state, loop_, spec_, data_, trainer_, scheduler_, trace_);
    loop_.add_pause(loop_.seconds() - begin);
  }

 private:
  CheckpointHeader header() const {
    return {.net = spec_,
            .iteration = trainer_.iteration(),
            .seed = trainer_.seed(),
            .numerics = trainer_.numerics().to_text(),
            .data_digest = data_.digest,
            .normalisation = intensity_text(data_.intensity, data_.scaling),
            .spacing = data_.target_spacing,
            .cubic = data_.cubic,
            .orientation = data_.orientation,
            .class_names = data_.class_names,
            .pad = data_.classifies() ? data_.sampling.pad : Pad::none,
            .best = spec_.training.best.empty() ? "" : loop_.best().to_text()};
  }

  const TrainOptions& o_;
  const RunFolder& folder_;
  const NetSpec& spec_;
  const Dataset& data_;
  const Trainer& trainer_;
  const Scheduler& scheduler_;
  const Trace& trace_;
  TrainingLoop& loop_;
  RunRecords records_;
  std::int64_t saved_ = -1;
};

/// A run from its folder to its result. The steps are called in the order in which they are declared.
class TrainingRun {
 public:
  explicit TrainingRun(const TrainOptions& options)
      : o_(options),
        spec_(load_possible_net(options)),
        folder_(options.out, {options.resume, options.take_over, options.on_note}),
        memory_({.upstream = options.upstream}),
        scheduler_(options.threads > 0 ? options.threads : default_threads(),
                   {.scratch_budget = options.scratch_budget, .change_affinity = options.change_affinity}),
        total_(options.iterations.value_or(spec_.training.iterations)) {}

  /// Reads the checkpoint that is continued, plans memory, and reads the data.
  void load() {
    if (o_.resume) resumed_.emplace(folder_.last());
    network_ = {.engine = o_.engine,
                .low_error = o_.low_error,
                .memory_budget = o_.memory_budget,
                .fft = o_.fft,
                .cache_spectra = o_.cache_spectra};
    network_.stop = o_.stop;
    if (resumed_) resumed_->add_recorded(network_, o_.tune);
    room_ = plan_training_room(spec_, network_, limit(), o_.resume);
    data_ = load_dataset(o_.data, {.text = o_.data_text,
                                   .memory = &memory_,
                                   .scheduler = &scheduler_,
                                   .volume_bytes = room_.volume_bytes,
                                   .validation_bytes = validation_bytes(spec_),
                                   .validation_must_fit = o_.memory != 0,
                                   .summaries = folder_.summaries(),
                                   .resume = o_.resume,
                                   .verify = o_.verify_data,
                                   .stop = o_.stop});
    start_ = TrainingLoop::Clock::now();
    for (const std::string& note : data_.notes) {
      if (o_.on_note) o_.on_note(note);
    }
  }

  /// Compares a run that is continued with its checkpoint, and sets up the trainer at the iteration to begin with.
  void prepare() {
    if (total_ < 1) throw InvalidArgument(fmt::format("--iterations is {}; at least 1 is needed", total_));
    check_best(spec_, data_, o_.data.string());
    best_.score = spec_.training.best;
    best_.data = data_.validation_digest;
    network_ = room_.plan.apply(network_);
    if (resumed_) {
      resumed_->require_same_run(spec_, o_.seed, data_, o_.data.string());
      resumed_->require_same_build();
    } else if (o_.tune) {
      network_.tune_on = &scheduler_;
      network_.on_tune = o_.on_tune;
    }
    make_trainer();
    require_room(room_, spec_, limit(), trainer_->network().lifetimes().arena_bytes());
    if (!resumed_) return;
    resumed_->require_same_numerics(trainer_->numerics());
    load_checkpoint(folder_.last(), trainer_->parameters());
    trainer_->set_iteration(resumed_->header().iteration);
    best_ = resumed_->best(spec_, best_);
    if (trainer_->iteration() >= total_ && !lacks_validation(spec_, trainer_->iteration(), best_)) {
      throw InvalidArgument(fmt::format("{}: the run is already at iteration {} of {}; raise --iterations to continue",
                                        folder_.last().string(), trainer_->iteration(), total_));
    }
  }

  TrainResult run() {
    TrainingLoop loop(spec_, data_, *trainer_,
                      {.start = start_,
                       .total = total_,
                       .max_minutes = o_.max_minutes,
                       .best = best_,
                       .predictor = {.engine = o_.engine,
                                     .low_error = o_.low_error,
                                     .memory_budget = o_.memory_budget,
                                     .fft = o_.fft},
                       .stop = o_.stop,
                       .trace = &trace_},
                      scheduler_, &memory_);
    write_trace();  // a path that cannot be written ends the run here
    RunKeeper keeper(o_, folder_, spec_, data_, *trainer_, scheduler_, trace_, loop);
    const bool interrupted = loop.run(keeper);
    keeper.save();
    write_trace();
    const bool early = !interrupted && loop.ends_early();
    keeper.write_report(interrupted ? "It was interrupted" : early ? "It ended early" : "It finished");
    return result(loop, interrupted, early);
  }

 private:
  TrainingLimit limit() const { return {.memory = o_.memory, .tune = o_.tune, .threads = scheduler_.threads()}; }

  void make_trainer() {
    const std::uint64_t seed = resumed_ ? resumed_->header().seed : o_.seed.value_or(1);
    const std::size_t cache = room_.volume_bytes - std::min(room_.volume_bytes, data_.bytes());
    try {
      trainer_ = std::make_unique<Trainer>(spec_, data_, seed, network_, scheduler_, &memory_, cache);
    } catch (const Error& error) {
      // A choice of the record that cannot be planned here, for example because --engine asks for another engine.
      if (!resumed_) throw;
      resumed_->refuse(error.what());
    }
  }

  void write_trace() const {
    if (!o_.trace.empty()) write_file_atomically(o_.trace, chrome_trace({{spec_.name, trace_.events()}}));
  }

  TrainResult result(const TrainingLoop& loop, bool interrupted, bool early) {
    TrainResult result{.iteration = trainer_->iteration(),
                       .loss = loop.loss(),
                       .interrupted = interrupted,
                       .ended_early = early,
                       .workers = scheduler_.distinct_workers(),
                       .waited = trainer_->waited(),
                       .validation = loop.validation(),
                       .checkpoint = folder_.last(),
                       .metrics = folder_.metrics(),
                       .report = folder_.report(),
                       .slice = {},
                       .traced = trace_.events()};
    if (o_.tensorboard) result.tensorboard = folder_.events();
    const BestValidation& best = loop.best();
    if (best.iteration > 0) {
      result.best = BestCheckpoint{folder_.best(), {spec_.training.best, best.value}, best.iteration};
    }
    if (loop.shown()) {
      result.slice = folder_.slice();
      write_slice(result.slice, data_.validation[0], loop.shown(), &memory_);
    }
    return result;
  }

  const TrainOptions& o_;
  NetSpec spec_;
  RunFolder folder_;
  SlabResource memory_;
  Trace trace_;
  Scheduler scheduler_;
  std::int64_t total_;
  std::optional<ResumedRun> resumed_;  // the checkpoint that is continued
  NetworkOptions network_;
  TrainingRoom room_;
  Dataset data_;
  TrainingLoop::Clock::time_point start_{};
  BestValidation best_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace

TrainResult train(const TrainOptions& options) {
  try {
    TrainingRun run(options);
    run.load();
    run.prepare();
    return run.run();
  } catch (const StopRequested&) {
    TrainResult result;  // before the first iteration
    result.interrupted = true;
    return result;
  }
}

}  // namespace convolume::nets
