// Performs a training run: from files on disk to a trained net, a log and pictures.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

#include "convolume/cpu.hpp"
#include "convolume/memory.hpp"
#include "convolume/training.hpp"
#include "core/files.hpp"
#include "nets/base/memory_limit.hpp"
#include "nets/eval/scores.hpp"
#include "nets/graph/memory_plan.hpp"
#include "nets/graph/training_memory.hpp"
#include "nets/infer/predictor.hpp"
#include "nets/io/metrics.hpp"
#include "nets/io/png.hpp"
#include "nets/report/event_files.hpp"
#include "nets/report/run_log.hpp"
#include "nets/report/run_report.hpp"
#include "nets/spec/checkpoint.hpp"
#include "nets/train/best_validation.hpp"
#include "nets/train/run_folder.hpp"
#include "nets/train/trainer.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kept_checkpoints = 3;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Returns the net, if each of its nodes could fit into the memory of this system.
NetSpec possible(NetSpec spec) {
  require_memory_of_nodes(spec, memory_limit(0) / 3 * 4);
  return spec;
}

/// Returns the first line in which two texts differ, as "'theirs' there, 'ours' here".
std::optional<std::string> first_difference(const std::string& theirs, const std::string& ours) {
  std::istringstream left(theirs), right(ours);
  std::string a, b;
  while (true) {
    const bool more_left = static_cast<bool>(std::getline(left, a));
    const bool more_right = static_cast<bool>(std::getline(right, b));
    if (!more_left && !more_right) return std::nullopt;
    if (!more_left) a = "nothing";
    if (!more_right) b = "nothing";
    if (a != b) return fmt::format("'{}' there, '{}' here", a, b);
  }
}

class TrainingRun {
 public:
  explicit TrainingRun(const TrainOptions& options)
      : o_(options),
        spec_(possible(load_net(options.net, options.overrides))),
        folder_((static_cast<void>(infer_shapes(spec_, spec_.patch)), options)),
        memory_({.upstream = options.upstream}),
        scheduler_(options.threads > 0 ? options.threads : default_threads(),
                   {.scratch_budget = options.scratch_budget}),
        header_(options.resume ? std::optional(read_checkpoint_header(folder_.last())) : std::nullopt),
        volume_bytes_(plan_memory()),
        data_(load_dataset(options.data, {.memory = &memory_,
                                          .scheduler = &scheduler_,
                                          .volume_bytes = volume_bytes_,
                                          .validation_bytes = validation_bytes(),
                                          .validation_must_fit = o_.memory != 0,
                                          .summaries = folder_.root / "data.json",
                                          .resume = options.resume,
                                          .verify = options.verify_data,
                                          .stop = options.stop})),
        total_(options.iterations.value_or(spec_.training.iterations)) {
    for (const std::string& note : data_.notes) {
      if (o_.on_note) o_.on_note(note);
    }
    if (total_ < 1) throw InvalidArgument(fmt::format("--iterations is {}; at least 1 is needed", total_));
    check_best();
    best_.score = spec_.training.best;
    best_.data = data_.validation_digest;
    const std::optional<CheckpointHeader>& header = header_;
    if (header) check_same_run(*header);
    const std::uint64_t seed = header ? header->seed : options.seed.value_or(1);
    NetworkOptions network = memory_plan_.apply(network_options());
    if (!header && options.tune) {
      network.tune_on = &scheduler_;
      network.on_tune = options.on_tune;
    }
    if (header) check_build(*header);
    try {
      const std::size_t cache = volume_bytes_ - std::min(volume_bytes_, data_.bytes());
      trainer_ = std::make_unique<Trainer>(spec_, data_, seed, network, scheduler_, &memory_, cache);
    } catch (const Error& error) {
      // A choice of the record that cannot be planned here, for example because --engine asks for another engine.
      if (!header) throw;
      refuse_to_continue(error.what());
    }
    check_memory_of_tuned();
    if (header) {
      check_numerics(*header);
      load_checkpoint(folder_.last(), trainer_->parameters());
      trainer_->set_iteration(header->iteration);
      saved_ = header->iteration;
      read_best(*header);
      if (header->iteration >= total_ && !lacks_validation()) {
        throw InvalidArgument(
            fmt::format("{}: the run is already at iteration {} of {}; raise --iterations to continue",
                        folder_.last().string(), header->iteration, total_));
      }
    }
    make_predictor();
    if (!options.trace.empty()) write_trace();  // a path that cannot be written ends the run here
    log_ = std::make_unique<RunLog>(folder_.root / "metrics.jsonl", options.resume, trainer_->iteration());
    if (o_.tensorboard) events_ = std::make_unique<EventFiles>(folder_.events(), options.resume);
    update_events();
  }

