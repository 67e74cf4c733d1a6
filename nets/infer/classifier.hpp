// Predicts the classes of whole images, each from its central patch.
#pragma once

#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "nets/data/dataset_spec.hpp"
#include "nets/data/stored_volume.hpp"
#include "nets/infer/patch_network.hpp"

namespace convolume::nets {

/// A net whose output is one voxel. Not thread-safe.
class Classifier {
 public:
  /// `options.batch` images are computed together. `pad` says what lies outside of an image that is smaller than the
  /// training patch.
  Classifier(const NetSpec& spec, Parameters& parameters, const NetworkOptions& options, Pad pad,
             std::pmr::memory_resource* memory);
  Classifier(const Classifier&) = delete;
  Classifier& operator=(const Classifier&) = delete;

  /// Returns the probabilities of all classes for each image. Images have the net's input channels, and are normalised
  /// as in training. Parameters may have changed after the last call. The result is empty if a stop request ended the
  /// run. Throws ShapeMismatch for other channels.
  std::vector<std::vector<float>> run(std::span<const StoredVolume* const> images, Scheduler& scheduler,
                                      const std::stop_token& stop = {});

  std::size_t batch() const { return network_.batch(); }
  const Network& network() const { return network_.network(); }
  /// Returns the bytes of the net on so many threads, without its parameters.
  std::size_t bytes(int threads) const { return network_.bytes(threads); }

 private:
  void load(std::size_t item, const View<float>& input, index_t begin, index_t end) const;

  Extent3 patch_;
  bool zero_;  // voxels outside of an image are 0
  index_t channels_, classes_;
  std::span<const StoredVolume* const> images_;  // of the current run
  std::vector<std::vector<float>> probabilities_;
  PatchNetwork network_;
};

/// Returns the number of the most probable class, the first one of equal ones.
std::size_t most_probable(std::span<const float> probabilities);

}  // namespace convolume::nets
