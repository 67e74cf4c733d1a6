// Training, inference and description of nets that are defined in TOML files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "convolume/conv.hpp"
#include "convolume/memory.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"

namespace convolume::nets {

/// Agreement between probabilities and labels; see evaluate_files().
struct Scores {
  double pixel_error = 0, roc_auc = 0, dice = 0, iou = 0;  ///< from 0 to 1; roc_auc is NaN if one class is missing
  std::int64_t voxels = 0, positives = 0;
};

/// The state of a training run after an iteration.
struct TrainProgress {
  std::int64_t iteration = 0, total = 0;
  double loss = 0;
  double voxels_per_second = 0;  ///< output voxels that count in the loss
  double seconds_left = 0;
  std::optional<Scores> validation;  ///< if this iteration ended with a validation
};

/// Input files, output folder and settings of a training run.
struct TrainOptions {
  std::filesystem::path net, data, out;
  std::vector<std::string> overrides;      ///< "table.key=value", replaces values of the net's file
  std::optional<std::int64_t> iterations;  ///< total of the run, resumed or not; if absent, from the net
  double max_minutes = 0;                  ///< ends the run with a checkpoint; 0 means no limit
  std::optional<std::uint64_t> seed;       ///< if absent: 1, or the checkpoint's seed if resumed
  int threads = 0;                         ///< 0 means default_threads()
  bool resume = false;                     ///< continue from out/checkpoints/last.safetensors with the same bits
  Engine engine = Engine::automatic;
  std::size_t memory_budget = std::size_t{4} << 30;  ///< limit in bytes for cached spectra
  std::size_t scratch_budget = 0;                    ///< see SchedulerOptions
  fft::Options fft{};                                ///< FFT backend; part of the numerics record
  bool cache_spectra = true;                         ///< see ConvOptions
  /// Measures the convolution choices (ConvPlan::tune) instead of using the cost model. The choices become part of the
  /// run's numerics record. A resumed run uses the recorded choices without measuring, with or without this option.
  bool tune = false;
  /// File for a trace of the tasks of iterations 2 to 4 of this call, as JSON (chrome_trace()). If empty, nothing is
  /// traced.
  std::filesystem::path trace;
  std::pmr::memory_resource* upstream = mmap_resource();  ///< source of the memory
  std::function<void(const TrainProgress&)> on_progress;
  std::stop_token stop;  ///< a stop request ends the run with a checkpoint
};

/// The result of a training run.
struct TrainResult {
  std::int64_t iteration = 0;
  double loss = 0;
  bool interrupted = false;
  int workers = 1;  ///< distinct threads that ran tasks
  std::optional<Scores> validation;
  std::filesystem::path checkpoint, metrics, loss_curve, slice;  ///< files; slice is empty without validation data
  std::vector<TraceEvent> traced;                                ///< empty unless TrainOptions::trace is set
};

/// Trains a net. Writes to `out`: checkpoints/*.safetensors (the newest one also as last.safetensors), metrics.jsonl,
/// and at the end report/loss.svg and report/slice.png. The bits of a checkpoint depend only on net, data, seed and
/// iteration, and on the choices if they were measured. They do not depend on threads, time or interruptions. Throws
/// any Error. A failure does not damage files that were complete before.
CONVOLUME_API TrainResult train(const TrainOptions& options);

/// Input, output and settings of an inference.
struct InferOptions {
  std::filesystem::path checkpoint;
  std::string volume;            ///< TIFF or HDF5; "file.h5:/dataset" names a data set
  std::filesystem::path output;  ///< .tif or .h5
  bool as_uint8 = false;         ///< store 0..255 instead of float values in 0..1
  std::optional<Extent3> patch, overlap;
  int threads = 0;
  Engine engine = Engine::automatic;
  std::pmr::memory_resource* upstream = mmap_resource();
  std::function<void(double share)> on_progress;
  std::stop_token stop;
};

/// Predicts probabilities for a volume with the net of a checkpoint, in overlapping, blended patches, and writes them.
/// If absent, `patch` is the training patch and `overlap` follows from the net. Returns false, and writes nothing, if a
/// stop request came first.
CONVOLUME_API bool infer(const InferOptions& options);

/// Compares a volume of probabilities with a volume of labels. A label voxel is positive if its value is in `positive`.
/// If `positive` is empty, values of 0.5 and above are positive, which suits labels stored as 0 and 255 or as 0 and 1.
/// `slices` is the range [first, end) of slices of the label volume that was predicted; if absent, all of them.
CONVOLUME_API Scores evaluate_files(const std::string& prediction, const std::string& label,
                                    const std::vector<double>& positive = {}, double threshold = 0.5,
                                    std::optional<std::pair<index_t, index_t>> slices = std::nullopt);

/// Writes the image and the labels of a split ("train" or "validation") of a data description to TIFF or HDF5, as
/// training reads them: labels mapped, intensities normalised. Throws InvalidArgument for an unknown split, or if the
/// split does not have exactly one volume.
CONVOLUME_API void export_split(const std::filesystem::path& data, const std::string& split,
                                const std::filesystem::path& image, const std::filesystem::path& label);

/// Returns a text with the layers, shapes, field of view, parameters and floating-point operations of a net, and the
/// memory of a training iteration on `threads` threads (0 means default_threads()).
CONVOLUME_API std::string describe_net(const std::filesystem::path& net, const std::vector<std::string>& overrides = {},
                                       std::optional<Extent3> patch = std::nullopt, int threads = 0);

/// Returns names and versions of the libraries in use, one per line.
CONVOLUME_API std::string library_versions();

}  // namespace convolume::nets
