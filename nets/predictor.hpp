// Probabilities for volumes of any size, from overlapping blended patches.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>

#include "nets/network.hpp"

namespace convolume::nets {

struct PredictorOptions {
  std::optional<Extent3> patch{};    ///< of the input; the net's training patch where absent
  std::optional<Extent3> overlap{};  ///< of neighbouring outputs; a field of view, at most half a patch, where absent
  Engine engine = Engine::automatic;
  std::size_t memory_budget = std::size_t{4} << 30;
  fft::Options fft{};
  MemoryMode memory_mode = MemoryMode::arena;
};

/// Where patches lie along one axis and how they blend. Where a net pads, the outermost voxels were computed from
/// padding that is not there in the volume; they count only where the overlap is too small to do without them.
struct AxisTiling {
  index_t extent = 0;                       ///< voxels of the (extended) volume
  index_t patch = 0, output = 0;            ///< voxels that go in and come out
  index_t offset = 0;                       ///< of output voxel 0 in the patch
  std::vector<index_t> starts;              ///< of outputs
  std::vector<std::vector<float>> weights;  ///< per start, per output voxel
};

class Predictor {
 public:
  /// For volumes of `extent`. Throws ConfigError where the patch does not work out.
  Predictor(const NetSpec& spec, Parameters& parameters, const Extent3& extent, const PredictorOptions& options,
            Scheduler& scheduler, std::pmr::memory_resource* memory);

  /// Probabilities {1, C, Z, Y, X} of a volume {1, 1, Z, Y, X} that is normalised as in training; C is 1, or the number
  /// of classes for softmax. Parameters may have changed since the last call. `progress` gets the share done. Empty
  /// where the stop request came first.
  Tensor<float> run(const Tensor<float>& volume, const std::function<void(double)>& progress = {},
                    std::stop_token stop = {});

  std::size_t patches() const;
  const Network& network() const { return *network_; }

 private:
  void load_patch(const Tensor<float>& volume, const Extent3& at);
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
