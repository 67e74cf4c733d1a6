// Predicts the memory of a training iteration, and counts the memory traffic of its convolutions.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convolume/blocking.hpp"
#include "convolume/conv.hpp"
#include "convolume/tensor.hpp"

namespace convolume::nets {

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

}  // namespace convolume::nets
