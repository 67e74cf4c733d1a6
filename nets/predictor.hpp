// Predicts probabilities for volumes of any size from overlapping, blended patches.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>

#include "nets/network.hpp"
#include "nets/stored_volume.hpp"

namespace convolume::nets {

struct PredictorOptions {
  std::optional<Extent3> patch{};    ///< input extent; if absent, the net's training patch
  std::optional<Extent3> overlap{};  ///< of neighbouring outputs; if absent, 0 for a net without padding, otherwise a
                                     ///< field of view but at most half a patch
  Engine engine = Engine::automatic;
  std::size_t memory_budget = std::size_t{4} << 30;
  fft::Options fft{};
  MemoryMode memory_mode = MemoryMode::arena;
};

/// Positions of patches along one axis, and their blending weights. If a net pads, the outermost output voxels depend
/// on padding that does not exist in the volume. They count only if the overlap is too small to do without them.
struct AxisTiling {
  index_t extent = 0;                       ///< voxels of the (extended) volume
  index_t patch = 0, output = 0;            ///< input and output voxels of a patch
  index_t offset = 0;                       ///< position of output voxel 0 in the patch
  std::vector<index_t> starts;              ///< first output voxel of each patch
  std::vector<std::vector<float>> weights;  ///< per start, per output voxel
};

class Predictor {
 public:
  /// Makes a predictor for volumes of `extent`. Throws ConfigError if the patch does not fit the net.
  Predictor(const NetSpec& spec, Parameters& parameters, const Extent3& extent, const PredictorOptions& options,
            Scheduler& scheduler, std::pmr::memory_resource* memory);

  /// Returns probabilities {1, C, Z, Y, X} of a volume with the net's input channels that is normalised as in training.
  /// C is 1, or the number of classes for softmax. Parameters may have changed after the last call. `progress` receives
  /// the finished share in 0..1. The result is empty if a stop request ended the run.
  Tensor<float> run(const StoredVolume& volume, const std::function<void(double)>& progress = {},
                    std::stop_token stop = {});

  std::size_t patches() const;
  const Network& network() const { return *network_; }

 private:
  void load_patch(const StoredVolume& volume, const Extent3& at);
  void blend(const Extent3& tile, Tensor<float>& sum, Tensor<float>& weight) const;
  void to_probabilities();

  NetSpec spec_;
  Extent3 volume_;
  Scheduler& scheduler_;
  std::pmr::memory_resource* memory_;
  std::array<AxisTiling, 3> axes_;
  std::unique_ptr<Network> network_;
  Tensor<float> probabilities_;
  TaskGraph prepare_graph_, forward_graph_;
};

}  // namespace convolume::nets
