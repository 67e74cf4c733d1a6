// A net as benchmarks run it: training iterations on a synthetic volume, or inferences of one patch.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "convolume/memory.hpp"
#include "nets/base/counted_memory.hpp"
#include "nets/train/trainer.hpp"

namespace convolume::bench {

enum class Work { training, inference };
const char* name_of(Work work);

/// A net with its own memory, threads and data. Several such objects may exist at once.
class MeasuredNet {
 public:
  /// Makes a net. It sets `batch` and `training` of the options from the net and the work.
  static std::unique_ptr<MeasuredNet> make(Work work, const nets::NetSpec& spec, const nets::NetworkOptions& options,
                                           int threads, const SchedulerOptions& scheduling = {},
                                           const SlabOptions& memory = {});
  virtual ~MeasuredNet() = default;
  MeasuredNet(const MeasuredNet&) = delete;
  MeasuredNet& operator=(const MeasuredNet&) = delete;

  /// Runs one training iteration (the pending update, forward, loss, backward) and returns the loss, or runs one
  /// inference and returns 0.
  virtual double call() = 0;
  virtual const TaskGraph& graph() const = 0;  ///< the graph of one call

  int threads() const { return scheduler_.threads(); }
  /// Returns the output voxels of a call.
  double output_voxels() const;
  /// Returns the multiplications and additions of a call, if all convolutions are computed directly. A training
  /// iteration includes both gradients.
  double flops() const;
  /// Returns what all calls so far have transformed.
  TransformCounts transforms() const;
  /// Returns the names of the layers that are convolutions.
  std::set<std::string> convolutions() const;
  /// Returns the largest number of bytes of parameters, tensors, spectra and scratch that were allocated at once since
  /// forget_peak(). Training data do not count. After the first call this is what nets::TrainingMemory predicts.
  std::size_t peak_bytes() const { return memory_.peak(); }
  /// Resets peak_bytes(). Must not be called while a call runs.
  void forget_peak() { memory_.forget_peak(); }
  /// See Scheduler::record().
  void record(Trace* trace) { scheduler_.record(trace); }

 protected:
  MeasuredNet(int threads, const SchedulerOptions& scheduling, const SlabOptions& memory)
      : slabs_(memory), scheduler_(threads, scheduling) {}
  virtual const nets::Network& network() const = 0;
  /// Returns how many forward passes of work a call does.
  virtual double passes() const = 0;

  SlabResource slabs_;
  nets::CountedMemory memory_{&slabs_};
  Scheduler scheduler_;
};

}  // namespace convolume::bench