  TrainResult run() {
    bool interrupted = false;
    if (lacks_validation()) {
      if (const auto scores = validate()) {
        log_->add_scores(trainer_->iteration(), *scores);
        update_events();
        count_validation(*scores);
        saved_ = -1;  // the checkpoint has to hold this validation
      }
    }
    while (trainer_->iteration() < total_ && !ends_early()) {
      const auto loss = step();
      interrupted = !loss || o_.stop.stop_requested();
      const bool late = out_of_time();
      if (loss) finish_iteration(*loss, interrupted, late);
      // A stop request may have come during validation.
      interrupted = interrupted || o_.stop.stop_requested();
      if (interrupted || late) break;
    }
    trainer_->flush();
    save();
    if (!o_.trace.empty()) write_trace();
    return report(interrupted);
  }

 private:
  /// Returns the bytes that a whole validation volume takes per voxel while it is predicted: probabilities, the label
  /// and the mask as floats.
  std::size_t validation_bytes() const {
    return static_cast<std::size_t>(infer_shapes(spec_, spec_.patch).output().channels + 2) * sizeof(float);
  }

  NetworkOptions network_options() const {
    NetworkOptions network{
        .engine = o_.engine, .memory_budget = o_.memory_budget, .fft = o_.fft, .cache_spectra = o_.cache_spectra};
    network.stop = o_.stop;
    if (header_) {
      network.tuned = recorded_choices(*header_);
      network.recorded = recorded_plans(NumericsRecord::from_text(header_->numerics));
    }
    return network;
  }

  /// Drafts the memory of the training. Returns the bytes of the process beside an iteration, and all plans.
  std::pair<std::size_t, std::vector<MemoryPlan>> draft_memory() const {
    NetworkOptions network = network_options();
    const auto draft = [&] {
      return std::pair(fixed_process_bytes(spec_, network, scheduler_.threads()),
                       memory_plans(spec_, network, scheduler_.threads()));
    };
    try {
      return draft();
    } catch (const Error&) {
      if (!header_) throw;
      // The record does not fit this net or this build. The checks of the checkpoint will say so.
      network.tuned = {};
      network.recorded = {};
      return draft();
    }
  }

  /// Chooses the memory plan of the training, and returns the bytes of --memory that training and validation leave for
  /// volumes.
  std::size_t plan_memory() {
    const auto [fixed, plans] = draft_memory();
    const std::size_t limit = memory_limit(o_.memory);
    const MemoryPlan* plan = &default_plan(plans);
    if (o_.memory != 0 || fixed + plan->memory.peak() > limit) {
      plan = fastest_within(plans, limit - std::min(limit, fixed));
    }
    if (plan == nullptr && o_.memory != 0) refuse_memory(fixed + plans.back().memory.peak());
    // Without --memory, the system decides whether the smallest plan is too much, unless it could never hold it.
    const std::size_t least = fixed + plans.back().memory.peak();
    if (plan == nullptr && least / 4 * 3 > limit) refuse_memory(least);
    memory_plan_ = plan != nullptr ? *plan : plans.back();
    const std::size_t taken = fixed - least_volume_bytes + memory_plan_.memory.peak();
    return limit >= taken + least_volume_bytes ? limit - taken : least_volume_bytes;
  }

  [[noreturn]] void refuse_memory(std::size_t needed) const {
    constexpr std::size_t mebibyte = std::size_t{1} << 20;
    const std::string limit = o_.memory != 0
                                  ? fmt::format("--memory {}M", o_.memory / mebibyte)
                                  : fmt::format("{}: the system allows {}M", spec_.origin, memory_limit(0) / mebibyte);
    throw InvalidArgument(
        fmt::format("{}: training this net{} needs at least {}M; see convolume info --memory-curve for what takes it",
                    limit, o_.tune ? " with measured choices" : "", (needed + mebibyte - 1) / mebibyte));
  }

