// A net at work, as benchmarks run it: training iterations on a synthetic volume, or inferences of a patch.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "convolume/memory.hpp"
#include "nets/counted_memory.hpp"
#include "nets/trainer.hpp"

namespace convolume::bench {

enum class Work { training, inference };
const char* name_of(Work work);

/// Its own memory, workers and data: any number of them live side by side.
class MeasuredNet {
 public:
  /// Of the options, batch and training follow from the net and the work.
  static std::unique_ptr<MeasuredNet> make(Work work, const nets::NetSpec& spec, const nets::NetworkOptions& options,
                                           int threads, const SchedulerOptions& scheduling = {},
                                           const SlabOptions& memory = {});
  virtual ~MeasuredNet() = default;
  MeasuredNet(const MeasuredNet&) = delete;
  MeasuredNet& operator=(const MeasuredNet&) = delete;

  /// One iteration: the update of the last one, forward, loss, backward; returns the loss. Or one inference; returns 0.
  virtual double call() = 0;
  virtual const TaskGraph& graph() const = 0;  ///< of a call

  int threads() const { return scheduler_.threads(); }
  /// Of a call.
  double output_voxels() const;
  /// Of a call: multiplications and additions of the direct way of all convolutions and, in training, both gradients.
  double flops() const;
  /// Of all calls so far.
  TransformCounts transforms() const;
  /// Names of the layers that are convolutions.
  std::set<std::string> convolutions() const;
  /// The most bytes of parameters, tensors, spectra and scratch that were asked for at once since forget_peak(); data
  /// to train on are not among them. Behind the first call this is what nets::TrainingMemory predicts.
  std::size_t peak_bytes() const { return memory_.peak(); }
  /// While no call runs.
  void forget_peak() { memory_.forget_peak(); }
  /// See Scheduler::record().
  void record(Trace* trace) { scheduler_.record(trace); }

 protected:
  MeasuredNet(int threads, const SchedulerOptions& scheduling, const SlabOptions& memory)
      : slabs_(memory), scheduler_(threads, scheduling) {}
  virtual const nets::Network& network() const = 0;
  /// How often a call does what a forward pass does.
  virtual double passes() const = 0;

  SlabResource slabs_;
  nets::CountedMemory memory_{&slabs_};
  Scheduler scheduler_;
};

}  // namespace convolume::bench
