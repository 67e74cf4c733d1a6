#include "nets/train/run_records.hpp"

#include <fmt/format.h>

#include "core/files.hpp"
#include "nets/io/png.hpp"

namespace convolume::nets {
namespace {

/// Returns the most important figures: names and values.
std::vector<std::pair<std::string, std::string>> cards_of(const RunLog& log, const TrainingLoop& loop,
                                                          const Trainer& trainer, const NetSpec& spec) {
  constexpr std::size_t most = 6;
  std::vector<std::pair<std::string, std::string>> cards{{"iteration", std::to_string(trainer.iteration())},
                                                         {"loss", fmt::format("{:.4f}", loop.loss())}};
  if (!log.validations().empty()) {
    for (const Score& score : log.validations().back().scores.values) {
      if (cards.size() < most) cards.emplace_back(score.name, fmt::format("{:.4f}", score.value));
    }
  }
  if (loop.best().iteration > 0) {
    cards.emplace_back(fmt::format("best {}, iteration {}", spec.training.best, loop.best().iteration),
                       fmt::format("{:.4f}", loop.best().value));
  }
  if (loop.steps() > 0) {
    const double all = loop.step_seconds() * static_cast<double>(loop.steps());
    cards.emplace_back("ms per iteration", fmt::format("{:.1f}", 1e3 * loop.step_seconds()));
    cards.emplace_back("of it waiting for files", fmt::format("{:.1f} %", 100 * trainer.waited() / all));
  }
  return cards;
}

}  // namespace

RunRecords::RunRecords(const TrainOptions& options, const RunFolder& folder, std::int64_t iteration)
    : options_(options), folder_(folder), log_(folder.metrics(), options.resume, iteration) {
  if (options.tensorboard) events_ = std::make_unique<EventFiles>(folder.events(), options.resume);
  update_events();
}

void RunRecords::write(std::int64_t iteration, double seconds, double loss, const std::optional<Scores>& scores) {
  log_.write(iteration, seconds, loss, scores);
  update_events();
}

void RunRecords::add_scores(std::int64_t iteration, const Scores& scores) {
  log_.add_scores(iteration, scores);
  update_events();
}

void RunRecords::write_report(const std::string& state, const TrainingLoop& loop, const NetSpec& spec,
                              const Dataset& data, const Trainer& trainer, const Scheduler& scheduler,
                              const Trace& trace) const {
  const auto traced = trace.events();
  Report report{.title = spec.name + " on " + data.name,
                .state = fmt::format("{} at iteration {} of {}, after {:.1f} minutes.", state, trainer.iteration(),
                                     loop.total(), (log_.seconds_before() + loop.seconds()) / 60),
                .losses = log_.losses(),
                .validations = log_.validations(),
                .volume = loop.slices().slices().empty() ? nullptr : &loop.slices(),
                .trace = traced};
  if (data.classifies() && loop.validation()) {
    report.cases = &loop.cases();
    report.scores = &*loop.validation();
  }
  report.cards = cards_of(log_, loop, trainer, spec);
  const ReportTable run{"Run",
                        {},
                        {{"net", options_.net.string()},
                         {"data", options_.data.string()},
                         {"seed", std::to_string(trainer.seed())},
                         {"threads", std::to_string(scheduler.threads())},
                         {"patch", fmt::format("{}, {} per iteration", to_string(spec.patch), spec.training.batch)},
                         {"engine", name_of(options_.engine)},
                         {"data digest", data.digest}}};
  report.tables = {run, data_table(data), machine_table()};
  report.texts = {{"Net and recipe", spec.source}, {"Choices", trainer.numerics().to_text()}};
  std::error_code error;
  std::string description = options_.data_text;
  if (description.empty() && std::filesystem::is_regular_file(options_.data, error)) {
    description = read_file(options_.data);
  }
  if (!description.empty()) report.texts.insert(report.texts.begin() + 1, {"Data", description});
  nets::write_report(folder_.report(), report);
}

void write_slice(const std::filesystem::path& file, const LabelledVolume& volume, const Tensor<float>& prediction,
                 std::pmr::memory_resource* memory) {
  const index_t z = volume.image.shape().extent.z / 2;
  const Tensor<float> image = volume.image.planes(z, z + 1, memory);
  const Tensor<float> label = volume.label.planes(z, z + 1, memory);
  View<const float> middle = prediction.view();
  middle.data += z * middle.stride[2];
  middle.shape.extent.z = 1;
  io::write_slice_panel(file, image.view(), middle, label.view(), 0);
}

}  // namespace convolume::nets
