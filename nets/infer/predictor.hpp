// Predicts probabilities for volumes of any size from overlapping, blended patches.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "nets/infer/blender.hpp"
#include "nets/infer/patch_network.hpp"

namespace convolume::nets {

struct PredictorOptions {
  PatchOptions patches{};
  std::array<bool, 3> mirror{};  ///< along Z, Y, X: predictions are means over all mirrored forms of a patch
  index_t batch = 1;             ///< patches that are computed together
  Engine engine = Engine::automatic;
  bool low_error = false;                      ///< see ConvOptions
  std::optional<std::size_t> memory_budget{};  ///< see NetworkOptions
  fft::Options fft{};
  MemoryMode memory_mode = MemoryMode::arena;
  RecordedPlans recorded{};  ///< see NetworkOptions
};

/// Returns how many mirrored forms of a patch there are (PredictorOptions::mirror), the patch itself included.
index_t forms_of(const std::array<bool, 3>& mirror);

/// Returns how many patches are computed for columns. Patches that two columns share count twice.
index_t computed_patches(const PatchGrid& grid, std::span<const io::VoxelBox> columns);

/// Predicts volumes. Plans and memory are made once per patch extent and are used for all volumes. The bits of a
/// prediction do not depend on threads, nor on the columns and the order in which a region is computed. Not
/// thread-safe.
class Predictor {
 public:
  Predictor(const NetSpec& spec, Parameters& parameters, const PredictorOptions& options, Scheduler& scheduler,
            std::pmr::memory_resource* memory);

  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  /// Returns the patches of a region. Throws ConfigError if the patch does not fit the net.
  PatchGrid grid(const Extent3& region) const { return make_patch_grid(spec_, region, options_.patches); }
  /// Makes plans and memory for a grid, unless they exist. They stay until the predictor ends.
  PatchNetwork& network(const PatchGrid& grid);

  /// Returns probabilities {1, C, Z, Y, X} of a volume with the net's input channels that is normalised as in training.
  /// C is 1, or the number of classes for softmax. Parameters may have changed after the last call. `progress` receives
  /// the finished share in 0..1. The result is empty if a stop request ended the run.
  Tensor<float> run(const StoredVolume& volume, const std::function<void(double)>& progress = {},
                    std::stop_token stop = {});

  /// Predicts what `sink` misses in a region of the volume of `window`, column by column. The columns cover the region.
  /// Returns false if a stop request ended the run.
  bool run(VolumeWindow& window, const PatchGrid& grid, const io::VoxelBox& region,
           std::span<const io::VoxelBox> columns, PredictionSink& sink,
           const std::function<void(double)>& progress = {}, const std::stop_token& stop = {});

  /// Returns how often the net is computed for a patch: once per mirrored form.
  std::size_t forms() const { return mirrors_.size(); }
  index_t channels() const { return channels_; }

 private:
  struct Planned {
    Extent3 patch;
    std::unique_ptr<PatchNetwork> network;
  };
  void check(const Shape5& volume) const;

  const NetSpec spec_;
  Parameters& parameters_;
  PredictorOptions options_;
  Scheduler& scheduler_;
  std::pmr::memory_resource* memory_;
  index_t channels_;
  std::vector<unsigned> mirrors_;
  std::vector<Planned> planned_;
  Blender* blender_ = nullptr;  // of the current run
};

}  // namespace convolume::nets
