#include "python/bindings/nets.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "python/bindings/held_buffer.hpp"
#include "python/bindings/interruptible.hpp"
#include <nanobind/stl/array.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "convolume/error.hpp"
#include "convolume/nets.hpp"

namespace convolume::python {
namespace {

using namespace nb::literals;
using Triple = std::array<index_t, 3>;
using Lengths = std::optional<std::array<double, 3>>;

Extent3 extent_of(const Triple& t) { return {t[0], t[1], t[2]}; }
std::optional<Extent3> extent_of(const std::optional<Triple>& t) {
  return t ? std::optional(extent_of(*t)) : std::nullopt;
}
Triple triple_of(const Extent3& e) { return {e.z, e.y, e.x}; }

/// An array of Python as a volume: (Z, Y, X), or (C, Z, Y, X).
class Volume {
 public:
  /// `type` is the name of the array's dtype.
  Volume(nb::handle array, const std::string& type, const Lengths& spacing, int flags = 0)
      : buffer_(array, PyBUF_STRIDES | flags) {
    view_.voxels = buffer_->buf;
    view_.type = type;
    view_.spacing = spacing;
    if (buffer_->ndim != 3 && buffer_->ndim != 4) {
      throw InvalidArgument("a volume has " + std::to_string(buffer_->ndim) + " axes; it must have 3 or 4");
    }
    const int first = 4 - buffer_->ndim;  // 1 if there is no axis of channels
    const auto extent = [&](int axis) { return axis < first ? index_t{1} : buffer_->shape[axis - first]; };
    view_.channels = extent(0);
    view_.extent = {extent(1), extent(2), extent(3)};
    std::array<std::ptrdiff_t, 4> stride{};
    for (int axis = first; axis < 4; ++axis) stride[static_cast<std::size_t>(axis)] = buffer_->strides[axis - first];
    view_.stride = stride;
  }

  const nets::ArrayView& view() const noexcept { return view_; }
  void* memory() const noexcept { return buffer_->buf; }

 private:
  HeldBuffer buffer_;
  nets::ArrayView view_;
};

/// A volume that has a path while it lives.
class NamedVolume {
 public:
  NamedVolume(nb::handle array, const std::string& type, const Lengths& spacing)
      : volume_(array, type, spacing), named_(volume_.view()) {}
  const std::string& path() const noexcept { return named_.path(); }

 private:
  Volume volume_;
  nets::ArrayVolume named_;
};

nb::dict dict_of(const nets::Scores& scores) {
  nb::dict values;
  for (const nets::Score& score : scores.values) values[score.name.c_str()] = score.value;
  return values;
}

/// Returns a function of C++ that calls one of Python, or an empty one.
template <class... Arguments, class Convert>
std::function<void(Arguments...)> callback(Interruptible& computation, nb::handle function, const Convert& convert) {
  if (function.is_none()) return {};
  return [&computation, function, convert](Arguments... arguments) { convert(computation, function, arguments...); };
}

std::function<void(const std::string&)> note_callback(Interruptible& computation, nb::handle function) {
  return callback<const std::string&>(computation, function,
                                      [](Interruptible& c, nb::handle f, const std::string& n) { c.call(f, n); });
}

std::function<void(double)> share_callback(Interruptible& computation, nb::handle function) {
  return callback<double>(computation, function,
                          [](Interruptible& c, nb::handle f, double share) { c.call(f, share); });
}

/// A computation that no exception has stopped was stopped because the interpreter ends.
void require_complete(bool complete) {
  if (!complete) throw std::runtime_error("convolume was stopped: the interpreter is ending");
}

/// Returns the threads of a call: those that it names, or those of the package.
int threads_of(int threads) {
  if (threads < 0)
    throw InvalidArgument("threads: " + std::to_string(threads) + " is negative; 0 means the usual ones");
  return threads > 0 ? threads : Runtime::get().threads();
}

nets::TrainResult train(nets::TrainOptions options, nb::handle on_progress, nb::handle on_tune, nb::handle on_note) {
  Interruptible computation;
  options.change_affinity = false;
  options.threads = threads_of(options.threads);
  options.stop = computation.stop();
  options.on_note = note_callback(computation, on_note);
  options.on_progress = callback<const nets::TrainProgress&>(
      computation, on_progress,
      [](Interruptible& c, nb::handle f, const nets::TrainProgress& progress) { c.call(f, progress); });
  options.on_tune = callback<const std::string&, double>(
      computation, on_tune,
      [](Interruptible& c, nb::handle f, const std::string& layer, double seconds) { c.call(f, layer, seconds); });
  return computation.run([&] { return nets::train(options); });
}

void infer(nets::InferOptions options, nb::handle on_progress, nb::handle on_note) {
  Interruptible computation;
  options.change_affinity = false;
  options.threads = threads_of(options.threads);
  options.stop = computation.stop();
  options.on_progress = share_callback(computation, on_progress);
  options.on_note = note_callback(computation, on_note);
  require_complete(computation.run([&] { return nets::infer(options); }));
}

nets::Scores evaluate(nets::EvaluateOptions options, nb::handle on_note) {
  Interruptible computation;
  options.stop = computation.stop();
  options.on_note = note_callback(computation, on_note);
  return computation.run([&] { return nets::evaluate_files(options); });
}

void convert(nets::ConvertOptions options, nb::handle on_progress, nb::handle on_note) {
  Interruptible computation;
  options.stop = computation.stop();
  options.on_progress = share_callback(computation, on_progress);
  options.on_note = note_callback(computation, on_note);
  require_complete(computation.run([&] { return nets::convert_volume(options); }));
}

/// A net that predicts arrays.
class Predictor {
 public:
  explicit Predictor(const nets::InferOptions& options) {
    const Computation computation;
    nets::InferOptions own = options;
    own.change_affinity = false;
    own.threads = threads_of(own.threads);
    predictor_.emplace(own);
  }