  /// Refuses measured choices for which the memory plan, which was made before, does not suffice.
  void check_memory_of_tuned() const {
    if (!o_.tune || o_.memory == 0) return;
    const std::size_t planned = memory_plan_.memory.arena, taken = trainer_->network().lifetimes().arena_bytes();
    if (taken > planned + volume_bytes_ - least_volume_bytes) refuse_memory(o_.memory + taken - planned);
  }

  /// Checks what the net's [training] says about the best checkpoint.
  void check_best() const {
    const std::string& best = spec_.training.best;
    if (best.empty()) return;
    const auto names = score_names(targets());
    if (std::find(names.begin(), names.end(), best) == names.end()) {
      throw ConfigError(fmt::format("{}: training.best = \"{}\": this net has no such score; it has {}", spec_.origin,
                                    best, fmt::join(names, ", ")));
    }
    if (data_.validation.empty()) {
      throw ConfigError(fmt::format("{}: training.best = \"{}\" needs a validation volume; add [[validation]] to {}",
                                    spec_.origin, best, o_.data.string()));
    }
  }

  void read_best(const CheckpointHeader& header) {
    if (spec_.training.best.empty() || header.best.empty()) return;
    try {
      best_ = BestValidation::from_text(header.best);
    } catch (const FormatError& error) {
      throw FormatError(fmt::format("{}: {}", folder_.last().string(), error.what()));
    }
    if (best_.score != spec_.training.best || best_.data != data_.validation_digest) {
      throw FormatError(fmt::format(
          "{}: keeps the checkpoint with the best {} on validation volumes with digest {}, but this run compares {} on "
          "volumes with digest {}; use the [training] best and the [[validation]] of that run, or another --out",
          folder_.last().string(), best_.score, best_.data, spec_.training.best, data_.validation_digest));
    }
    if (!ends_early()) return;
    throw InvalidArgument(
        fmt::format("{}: the run has ended early, because {} validations after iteration {} were not better; raise "
                    "training.early_stop, for example with --set training.early_stop={}, to continue",
                    folder_.last().string(), best_.worse, best_.iteration, 2 * spec_.training.early_stop));
  }

  bool ends_early() const { return spec_.training.early_stop > 0 && best_.worse >= spec_.training.early_stop; }

  /// Returns whether validations after this iteration count for the best checkpoint. The validation at the end of a run
  /// may come at any iteration. It does not count, because a longer run would not have it.
  bool counts(std::int64_t iteration) const { return iteration % spec_.training.validate_every == 0; }

  /// Returns whether the run was interrupted between an iteration and a validation that counts.
  bool lacks_validation() const {
    const std::int64_t i = trainer_->iteration();
    return !spec_.training.best.empty() && i > 0 && counts(i) && best_.validated < i;
  }

  /// Keeps the checkpoint if it is the best one so far.
  void count_validation(const Scores& scores) {
    const std::string& name = spec_.training.best;
    if (name.empty() || !best_.count(trainer_->iteration(), scores.at(name))) return;
    save_checkpoint(folder_.best(), checkpoint_header(), trainer_->parameters());
  }

  Targets targets() const {
    return {.classes = spec_.softmax() ? infer_shapes(spec_, spec_.patch).output().channels : 0,
            .regions = data_.regions};
  }

  /// Runs one iteration. It traces iterations 2 to 4 of this process, because the first iteration allocates memory from
  /// the system and later ones do not.
  std::optional<double> step() {
    constexpr std::int64_t first_traced = 2, last_traced = 4;
    ++steps_begun_;
    const bool traced = steps_begun_ >= first_traced && steps_begun_ <= last_traced;
    if (traced) scheduler_.record(&trace_);
    const auto loss = trainer_->step(o_.stop);
    scheduler_.record(nullptr);
    return loss;
  }

  void write_trace() const { write_file_atomically(o_.trace, chrome_trace({{spec_.name, trace_.events()}})); }

