// Trains a net. An iteration is one task graph, rotated by one step: update(i-1), refresh of the prepared weights,
// forward(i), backward(i), gradient norm. Beside them, tasks prepare the patches of iteration i + 1. A second graph,
// flush, holds only the updates, and a third one only the tasks that prepare patches.
#pragma once

#include <array>
#include <atomic>
#include <stop_token>

#include "nets/data/patch_source.hpp"
#include "nets/graph/network.hpp"

namespace convolume::nets {

class Trainer {
 public:
  /// Sets `batch` and `training` of the options from the net. The data, scheduler and memory must outlive the trainer.
  /// Throws ConfigError if net and data do not fit. `cache_bytes`: see SourceOptions.
  Trainer(const NetSpec& spec, const Dataset& data, std::uint64_t seed, const NetworkOptions& options,
          Scheduler& scheduler, std::pmr::memory_resource* memory,
          std::size_t cache_bytes = SourceOptions{}.cache_bytes);

  /// Runs one iteration and returns the loss. Returns nothing if a stop request cancelled the iteration. Throws
  /// NumericalError, naming iteration and layer, if the loss or a gradient is not finite. Afterwards, and after any
  /// exception, the weights result from a whole number of iterations. A gradient that is not finite never changes them.
  std::optional<double> step(std::stop_token stop = {});
  /// Makes the inputs of graph() ready: the patches of this iteration are in memory, and the graph will prepare those
  /// of the next iteration. step() calls it. Who runs graph() directly calls it before each run. Returns false if a
  /// stop request came first.
  bool prepare(std::stop_token stop = {});
  /// Applies the pending update, if there is one. Call it before anything reads the parameters.
  void flush();

  std::int64_t iteration() const { return iteration_; }  ///< iterations whose gradient was computed
  std::int64_t updates() const { return updates_; }      ///< iterations whose update was applied to the weights
  std::uint64_t seed() const { return seed_; }
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  const Network& network() const { return network_; }
  NumericsRecord numerics() const;
  /// Continues after an iteration whose parameters were loaded. No update may be pending.
  void set_iteration(std::int64_t iteration);
  /// Returns the graph of an iteration. It can be run only after prepare().
  const TaskGraph& graph() const { return graph_; }
  /// Returns the seconds that step() has waited for the files of patches so far.
  double waited() const { return source_.waited(); }

 private:
  void append_iteration(TaskGraph& graph);
  ParameterReady append_updates(TaskGraph& graph);
  void update(std::size_t parameter) noexcept;
  /// Appends tasks that prepare patches in the buffers that begin_patches() chose.
  void append_patches(TaskGraph& graph);
  /// Takes the patches of an iteration from the source.
  void begin_patches(std::uint64_t iteration);
  PatchTarget target_of(index_t n);
  void append_gradient_norm(TaskGraph& graph, const ParameterReady& gradients);
  void check_finite();
  std::string not_finite();

  NetSpec spec_;
  NetworkOptions options_;
  std::uint64_t seed_;
  Scheduler& scheduler_;
  std::pmr::memory_resource* memory_;
  Parameters parameters_;
  Network network_;
  /// What an iteration reads. One set is read while the other one is filled.
  struct Patches {
    Tensor<float> input, target, mask;
    std::optional<std::uint64_t> iteration;  // whose patches it holds
  };
  std::array<Patches, 2> patches_;
  void *target_slot_ = nullptr, *mask_slot_ = nullptr;  // the graphs read here
  std::size_t filled_ = 0;                              // the set that tasks fill
  PatchSource source_;
  std::vector<PatchLoader> loaders_;  // one per sample
  TaskGraph graph_, flush_graph_, patch_graph_;
  double loss_ = 0;
  std::vector<double> squares_;  // sum of squares of each parameter's gradient
  double gradient_scale_ = 1;
  std::atomic<std::size_t> updated_{0};  // number of parameters that the current run has updated
  bool pending_ = false;                 // a gradient waits to be applied; changes between runs only
  std::int64_t iteration_ = 0, updates_ = 0;
};

}  // namespace convolume::nets