  /// Returns the type and the shape (C, Z, Y, X) of the prediction of a volume.
  std::pair<std::string, std::vector<index_t>> output_for(nb::handle array, const std::string& type,
                                                          const Lengths& spacing) const {
    const Volume volume(array, type, spacing);
    const auto output = predictor_->output_for(volume.view());
    return {output.type, {output.channels, output.extent.z, output.extent.y, output.extent.x}};
  }

  void predict(nb::handle array, const std::string& type, const Lengths& spacing, nb::handle prediction) {
    if (busy_.exchange(true)) {
      throw std::runtime_error("Predictor: it is predicting already; make another one for each thread");
    }
    const std::unique_ptr<std::atomic<bool>, void (*)(std::atomic<bool>*)> end(&busy_,
                                                                               [](auto* busy) { busy->store(false); });
    const Volume volume(array, type, spacing);
    const Volume target(prediction, type, {}, PyBUF_WRITABLE);
    Interruptible computation;
    require_complete(
        computation.run([&] { return predictor_->predict(volume.view(), target.memory(), computation.stop()); }));
  }

 private:
  std::optional<nets::VolumePredictor> predictor_;
  std::atomic<bool> busy_{false};
};

double score_of(const nets::Scores& scores, const std::string& name) {
  for (const nets::Score& score : scores.values) {
    if (score.name == name) return score.value;
  }
  throw nb::key_error(name.c_str());
}

std::string describe(const std::string& file, const std::vector<std::string>& overrides,
                     const std::optional<Triple>& patch, int threads) {
  const Computation computation;
  const nets::FileKind kind = nets::kind_of_file(file);
  if (kind == nets::FileKind::net) return nets::describe_net(file, overrides, extent_of(patch), threads_of(threads));
  if (!overrides.empty() || patch) {
    throw InvalidArgument(file + " is no net; overrides and patch are for nets only");
  }
  return kind == nets::FileKind::checkpoint ? nets::describe_checkpoint(file) : nets::describe_volume(file);
}

/// Adds a property of three numbers along Z, Y, X, or None.
template <class Class, class Options>
void add_extent(Class& c, const char* name, std::optional<Extent3> Options::*member) {
  c.def_prop_rw(
      name, [member](const Options& o) { return o.*member ? std::optional(triple_of(*(o.*member))) : std::nullopt; },
      [member](Options& o, const std::optional<Triple>& value) { o.*member = extent_of(value); }, nb::arg().none());
}

template <class Class, class Options>
void add_engine(Class& c, Engine Options::*member) {
  c.def_prop_rw(
      "engine", [member](const Options& o) { return std::string(name_of(o.*member)); },
      [member](Options& o, const std::string& name) { o.*member = engine_of(name); });
}

void add_options(nb::module_& m) {
  using nets::TrainOptions;
  auto t = nb::class_<TrainOptions>(m, "TrainOptions").def(nb::init<>());
  t.def_rw("net", &TrainOptions::net)
      .def_rw("data", &TrainOptions::data)
      .def_rw("data_text", &TrainOptions::data_text)
      .def_rw("out", &TrainOptions::out)
      .def_rw("overrides", &TrainOptions::overrides)
      .def_rw("iterations", &TrainOptions::iterations, nb::arg().none())
      .def_rw("max_minutes", &TrainOptions::max_minutes)
      .def_rw("seed", &TrainOptions::seed, nb::arg().none())
      .def_rw("threads", &TrainOptions::threads)
      .def_rw("resume", &TrainOptions::resume)
      .def_rw("verify_data", &TrainOptions::verify_data)
      .def_rw("take_over", &TrainOptions::take_over)
      .def_rw("memory", &TrainOptions::memory)
      .def_rw("low_error", &TrainOptions::low_error)
      .def_rw("memory_budget", &TrainOptions::memory_budget, nb::arg().none())
      .def_rw("scratch_budget", &TrainOptions::scratch_budget)
      .def_rw("cache_spectra", &TrainOptions::cache_spectra)
      .def_rw("tune", &TrainOptions::tune)
      .def_rw("trace", &TrainOptions::trace)
      .def_rw("tensorboard", &TrainOptions::tensorboard);
  add_engine(t, &TrainOptions::engine);

  using nets::InferOptions;
  auto i = nb::class_<InferOptions>(m, "InferOptions").def(nb::init<>());
  i.def_rw("checkpoint", &InferOptions::checkpoint)
      .def_rw("volume", &InferOptions::volume)
      .def_rw("channels", &InferOptions::channels)
      .def_rw("cases", &InferOptions::cases)
      .def_rw("output", &InferOptions::output)
      .def_rw("as_uint8", &InferOptions::as_uint8)
      .def_rw("labels", &InferOptions::labels)
      .def_rw("cheapest_patch", &InferOptions::cheapest_patch)
      .def_rw("spacing", &InferOptions::spacing, nb::arg().none())
      .def_rw("orientation", &InferOptions::orientation)
      .def_rw("flip", &InferOptions::flip)
      .def_rw("batch", &InferOptions::batch)
      .def_rw("low_error", &InferOptions::low_error)
      .def_rw("memory", &InferOptions::memory)
      .def_rw("threads", &InferOptions::threads)
      .def_rw("resume", &InferOptions::resume)
      .def_rw("take_over", &InferOptions::take_over)
      .def_rw("trace", &InferOptions::trace)
      .def_prop_rw(
          "blend", [](const InferOptions& o) { return static_cast<int>(o.blend); },
          [](InferOptions& o, int blend) { o.blend = static_cast<nets::Blend>(blend); });
  add_engine(i, &InferOptions::engine);
  add_extent(i, "patch", &InferOptions::patch);
  add_extent(i, "overlap", &InferOptions::overlap);
  add_extent(i, "begin", &InferOptions::begin);
  add_extent(i, "end", &InferOptions::end);

  using nets::EvaluateOptions;
  auto e = nb::class_<EvaluateOptions>(m, "EvaluateOptions").def(nb::init<>());
  e.def_rw("prediction", &EvaluateOptions::prediction)
      .def_rw("label", &EvaluateOptions::label)
      .def_rw("positive", &EvaluateOptions::positive)
      .def_rw("classes", &EvaluateOptions::classes)
      .def_rw("ignore", &EvaluateOptions::ignore)
      .def_rw("threshold", &EvaluateOptions::threshold, nb::arg().none())
      .def_rw("regions", &EvaluateOptions::regions);
  add_extent(e, "begin", &EvaluateOptions::begin);
  add_extent(e, "end", &EvaluateOptions::end);

  using nets::ConvertOptions;
  auto c = nb::class_<ConvertOptions>(m, "ConvertOptions").def(nb::init<>());
  c.def_rw("input", &ConvertOptions::input)
      .def_rw("output", &ConvertOptions::output)
      .def_rw("channel", &ConvertOptions::channel, nb::arg().none())
      .def_rw("orientation", &ConvertOptions::orientation)
      .def_rw("nan", &ConvertOptions::nan, nb::arg().none())
      .def_rw("type", &ConvertOptions::type)
      .def_rw("codec", &ConvertOptions::codec)
      .def_rw("take_over", &ConvertOptions::take_over);
  add_extent(c, "begin", &ConvertOptions::begin);
  add_extent(c, "end", &ConvertOptions::end);
  add_extent(c, "chunk", &ConvertOptions::chunk);
}

}  // namespace

void add_nets(nb::module_& m) {
  add_options(m);
  nb::class_<nets::TrainProgress>(m, "TrainProgress")
      .def_ro("iteration", &nets::TrainProgress::iteration)
      .def_ro("total", &nets::TrainProgress::total)
      .def_ro("loss", &nets::TrainProgress::loss)
      .def_ro("voxels_per_second", &nets::TrainProgress::voxels_per_second)
      .def_ro("seconds_left", &nets::TrainProgress::seconds_left)
      .def_ro("validation", &nets::TrainProgress::validation);
  nb::class_<nets::Scores>(m, "Scores")
      .def_prop_ro("values", dict_of)
      .def_ro("voxels", &nets::Scores::voxels)
      .def_ro("positives", &nets::Scores::positives)
      .def_ro("note", &nets::Scores::note)
      .def_ro("classes", &nets::Scores::classes)
      .def_ro("confusion", &nets::Scores::confusion)
      .def("__getitem__", score_of, "name"_a)
      .def("__repr__", [](const nets::Scores& scores) { return nb::repr(dict_of(scores)); });
  nb::class_<nets::BestCheckpoint>(m, "BestCheckpoint")
      .def_ro("file", &nets::BestCheckpoint::file)
      .def_prop_ro("score", [](const nets::BestCheckpoint& best) { return best.score.name; })
      .def_prop_ro("value", [](const nets::BestCheckpoint& best) { return best.score.value; })
      .def_ro("iteration", &nets::BestCheckpoint::iteration);
  nb::class_<nets::TrainResult>(m, "TrainResult")
      .def_ro("iteration", &nets::TrainResult::iteration)
      .def_ro("loss", &nets::TrainResult::loss)
      .def_ro("ended_early", &nets::TrainResult::ended_early)
      .def_ro("best", &nets::TrainResult::best)
      .def_ro("workers", &nets::TrainResult::workers)
      .def_ro("waited", &nets::TrainResult::waited)
      .def_ro("validation", &nets::TrainResult::validation)
      .def_ro("checkpoint", &nets::TrainResult::checkpoint)
      .def_ro("metrics", &nets::TrainResult::metrics)
      .def_ro("report", &nets::TrainResult::report)
      .def_ro("slice", &nets::TrainResult::slice)
      .def_ro("tensorboard", &nets::TrainResult::tensorboard);
  nb::class_<NamedVolume>(m, "NamedVolume")
      .def(nb::init<nb::handle, const std::string&, const Lengths&>(), "array"_a, "type"_a, "spacing"_a.none())
      .def_prop_ro("path", &NamedVolume::path);
  nb::class_<Predictor>(m, "Predictor")
      .def(nb::init<const nets::InferOptions&>(), "options"_a)
      .def("output_for", &Predictor::output_for, "array"_a, "type"_a, "spacing"_a.none())
      .def("predict", &Predictor::predict, "array"_a, "type"_a, "spacing"_a.none(), "prediction"_a);
  m.def("train", train, "options"_a, "on_progress"_a.none(), "on_tune"_a.none(), "on_note"_a.none());
  m.def("infer", infer, "options"_a, "on_progress"_a.none(), "on_note"_a.none());
  m.def("evaluate", evaluate, "options"_a, "on_note"_a.none());
  m.def("convert", convert, "options"_a, "on_progress"_a.none(), "on_note"_a.none());
  m.def("describe", describe, "file"_a, "overrides"_a, "patch"_a.none(), "threads"_a);
}

}  // namespace convolume::python
