// A net in training on a synthetic volume, as benchmarks run it.
#pragma once

#include "convolume/memory.hpp"
#include "nets/trainer.hpp"

namespace convolume::bench {

/// Its own memory, workers and data: any number of them live side by side.
class NetTraining {
 public:
  NetTraining(const nets::NetSpec& spec, const nets::NetworkOptions& options, int threads);

  /// One iteration: the update of the last one, forward, loss, backward. Returns the loss.
  double step() { return trainer_.step().value(); }
  double output_voxels() const;
  /// Multiplications and additions of the direct way, forward only.
  double convolution_flops() const;
  /// Of all iterations so far.
  TransformCounts transforms() const;
  std::size_t tasks() const { return trainer_.graph_size(); }
  /// The most bytes of tensors, spectra and scratch that were ever held at once.
  std::size_t peak_bytes() const { return memory_.statistics().peak_bytes; }

 private:
  SlabResource memory_;
  Scheduler scheduler_;
  nets::Dataset data_;
  nets::Trainer trainer_;
  std::size_t nodes_;
  index_t batch_;
};

}  // namespace convolume::bench