  void check_same_run(const CheckpointHeader& header) const {
    const std::string file = folder_.last().string();
    if (const auto difference = first_difference(header.net.recipe(), spec_.recipe())) {
      const bool other = header.net.architecture() != spec_.architecture();
      throw FormatError(
          fmt::format("{}: {} ('{}') than {} ('{}') describes: {}. Use the net, and every --set, of that "
                      "run, or another --out",
                      file, other ? "belongs to another net" : "was trained with another recipe", header.net.name,
                      spec_.origin, spec_.name, *difference));
    }
    if (o_.seed && *o_.seed != header.seed) {
      throw FormatError(
          fmt::format("{}: was trained with --seed {}, not {}; leave --seed out", file, header.seed, *o_.seed));
    }
    if (header.data_digest != data_.digest) {
      throw FormatError(fmt::format(
          "{}: was trained on other data (digest {}) than {} describes (digest {}); use the data of that run", file,
          header.data_digest, o_.data.string(), data_.digest));
    }
  }

  /// Returns the tuned choices in the run's checkpoint.
  std::map<std::string, std::string> recorded_choices(const CheckpointHeader& header) const {
    auto choices = tuned_choices(NumericsRecord::from_text(header.numerics));
    if (o_.tune && choices.empty()) {
      throw FormatError(
          fmt::format("{}: was trained without --tune, and measured choices would change its bits; leave "
                      "--tune out or start a new run",
                      folder_.last().string()));
    }
    return choices;
  }

  [[noreturn]] void refuse_to_continue(const std::string& reason) const {
    throw FormatError(
        fmt::format("{}: cannot be continued bit for bit here; {}. Use the same build, CONVOLUME_SIMD and "
                    "--engine, or start a new run",
                    folder_.last().string(), reason));
  }

  /// Compares what the build alone decides, before plans are made from the recorded choices.
  void check_build(const CheckpointHeader& header) const {
    const auto difference = NumericsRecord::of_this_build().first_difference(NumericsRecord::from_text(header.numerics),
                                                                             NumericsRecord::Compare::own_keys);
    if (difference) refuse_to_continue(*difference);
  }

  void check_numerics(const CheckpointHeader& header) const {
    const auto difference = trainer_->numerics().first_difference(NumericsRecord::from_text(header.numerics));
    if (difference) refuse_to_continue(*difference);
  }

  /// Plans the validation at the start, so a patch that does not tile a volume is an error before the first iteration.
  void make_predictor() {
    if (data_.validation.empty()) return;
    predictor_ = std::make_unique<Predictor>(
        spec_, trainer_->parameters(),
        PredictorOptions{.engine = o_.engine, .memory_budget = o_.memory_budget, .fft = o_.fft}, scheduler_, &memory_);
    for (const LabelledVolume& volume : data_.validation) predictor_->network(predictor_->grid(volume.grid()));
  }

  void update_events() {
    if (events_) events_->update(*log_);
  }

  bool out_of_time() const { return o_.max_minutes > 0 && seconds_since(start_) >= 60 * o_.max_minutes; }

  void finish_iteration(double loss, bool interrupted, bool late) {
    const std::int64_t i = trainer_->iteration();
    loss_ = loss;
    const bool last = i == total_ || late;
    const bool due = !interrupted && (last || i % spec_.training.validate_every == 0);
    std::optional<Scores> scores;
    if (due) scores = validate();
    if (scores && counts(i)) count_validation(*scores);
    log_->write(i, log_->seconds_before() + seconds_since(start_), loss, scores);
    update_events();
    if (!last && !interrupted && i % spec_.training.checkpoint_every == 0) {
      trainer_->flush();
      save();
    }
    if (due && !last) write_report("It is running");
    ++steps_;
    if (!o_.on_progress) return;
    const double voxels =
        static_cast<double>(trainer_->network().logits().shape().extent.volume() * spec_.training.batch);
    double left = step_seconds() * static_cast<double>(total_ - i);
    if (o_.max_minutes > 0) left = std::min(left, std::max(0.0, 60 * o_.max_minutes - seconds_since(start_)));
    o_.on_progress({.iteration = i,
                    .total = total_,
                    .loss = loss,
                    .voxels_per_second = voxels / step_seconds(),
                    .seconds_left = left,
                    .validation = scores});
  }

