#include "nets/train/resumed_run.hpp"

#include <sstream>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::nets {
namespace {

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

}  // namespace

ResumedRun::ResumedRun(const std::filesystem::path& file)
    : file_(file.string()), header_(read_checkpoint_header(file)) {}

void ResumedRun::add_recorded(NetworkOptions& options, bool tune) const {
  const auto record = NumericsRecord::from_text(header_.numerics);
  options.tuned = tuned_choices(record);
  if (tune && options.tuned.empty()) {
    throw FormatError(
        fmt::format("{}: was trained without --tune, and measured choices would change its bits; leave "
                    "--tune out or start a new run",
                    file_));
  }
  options.recorded = recorded_plans(record);
  if (!options.low_error) return;
  for (const auto* choices : {&options.recorded.choices, &options.tuned}) {
    for (const auto& [layer, choice] : *choices) {
      if (!has_larger_error(engine_of(choice.substr(0, choice.find(' '))))) continue;
      throw FormatError(
          fmt::format("{}: layer {} was trained with '{}', which has a larger error than --low-error allows; leave "
                      "--low-error out or start a new run",
                      file_, layer, choice));
    }
  }
}

void ResumedRun::require_same_run(const NetSpec& spec, const std::optional<std::uint64_t>& seed, const Dataset& data,
                                  const std::string& data_file) const {
  if (const auto difference = first_difference(header_.net.recipe(), spec.recipe())) {
    const bool other = header_.net.architecture() != spec.architecture();
    throw FormatError(
        fmt::format("{}: {} ('{}') than {} ('{}') describes: {}. Use the net, and every --set, of that "
                    "run, or another --out",
                    file_, other ? "belongs to another net" : "was trained with another recipe", header_.net.name,
                    spec.origin, spec.name, *difference));
  }
  if (seed && *seed != header_.seed) {
    throw FormatError(
        fmt::format("{}: was trained with --seed {}, not {}; leave --seed out", file_, header_.seed, *seed));
  }
  if (header_.data_digest != data.digest) {
    throw FormatError(
        fmt::format("{}: was trained on other data (digest {}) than {} describes (digest {}); use the data of that run",
                    file_, header_.data_digest, data_file, data.digest));
  }
}

void ResumedRun::refuse(const std::string& reason) const {
  throw FormatError(
      fmt::format("{}: cannot be continued bit for bit here; {}. Use the same build, CONVOLUME_SIMD and "
                  "--engine, or start a new run",
                  file_, reason));
}

void ResumedRun::require_same_build() const {
  const auto difference = NumericsRecord::of_this_build().first_difference(NumericsRecord::from_text(header_.numerics),
                                                                           NumericsRecord::Compare::own_keys);
  if (difference) refuse(*difference);
}

void ResumedRun::require_same_numerics(const NumericsRecord& numerics) const {
  const auto difference = numerics.first_difference(NumericsRecord::from_text(header_.numerics));
  if (difference) refuse(*difference);
}

BestValidation ResumedRun::best(const NetSpec& spec, const BestValidation& of_new_run) const {
  if (spec.training.best.empty() || header_.best.empty()) return of_new_run;
  BestValidation best;
  try {
    best = BestValidation::from_text(header_.best);
  } catch (const FormatError& error) {
    throw FormatError(fmt::format("{}: {}", file_, error.what()));
  }
  if (best.score != of_new_run.score || best.data != of_new_run.data) {
    throw FormatError(fmt::format(
        "{}: keeps the checkpoint with the best {} on validation volumes with digest {}, but this run compares {} on "
        "volumes with digest {}; use the [training] best and the [[validation]] of that run, or another --out",
        file_, best.score, best.data, of_new_run.score, of_new_run.data));
  }
  if (spec.training.early_stop > 0 && best.worse >= spec.training.early_stop) {
    throw InvalidArgument(
        fmt::format("{}: the run has ended early, because {} validations after iteration {} were not better; raise "
                    "training.early_stop, for example with --set training.early_stop={}, to continue",
                    file_, best.worse, best.iteration, 2 * spec.training.early_stop));
  }
  return best;
}

}  // namespace convolume::nets
