// Trains nets that are defined in TOML files, and describes nets and checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "convolume/conv.hpp"
#include "convolume/evaluation.hpp"
#include "convolume/memory.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"

namespace convolume::nets {

/// The state of a training run after an iteration.
struct TrainProgress {
  std::int64_t iteration = 0, total = 0;
  double loss = 0;
  double voxels_per_second = 0;  ///< output voxels that count in the loss; of a classifier: patches
  double seconds_left = 0;
  std::optional<Scores> validation;  ///< if this iteration ended with a validation
};

/// Input files, output folder and settings of a training run.
struct TrainOptions {
  std::filesystem::path net, data, out;
  /// The description of the data; if it is empty, that in the file `data`. It may name arrays (ArrayVolume::path()).
  /// Messages then call it by `data`, and relative paths are relative to that file's folder.
  std::string data_text{};
  std::vector<std::string> overrides{};      ///< "table.key=value", replaces values of the net's file
  std::optional<std::int64_t> iterations{};  ///< total of the run, resumed or not; if absent, from the net
  double max_minutes = 0;                    ///< ends the run with a checkpoint; 0 means no limit
  std::optional<std::uint64_t> seed{};       ///< if absent: 1, or the checkpoint's seed if resumed
  int threads = 0;                           ///< 0 means default_threads()
  bool resume = false;                       ///< continue from out/checkpoints/last.safetensors with the same bits
  bool verify_data = false;                  ///< if resumed, read all volumes again instead of comparing their times
  /// Takes the folder over from a process of another host that was killed. While that process works, both would write.
  bool take_over = false;
  /// Bytes that the process may hold; 0 means three quarters of what the system allows. A training iteration gets its
  /// part first: it uses the fastest point of memory_curve() that fits, or the default one if `memory` is 0. The rest
  /// is for volumes. Training volumes that do not fit are read chunk by chunk. The limit changes no bit.
  ///
  /// train() throws InvalidArgument that names the least value if the net cannot be trained within the limit. With
  /// `tune`, the point is chosen before choices are measured, and train() throws InvalidArgument if these need more.
  std::size_t memory = 0;
  Engine engine = Engine::automatic;
  bool low_error = false;  ///< see ConvOptions. A run is resumed only if none of its recorded choices contradicts this.
  /// Limit in bytes for cached spectra; 0 means no limit. If absent, spectra are kept that save much time for their
  /// memory, as far as `memory` allows.
  std::optional<std::size_t> memory_budget{};
  std::size_t scratch_budget = 0;  ///< see SchedulerOptions
  bool change_affinity = true;     ///< see SchedulerOptions
  fft::Options fft{};              ///< FFT backend; part of the numerics record
  bool cache_spectra = true;       ///< see ConvOptions
  /// Measures the convolution choices (ConvPlan::tune) instead of using the cost model. The choices become part of the
  /// run's numerics record. A resumed run uses the recorded choices without measuring, with or without this option.
  bool tune = false;
  /// File for a trace of the tasks of iterations 2 to 4 of this call, as JSON (chrome_trace()). If empty, nothing is
  /// traced.
  std::filesystem::path trace{};
  bool tensorboard = false;  ///< also writes out/tensorboard/: event files with the loss and the scores by iteration
  std::pmr::memory_resource* upstream = mmap_resource();  ///< source of the memory
  std::function<void(const TrainProgress&)> on_progress{};
  /// Called before the choice of a layer is measured, with its name and ConvPlan::tuning_seconds().
  std::function<void(const std::string& layer, double seconds)> on_tune{};
  /// Called with what a user should know, for example that a file's metadata contradicts itself.
  std::function<void(const std::string& note)> on_note{};
  std::stop_token stop{};  ///< a stop request ends the run with a checkpoint
};

/// The best checkpoint of a run, by the score that the net's `[training] best` names.
struct BestCheckpoint {
  std::filesystem::path file;
  Score score;
  std::int64_t iteration = 0;
};

/// The result of a training run.
struct TrainResult {
  std::int64_t iteration = 0;
  double loss = 0;
  bool interrupted = false;
  bool ended_early = false;  ///< because of the net's `[training] early_stop`
  std::optional<BestCheckpoint> best{};
  int workers = 1;    ///< distinct threads that ran tasks
  double waited = 0;  ///< seconds that iterations waited for patches from files
  std::optional<Scores> validation;
  std::filesystem::path checkpoint, metrics, report, slice;  ///< files; slice is empty without validation data
  std::vector<TraceEvent> traced;                            ///< tasks of iterations 2 to 4
  std::filesystem::path tensorboard{};                       ///< folder; empty without TrainOptions::tensorboard
};

/// Trains a net. Writes to `out`: checkpoints/*.safetensors (the newest one also as last.safetensors, the best one as
/// best.safetensors if the net says what is better), metrics.jsonl, data.json, at every validation and at the end
/// report/report.html, and at the end report/slice.png. The bits of a checkpoint depend only on net, data,
/// seed and iteration, and on the choices if they were measured. They do not depend on threads, time or interruptions.
/// One process at a time works on `out`: the file out/owner names it while it does, and train() throws IoError that
/// names the owner. Throws any Error. A failure does not damage files that were complete before.
CONVOLUME_API TrainResult train(const TrainOptions& options);

/// Input and output of a preview.
struct PreviewOptions {
  std::filesystem::path data, net, out;
  std::vector<std::string> overrides;  ///< "table.key=value", replaces values of the net's file
  std::int64_t count = 16;
  std::uint64_t seed = 1;
  std::function<void(const std::string& note)> on_note;  ///< as in TrainOptions
};

/// Writes a PNG with the middle slices of the first patches that a training run with this seed gets. Labels are
/// outlined. If volumes have classes, the frame of a patch has the colour of its class. Throws ConfigError, as train()
/// does, if net and data do not fit, and any other Error.
CONVOLUME_API void preview(const PreviewOptions& options);

/// Returns a text with iteration, net and numerics record of a checkpoint.
CONVOLUME_API std::string describe_checkpoint(const std::filesystem::path& checkpoint);

/// A parameter in a checkpoint: weights [k][c][z][y][x] as in PyTorch, or a vector.
struct StoredParameter {
  std::string name;  ///< "NODE.weight", "NODE.bias", ...
  std::vector<index_t> shape;
  std::vector<float> values;
};
struct StoredNet {
  std::string name;          ///< of the net
  std::string architecture;  ///< a text that is equal for nets that compute the same from the same parameters
  std::string digest;        ///< of the file: 32 hexadecimal digits
  std::vector<StoredParameter> parameters;
};
/// Reads the parameters of a checkpoint, without the state of the optimiser. Throws IoError, and FormatError that names
/// file and field.
CONVOLUME_API StoredNet read_checkpoint(const std::filesystem::path& checkpoint);

/// Returns a text with the layers, shapes, field of view, parameters and floating-point operations of a net, and the
/// memory of a training iteration on `threads` threads (0 means default_threads()).
CONVOLUME_API std::string describe_net(const std::filesystem::path& net, const std::vector<std::string>& overrides = {},
                                       std::optional<Extent3> patch = std::nullopt, int threads = 0);

/// Returns names and versions of the libraries in use, one per line.
CONVOLUME_API std::string library_versions();

}  // namespace convolume::nets