  /// Returns the scores over all validation volumes together.
  std::optional<Scores> validate() {
    if (data_.validation.empty()) return std::nullopt;
    const auto start = Clock::now();
    trainer_->flush();
    ScoreSums sums(targets(), 0.5);
    for (std::size_t v = 0; v < data_.validation.size(); ++v) {
      const LabelledVolume& volume = data_.validation[v];
      auto probabilities = predictor_->run(volume.resampled ? volume.resampled : volume.image, {}, o_.stop);
      if (!probabilities) return std::nullopt;
      if (volume.resampling) {
        probabilities = resample(volume.resampling->inverse(), std::as_const(probabilities).view(), &memory_);
      }
      const Tensor<float> label = volume.label.floats(&memory_);
      const Tensor<float> mask = volume.mask ? volume.mask.floats(&memory_) : Tensor<float>();
      sums.add(std::as_const(probabilities).view(), label.view(), mask ? mask.view() : View<const float>{});
      if (v > 0) continue;
      if (slices_.slices().empty()) slices_ = VolumeSlices(volume, targets(), &memory_);
      slices_.predict(std::as_const(probabilities).view());
      shown_ = foreground(spec_, std::move(probabilities));
    }
    validation_ = sums.result();
    validation_seconds_ += seconds_since(start);
    return validation_;
  }

  CheckpointHeader checkpoint_header() const {
    return {.net = spec_,
            .iteration = trainer_->iteration(),
            .seed = trainer_->seed(),
            .numerics = trainer_->numerics().to_text(),
            .data_digest = data_.digest,
            .normalisation = intensity_text(data_.intensity, data_.scaling),
            .spacing = data_.target_spacing,
            .cubic = data_.cubic,
            .orientation = data_.orientation,
            .best = spec_.training.best.empty() ? "" : best_.to_text()};
  }

  void save() {
    if (saved_ == trainer_->iteration()) return;
    const fs::path file = folder_.checkpoint(trainer_->iteration());
    save_checkpoint(file, checkpoint_header(), trainer_->parameters());
    point_last_at(file);
    saved_ = trainer_->iteration();
    remove_old();
  }

