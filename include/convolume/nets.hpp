// Training, inference and description of nets that are written down as TOML files.
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

/// How well probabilities agree with labels; see evaluate_files.
struct Scores {
  double pixel_error = 0, roc_auc = 0, dice = 0, iou = 0;  ///< 0 to 1; roc_auc is NaN where one class is missing
  std::int64_t voxels = 0, positives = 0;
};

/// Where the tensors and spectra of a net's passes live.
enum class MemoryMode {
  arena,  ///< in one arena, by a plan of their lifetimes
  slab,   ///< tasks allocate and free them as they run (Zlateski, Lee and Seung, "ZNN", 2016, section VII)
  apart,  ///< each in memory of its own, as long as the net lives
};
CONVOLUME_API const char* name_of(MemoryMode mode) noexcept;
/// Throws InvalidArgument for a name that is none.
CONVOLUME_API MemoryMode memory_mode_of(const std::string& name);

struct TrainProgress {
  std::int64_t iteration = 0, total = 0;
  double loss = 0;
  double voxels_per_second = 0;  ///< output voxels that took part in the loss
  double seconds_left = 0;
  std::optional<Scores> validation;  ///< where this iteration ended with one
};

struct TrainOptions {
  std::filesystem::path net, data, out;
  std::vector<std::string> overrides;      ///< "table.key=value" on top of the net's file
  std::optional<std::int64_t> iterations;  ///< a run's total, resumed or not; the net's where absent
  double max_minutes = 0;                  ///< ends the run with a checkpoint; 0: no limit
  std::optional<std::uint64_t> seed;       ///< 1 where absent; of the checkpoint where resumed
  int threads = 0;                         ///< 0: default_threads()
  bool resume = false;                     ///< continue from out/checkpoints/last.safetensors, bit for bit
  Engine engine = Engine::automatic;
  std::size_t memory_budget = std::size_t{4} << 30;  ///< bytes of kept spectra
  std::size_t scratch_budget = 0;                    ///< see SchedulerOptions
  fft::Options fft{};                                ///< who transforms; part of the numerics record
  bool cache_spectra = true;                         ///< see ConvOptions
  MemoryMode memory_mode = MemoryMode::arena;        ///< has no influence on results
  /// Measures how to convolve (ConvPlan::tune) instead of asking the cost model. The choices become part of the run's
  /// numerics record, so that it is resumed with them, without measuring; with or without this option.
  bool tune = false;
  /// Writes what iterations 2 to 4 of this call did, task by task (chrome_trace()); nothing where empty.
  std::filesystem::path trace;
  std::pmr::memory_resource* upstream = mmap_resource();  ///< where slabs come from
  std::function<void(const TrainProgress&)> on_progress;
  std::stop_token stop;  ///< ends the run with a checkpoint
};

struct TrainResult {
  std::int64_t iteration = 0;
  double loss = 0;
  bool interrupted = false;
  int workers = 1;  ///< distinct threads that executed tasks
  std::optional<Scores> validation;
  std::filesystem::path checkpoint, metrics, loss_curve, slice;  ///< slice: empty without validation data
  std::vector<TraceEvent> traced;                                ///< where TrainOptions::trace was given
};

/// Trains a net. Writes to `out`: checkpoints/*.safetensors (the newest also as last.safetensors), metrics.jsonl, and
/// at the end report/loss.svg and report/slice.png. The bits of a checkpoint depend on net, data, seed and iteration
/// alone (where tuned, on the choices too), not on threads, time or interruptions. Throws Error of every kind; no file
/// that was good before is harmed.
CONVOLUME_API TrainResult train(const TrainOptions& options);

struct InferOptions {
  std::filesystem::path checkpoint;
  std::string volume;            ///< TIFF or HDF5, "file.h5:/dataset" included
  std::filesystem::path output;  ///< .tif or .h5
  bool as_uint8 = false;         ///< 0..255 instead of float
  std::optional<Extent3> patch, overlap;
  int threads = 0;
  Engine engine = Engine::automatic;
  std::pmr::memory_resource* upstream = mmap_resource();
  std::function<void(double share)> on_progress;
  std::stop_token stop;
};

/// Writes the probability volume of a checkpoint's net, in overlapping blended patches. Returns false where the stop
/// request came first; nothing is written then.
CONVOLUME_API bool infer(const InferOptions& options);

/// Compares a probability volume with a label volume. A label voxel is positive where its value is in `positive`, or,
/// where that is empty, at 0.5 and above (labels stored as 0 and 255 or 0 and 1 serve). `slices` are [first, end) of
/// the label volume where only those were predicted.
CONVOLUME_API Scores evaluate_files(const std::string& prediction, const std::string& label,
                                    const std::vector<double>& positive = {}, double threshold = 0.5,
                                    std::optional<std::pair<index_t, index_t>> slices = std::nullopt);

/// Writes images and labels of a data description's split ("train" or "validation"), as they are read (labels mapped,
/// intensities normalised), to TIFF or HDF5. Throws InvalidArgument for an unknown split or one without volumes.
CONVOLUME_API void export_split(const std::filesystem::path& data, const std::string& split,
                                const std::filesystem::path& image, const std::filesystem::path& label);

/// Layers, shapes, field of view, parameters, floating-point operations of a net, and the memory of a training
/// iteration on so many threads (0: default_threads()), as text.
CONVOLUME_API std::string describe_net(const std::filesystem::path& net, const std::vector<std::string>& overrides = {},
                                       std::optional<Extent3> patch = std::nullopt, int threads = 0);

/// Names and versions of the libraries in use, a line each.
CONVOLUME_API std::string library_versions();

}  // namespace convolume::nets
