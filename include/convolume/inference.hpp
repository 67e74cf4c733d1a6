// Predicts volumes of any size with a trained net, or the classes of volumes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "convolume/conv.hpp"
#include "convolume/memory.hpp"
#include "convolume/tensor.hpp"
#include "convolume/volumes.hpp"

namespace convolume::nets {

/// How the outputs of overlapping patches become one: by weights that fall linearly in the overlap, that fall as a
/// Gaussian from the centre of a patch, or that are all equal.
enum class Blend { ramp, gaussian, uniform };

/// Input, output and settings of an inference.
struct InferOptions {
  std::filesystem::path checkpoint;
  std::string volume{};  ///< in any format; "file.h5:/dataset" names a data set (docs/formats.md)
  /// Volumes of the same extent whose channels follow those of `volume`, as in a data set with several images.
  std::vector<std::string> channels{};
  std::vector<std::string> cases{};  ///< of a classifier: volumes after `volume`, one case each
  std::filesystem::path output{};    ///< in any format; its name decides which. Of a classifier: a table, "NAME.csv"
  bool as_uint8 = false;             ///< store probabilities as 0..255 instead of float values in 0..1
  /// Store labels instead of probabilities: the most probable class (uint8 or uint16) for a softmax, else a channel of
  /// 0 and 1 (uint8) per output channel.
  bool labels = false;

  /// These change the result. If absent, `patch` is the training patch and `overlap` follows from the net.
  std::optional<Extent3> patch{}, overlap{};
  /// Takes patch and overlap that cost least by the cost models, for this machine, volume and `memory`. They are
  /// written into the attributes of HDF5 and Zarr outputs. A resumed inference keeps them. Excludes `patch` and
  /// `overlap`.
  bool cheapest_patch = false;
  /// The box [begin, end) of the volume that is segmented; if absent, all of it. Patches read beyond the box.
  std::optional<Extent3> begin{}, end{};
  /// Lengths of a voxel along Z, Y, X, in the unit of the training data, where the file has none or wrong ones. Only
  /// nets that were trained with a target spacing need it.
  std::optional<std::array<double, 3>> spacing{};
  /// To which the volume is turned before the net reads it, for example "RAS" (docs/formats.md#orientation), or "none".
  /// If it is empty, that of the training. The output has the orientation of the volume.
  std::string orientation{};
  Blend blend = Blend::ramp;
  std::array<bool, 3> flip{};  ///< along Z, Y, X: the result is the mean over all mirrored forms of a patch
  std::int64_t batch = 1;      ///< patches that are computed together
  Engine engine = Engine::automatic;
  bool low_error = false;  ///< see ConvOptions

  /// These do not change the result.
  std::size_t memory = 0;       ///< bytes that the process may hold; 0 means three quarters of what the system allows
  int threads = 0;              ///< 0 means default_threads()
  bool change_affinity = true;  ///< see SchedulerOptions
  bool resume = false;          ///< continue from the `.part` folder of an interrupted inference
  bool take_over = false;       ///< takes the output over from a process of another host that was killed
  std::filesystem::path
      trace{};  ///< file for a trace of the tasks of three patches, as JSON; if empty, nothing is traced
  std::pmr::memory_resource* upstream = mmap_resource();
  std::function<void(double share)> on_progress{};
  std::function<void(const std::string& note)> on_note{};  ///< as in TrainOptions
  std::stop_token stop{};
};

/// Predicts probabilities or classes for a volume of any size with the net of a checkpoint, in overlapping, blended
/// patches.
///
/// Finished parts are kept in the folder OUTPUT.part, which becomes the output at the end. A file or folder that has
/// the output's name stays as it is until then. After a kill, a full disk or a stop request, OUTPUT.part is kept, and
/// `resume` continues with the same bits. While the call works, the file OUTPUT.owner names its process.
///
/// Returns false if a stop request came before the end. Throws any Error: IoError if another process writes this
/// output, if OUTPUT.part exists and `resume` is not set, or if the disk cannot hold the result; InvalidArgument if
/// `memory` is too small, or if a resumed inference differs in net, volume or options.
///
/// A classifier, which is a net that was trained on cases with classes, writes a table instead: the columns `case`,
/// `class` (the name of the most probable one) and one probability per class. It reads the central patch of each case,
/// and writes nothing before the end. Options that have no meaning for it are refused.
CONVOLUME_API bool infer(const InferOptions& options);

/// A net of a checkpoint that predicts volumes in memory, with the bits that infer() writes for a file with the same
/// voxels, type and spacing. Plans, weights and memory are kept from call to call while the patch stays the same.
/// With `cheapest_patch` the patch depends on how the voxels are stored, and so do the bits. If the prediction is
/// brought back to other voxels than the net's, a second one of the same size is in memory, beside what `memory`
/// limits. Movable. One thread at a time may use it.
class CONVOLUME_API VolumePredictor {
 public:
  /// Reads the checkpoint. Uses the options of infer(), but for `volume`, `channels`, `output`, `resume`, `take_over`
  /// and `trace`. Throws any Error.
  explicit VolumePredictor(const InferOptions& options);
  ~VolumePredictor();
  VolumePredictor(VolumePredictor&&) noexcept;
  VolumePredictor& operator=(VolumePredictor&&) noexcept;

  /// What predict() writes: [c][z][y][x] without gaps.
  struct Output {
    std::string type;  ///< "float32", "uint8" or "uint16", as the options say
    index_t channels = 1;
    Extent3 extent{};
  };
  Output output_for(const ArrayView& volume) const;
  /// Predicts a volume with the net's input channels, in the units of the training data. Returns false if a stop
  /// request came first; `prediction` is then incomplete. Throws any Error.
  bool predict(const ArrayView& volume, void* prediction, const std::stop_token& stop = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

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

}  // namespace convolume::nets