  /// Removes all but the newest checkpoints, including those of earlier runs, and temporary files of killed runs. A
  /// file that cannot be removed does no harm.
  void remove_old() const {
    std::vector<fs::path> kept;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder_.last().parent_path(), ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.find(".safetensors.tmp-") != std::string::npos) {
        fs::remove(entry.path(), ignored);
      } else if (name.starts_with("iteration-") && name.ends_with(".safetensors")) {
        kept.push_back(entry.path());
      }
    }
    std::sort(kept.begin(), kept.end());
    for (std::size_t i = 0; i + kept_checkpoints < kept.size(); ++i) fs::remove(kept[i], ignored);
  }

  /// Gives the checkpoint a second name, last.safetensors: a hard link, moved into place by a rename.
  void point_last_at(const fs::path& file) const {
    const fs::path temporary = folder_.last().string() + fmt::format(".tmp-{}", ::getpid());
    std::error_code error;
    fs::remove(temporary, error);
    fs::create_hard_link(file, temporary, error);
    if (error) return write_file_atomically(folder_.last(), read_file(file));  // a file system without hard links
    fs::rename(temporary, folder_.last(), error);
    if (!error) return sync_directory(folder_.last().parent_path());
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw IoError(fmt::format("{}: replacing it failed: {}", folder_.last().string(), error.message()));
  }

  /// Writes report.html. `state` is the begin of a sentence about the run.
  void write_report(const std::string& state) {
    const auto begin = Clock::now();
    const double seconds = log_->seconds_before() + seconds_since(start_);
    const auto traced = trace_.events();
    Report report{.title = spec_.name + " on " + data_.name,
                  .state = fmt::format("{} at iteration {} of {}, after {:.1f} minutes.", state, trainer_->iteration(),
                                       total_, seconds / 60),
                  .losses = log_->losses(),
                  .validations = log_->validations(),
                  .volume = slices_.slices().empty() ? nullptr : &slices_,
                  .trace = traced};
    report.cards = {{"iteration", std::to_string(trainer_->iteration())}, {"loss", fmt::format("{:.4f}", loss_)}};
    if (!log_->validations().empty()) {
      for (const Score& score : log_->validations().back().scores.values) {
        if (report.cards.size() < 6) report.cards.emplace_back(score.name, fmt::format("{:.4f}", score.value));
      }
    }
    if (best_.iteration > 0) {
      report.cards.emplace_back(fmt::format("best {}, iteration {}", spec_.training.best, best_.iteration),
                                fmt::format("{:.4f}", best_.value));
    }
    if (steps_ > 0) {
      report.cards.emplace_back("ms per iteration", fmt::format("{:.1f}", 1e3 * step_seconds()));
      report.cards.emplace_back(
          "of it waiting for files",
          fmt::format("{:.1f} %", 100 * trainer_->waited() / (step_seconds() * static_cast<double>(steps_))));
    }
    report.tables = {run_table(), data_table(data_), machine_table()};
    report.texts = {{"Net and recipe", spec_.source}, {"Choices", trainer_->numerics().to_text()}};
    std::error_code error;
    if (fs::is_regular_file(o_.data, error))
      report.texts.insert(report.texts.begin() + 1, {"Data", read_file(o_.data)});
    nets::write_report(folder_.report(), report);
    validation_seconds_ += seconds_since(begin);
  }

  ReportTable run_table() const {
    return {"Run",
            {},
            {{"net", o_.net.string()},
             {"data", o_.data.string()},
             {"seed", std::to_string(trainer_->seed())},
             {"threads", std::to_string(scheduler_.threads())},
             {"patch", fmt::format("{}, {} per iteration", to_string(spec_.patch), spec_.training.batch)},
             {"engine", name_of(o_.engine)},
             {"data digest", data_.digest}}};
  }

  /// Returns the mean seconds of an iteration of this process, validations left out.
  double step_seconds() const {
    return (seconds_since(start_) - validation_seconds_) / static_cast<double>(std::max<std::int64_t>(1, steps_));
  }

  TrainResult report(bool interrupted) {
    const bool early = !interrupted && ends_early();
    write_report(interrupted ? "It was interrupted" : early ? "It ended early" : "It finished");
    TrainResult result{.iteration = trainer_->iteration(),
                       .loss = loss_,
                       .interrupted = interrupted,
                       .workers = scheduler_.distinct_workers(),
                       .waited = trainer_->waited(),
                       .validation = validation_,
                       .checkpoint = folder_.last(),
                       .metrics = folder_.root / "metrics.jsonl",
                       .report = folder_.report(),
                       .slice = {},
                       .traced = trace_.events()};
    result.ended_early = early;
    if (events_) result.tensorboard = folder_.events();
    if (best_.iteration > 0) {
      result.best = BestCheckpoint{folder_.best(), {spec_.training.best, best_.value}, best_.iteration};
    }
    if (shown_) {
      result.slice = folder_.root / "report" / "slice.png";
      const LabelledVolume& volume = data_.validation[0];
      const index_t z = volume.image.shape().extent.z / 2;
      const Tensor<float> image = volume.image.planes(z, z + 1, &memory_);
      const Tensor<float> label = volume.label.planes(z, z + 1, &memory_);
      View<const float> prediction = std::as_const(shown_).view();
      prediction.data += z * prediction.stride[2];
      prediction.shape.extent.z = 1;
      io::write_slice_panel(result.slice, image.view(), prediction, label.view(), 0);
    }
    return result;
  }

  const TrainOptions& o_;
  NetSpec spec_;
  RunFolder folder_;
  SlabResource memory_;
  Trace trace_;
  Scheduler scheduler_;
  std::optional<CheckpointHeader> header_;  // of the checkpoint that is continued
  MemoryPlan memory_plan_;
  std::size_t volume_bytes_;
  Dataset data_;
  std::int64_t total_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Predictor> predictor_;
  std::unique_ptr<RunLog> log_;
  std::unique_ptr<EventFiles> events_;  // null without --tensorboard
  Clock::time_point start_ = Clock::now();
  double validation_seconds_ = 0, loss_ = std::nan("");
  std::int64_t steps_ = 0, steps_begun_ = 0, saved_ = -1;
  std::optional<Scores> validation_;
  Tensor<float> shown_;
  VolumeSlices slices_;
  BestValidation best_;
};

}  // namespace

TrainResult train(const TrainOptions& options) {
  try {
    return TrainingRun(options).run();
  } catch (const StopRequested&) {
    TrainResult result;  // before the first iteration
    result.interrupted = true;
    return result;
  }
}

}  // namespace convolume::nets
