// Training, inference and description of nets that are defined in TOML files.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convolume/blocking.hpp"
#include "convolume/conv.hpp"
#include "convolume/memory.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"

namespace convolume::nets {

/// One score of a prediction, from 0 to 1; NaN if it is undefined.
struct Score {
  std::string name;
  double value = 0;
};

/// Agreement between a prediction and labels; see evaluate_files().
///
/// Binary nets have `pixel_error`, `roc_auc`, `dice` and `iou`. Nets with classes have `pixel_error` (share of voxels
/// of a wrong class), `dice` and `iou` (means over the classes but class 0), and `dice_1`, `iou_1`, `dice_2`, ... per
/// class; with two classes also `roc_auc`. Nets with overlapping regions have `pixel_error` (share of wrong pairs of a
/// voxel and a region), `dice` and `iou` (means over the regions), and `dice_1`, `iou_1`, `dice_2`, ... per region. A
/// class or region that is absent from label and prediction is NaN and is not averaged.
struct Scores {
  std::vector<Score> values;
  std::int64_t voxels = 0;     ///< that count
  std::int64_t positives = 0;  ///< of these, voxels that are positive, or of a class above 0 or a region, in the label
  std::string note;            ///< what a reader should know, e.g. that roc_auc was computed from bins; mostly empty
  /// Returns the value of a name; NaN if there is none.
  CONVOLUME_API double at(std::string_view name) const;
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
  bool verify_data = false;                ///< if resumed, read all volumes again instead of comparing their times
  /// Takes the folder over from a process of another host that was killed. While that process works, both would write.
  bool take_over = false;
  /// Bytes that the process may hold; 0 means three quarters of what the system allows. What a training iteration takes
  /// comes off first: the fastest way that fits, of memory_curve(); without a limit, the default. With `tune`, the way
  /// is chosen before the measurement; train() throws InvalidArgument if the measured choices need more. Training
  /// volumes that do not fit into the rest are read chunk by chunk. It changes no bit. train() throws InvalidArgument
  /// that names the least value if the net cannot be trained within it.
  std::size_t memory = 0;
  Engine engine = Engine::automatic;
  /// Limit in bytes for cached spectra; 0 means no limit. If absent, spectra are kept that save much time for their
  /// memory, as far as `memory` allows.
  std::optional<std::size_t> memory_budget{};
  std::size_t scratch_budget = 0;  ///< see SchedulerOptions
  fft::Options fft{};              ///< FFT backend; part of the numerics record
  bool cache_spectra = true;       ///< see ConvOptions
  /// Measures the convolution choices (ConvPlan::tune) instead of using the cost model. The choices become part of the
  /// run's numerics record. A resumed run uses the recorded choices without measuring, with or without this option.
  bool tune = false;
  /// File for a trace of the tasks of iterations 2 to 4 of this call, as JSON (chrome_trace()). If empty, nothing is
  /// traced.
  std::filesystem::path trace;
  bool tensorboard = false;  ///< also writes out/tensorboard/: event files with the loss and the scores by iteration
  std::pmr::memory_resource* upstream = mmap_resource();  ///< source of the memory
  std::function<void(const TrainProgress&)> on_progress;
  /// Called before the choice of a layer is measured, with its name and ConvPlan::tuning_seconds().
  std::function<void(const std::string& layer, double seconds)> on_tune;
  /// Called with what a user should know, for example that a file's metadata contradicts itself.
  std::function<void(const std::string& note)> on_note;
  std::stop_token stop;  ///< a stop request ends the run with a checkpoint
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
/// outlined. Throws any Error.
CONVOLUME_API void preview(const PreviewOptions& options);

/// How the outputs of overlapping patches become one: by weights that fall linearly in the overlap, that fall as a
/// Gaussian from the centre of a patch, or that are all equal.
enum class Blend { ramp, gaussian, uniform };

/// Input, output and settings of an inference.
struct InferOptions {
  std::filesystem::path checkpoint;
  std::string volume;  ///< in any format; "file.h5:/dataset" names a data set (docs/formats.md)
  /// Volumes of the same extent whose channels follow those of `volume`, as in a data set with several images.
  std::vector<std::string> channels;
  std::filesystem::path output;  ///< in any format; its name decides which
  bool as_uint8 = false;         ///< store probabilities as 0..255 instead of float values in 0..1
  /// Store labels instead of probabilities: the most probable class (uint8 or uint16) for a softmax, else a channel of
  /// 0 and 1 (uint8) per output channel.
  bool labels = false;

  /// These change the result. If absent, `patch` is the training patch and `overlap` follows from the net.
  std::optional<Extent3> patch, overlap;
  /// Takes patch and overlap that cost least by the cost models, for this machine, volume and `memory`. They are
  /// written into the attributes of HDF5 and Zarr outputs. A resumed inference keeps them. Excludes `patch` and
  /// `overlap`.
  bool cheapest_patch = false;
  /// The box [begin, end) of the volume that is segmented; if absent, all of it. Patches read beyond the box.
  std::optional<Extent3> begin, end;
  /// Lengths of a voxel along Z, Y, X, in the unit of the training data, where the file has none or wrong ones. Only
  /// nets that were trained with a target spacing need it.
  std::optional<std::array<double, 3>> spacing;
  /// To which the volume is turned before the net reads it, for example "RAS" (docs/formats.md#orientation), or "none".
  /// If it is empty, that of the training. The output has the orientation of the volume.
  std::string orientation{};
  Blend blend = Blend::ramp;
  std::array<bool, 3> flip{};  ///< along Z, Y, X: the result is the mean over all mirrored forms of a patch
  std::int64_t batch = 1;      ///< patches that are computed together
  Engine engine = Engine::automatic;

  /// These do not change the result.
  std::size_t memory = 0;  ///< bytes that the process may hold; 0 means three quarters of what the system allows
  int threads = 0;         ///< 0 means default_threads()
  bool resume = false;     ///< continue from the `.part` folder of an interrupted inference
  bool take_over = false;  ///< takes the output over from a process of another host that was killed
  std::filesystem::path
      trace;  ///< file for a trace of the tasks of three patches, as JSON; if empty, nothing is traced
  std::pmr::memory_resource* upstream = mmap_resource();
  std::function<void(double share)> on_progress;
  std::function<void(const std::string& note)> on_note;  ///< as in TrainOptions
  std::stop_token stop;
};

/// Predicts probabilities or classes for a volume of any size with the net of a checkpoint, in overlapping, blended
/// patches.
///
/// Finished parts are kept in a folder beside the output, whose name is that of the output and ".part". At the end it
/// becomes the output. So what had the output's name before is unchanged until the result is complete. After a kill, a
/// full disk or a stop request the folder stays, and `resume` continues with the same bits. Returns false if a stop
/// request came first. While it works, the file OUTPUT.owner names its process. Throws any Error: IoError if another
/// process writes this output, if a `.part` folder exists and `resume` is not set, or if the disk
/// cannot hold the result, and InvalidArgument if `memory` is too small or if a resumed inference differs in net,
/// volume or options.
CONVOLUME_API bool infer(const InferOptions& options);

/// What an inference costs with some patch, by the cost models: the plans of the net, and prices of reading the file.
struct PatchEstimate {
  Extent3 patch, overlap;
  std::int64_t windows = 0, computed = 0;  ///< as in InferencePlan
  double halo = 0;  ///< share of the net's output voxels that are computed more than once, or not needed
  double compute_seconds = 0, read_seconds = 0;  ///< they overlap
};

/// What an inference will take.
struct InferencePlan {
  Extent3 patch, overlap;
  std::int64_t patches = 0;   ///< that cover the region
  std::int64_t computed = 0;  ///< passes of the net: patches that lie in two windows count twice, flips count
  std::int64_t windows = 0;   ///< columns of the output that are computed one after the other
  std::size_t memory_bytes = 0, memory_limit = 0;
  std::uint64_t disk_bytes = 0, disk_free = 0;  ///< free bytes that the inference needs, and that there are
  double seconds = 0;                           ///< of the net alone, from one measured pass
  PatchEstimate chosen, cheapest;               ///< the patch of this plan, and what InferOptions::cheapest_patch takes
  /// Seconds to compute one layer of the whole region after the other, with every feature map in a file: of the net,
  /// and of transfers to and from raw files. 0 if the net cannot read such an extent. Patches win unless disks are very
  /// fast.
  double layerwise_compute_seconds = 0, layerwise_transfer_seconds = 0;
  std::string patch_note;  ///< why another patch was not searched for; mostly empty
};

/// Checks everything that infer() checks before it starts, measures one pass of the net, and writes nothing.
CONVOLUME_API InferencePlan plan_inference(const InferOptions& options);

/// Input and settings of a comparison.
struct EvaluateOptions {
  std::string prediction, label;  ///< volumes in any format
  /// Label values that are positive. If it is empty, values of 0.5 and above are positive, which suits labels stored as
  /// 0 and 255 or as 0 and 1. For binary predictions only.
  std::vector<double> positive;
  /// Number of classes; 0 means as many as the prediction has channels, or a binary prediction if it has one. If the
  /// prediction has one channel, `classes` says that it holds the numbers of classes instead of probabilities.
  std::int64_t classes = 0;
  std::vector<double> ignore;  ///< label values that do not count
  /// Probability from which on a voxel is positive, for binary predictions and regions only; absent means 0.5. If it is
  /// given, a binary prediction may hold any floats but NaN, as nets with the loss "square" write them.
  std::optional<double> threshold{};
  /// The box [begin, end) of the label volume that was predicted, or its slices [first, end); if absent, all of it.
  std::optional<Extent3> begin, end;
  std::optional<std::pair<index_t, index_t>> slices;
  /// The label values of each region, for a prediction of regions that may overlap. It has one channel per region, with
  /// probabilities; if `classes` is 2, with 0 and 1 instead. Excludes `positive`. If it is empty, there are no regions.
  std::vector<std::vector<double>> regions{};
  std::function<void(const std::string& note)> on_note;  ///< as in TrainOptions
};

/// Compares a prediction with labels, box by box. A prediction of several channels holds the probabilities of classes
/// or of regions, as infer() writes them for such nets. Probabilities are floats of 0..1 or uint8 of 0..255. Throws any
/// Error.
CONVOLUME_API Scores evaluate_files(const EvaluateOptions& options);

/// Writes the image and the labels of a split ("train" or "validation") of a data description to volumes, as
/// training reads them: labels mapped, intensities normalised. Throws InvalidArgument for an unknown split, or if the
/// split does not have exactly one volume.
CONVOLUME_API void export_split(const std::filesystem::path& data, const std::string& split,
                                const std::filesystem::path& image, const std::filesystem::path& label);

/// Input and output of a conversion of volumes. Paths are "a.tif", "a.h5:/data", "a.nii.gz", "a.zarr:/s0",
/// "slices/*.png"; docs/formats.md lists the formats.
struct ConvertOptions {
  std::string input, output;
  std::optional<Extent3> begin, end;  ///< the box [begin, end) along z, y, x; if absent, all voxels
  std::optional<index_t> channel;     ///< if absent, all channels
  std::string orientation{};          ///< to which the volume is turned, for example "RAS"; if empty, it is not
  std::optional<double> nan{};        ///< what replaces NaN; if absent, NaN stays
  std::string type;                   ///< "uint8", "float32", ...; if empty, that of the input
  std::optional<Extent3> chunk;       ///< extent of the chunks of HDF5 and Zarr
  std::string codec;                  ///< "raw", "deflate", "zstd" or "blosc"; if empty, the format's usual one
  bool take_over = false;             ///< takes the output over from a process of another host that was killed
  std::function<void(double share)> on_progress;
  std::function<void(const std::string& note)> on_note;  ///< as in TrainOptions
};

/// Copies a volume, or a part of it, to a file of another format, box by box. Throws InvalidArgument, also if a voxel
/// does not fit the type (the voxel is named), IoError (also if another process writes this output, which the file
/// OUTPUT.owner names), FormatError. After a failure the output is as it was before.
CONVOLUME_API void convert_volume(const ConvertOptions& options);

/// Returns a text with format, channels, voxels, type, spacing, geometry and chunks of a volume.
CONVOLUME_API std::string describe_volume(const std::string& volume);

/// Returns a text with iteration, net and numerics record of a checkpoint.
CONVOLUME_API std::string describe_checkpoint(const std::filesystem::path& checkpoint);

enum class FileKind { net, checkpoint, volume };
/// Tells nets, checkpoints and volumes apart by their contents. What is neither of the first two is called a volume.
CONVOLUME_API FileKind kind_of_file(const std::string& file);

/// Returns a text with the layers, shapes, field of view, parameters and floating-point operations of a net, and the
/// memory of a training iteration on `threads` threads (0 means default_threads()).
CONVOLUME_API std::string describe_net(const std::filesystem::path& net, const std::vector<std::string>& overrides = {},
                                       std::optional<Extent3> patch = std::nullopt, int threads = 0);

/// A way to train a net: its memory, and the time that the cost model predicts. All ways give the same bits.
struct MemoryPoint {
  std::size_t peak = 0;          ///< bytes of a training iteration, without the volumes and the program
  std::size_t process = 0;       ///< least TrainOptions::memory that leads to it
  std::size_t kept_spectra = 0;  ///< bytes of spectra of weights and tensors that are kept, not computed again
  /// When memory is reused: 0, one step after the last use; 1, at once for what engines pass between their tasks; 2, at
  /// once. Then more tasks wait for others.
  int reuse = 0;
  double seconds = 0;       ///< of an iteration; only ratios are meaningful
  bool by_default = false;  ///< whether training uses it if there is no limit of memory
};
/// Returns the ways to train a net on `threads` threads (0 means default_threads()), the fastest first. Each takes less
/// memory and no less time than the one before. A limit between two of them leads to the smaller one.
CONVOLUME_API std::vector<MemoryPoint> memory_curve(const std::filesystem::path& net,
                                                    const std::vector<std::string>& overrides = {},
                                                    std::optional<Extent3> patch = std::nullopt, int threads = 0);

/// The memory traffic of a direction of a convolution layer, on one core.
struct LayerBlocking {
  std::string layer;
  Engine engine;  ///< that computes the layer; what is counted is the engine `direct` in any case
  /// If `direct` does not support the layer: the reason. The members below then mean nothing, and there is one entry
  /// for the layer.
  std::string unsupported{};
  plan::Direction direction{};
  plan::LoopNest nest{};  ///< of one group
  plan::NestCost cost{};  ///< of all groups
};
/// Returns the traffic of all convolutions of a net in a training iteration, in the order of the layers. The nests are
/// those that the engine `direct` would run. Depthwise layers have no nest and are left out.
CONVOLUME_API std::vector<LayerBlocking> count_blocking(const std::filesystem::path& net,
                                                        const std::vector<std::string>& overrides = {},
                                                        std::optional<Extent3> patch = std::nullopt);

/// Returns names and versions of the libraries in use, one per line.
CONVOLUME_API std::string library_versions();

}  // namespace convolume::nets
