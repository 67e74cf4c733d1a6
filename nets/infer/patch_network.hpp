// Computes patches one group after another, while tasks load the next group and add up the previous one.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <stop_token>

#include "nets/graph/network.hpp"

namespace convolume::nets {

/// What happens to the items of a run besides the net. Tasks of several threads call these functions at once, each for
/// other rows of a patch. A row (z, y) has the number z * Y + y.
struct PatchTasks {
  /// Writes the rows [begin, end) of an item's input {1, C, patch}.
  std::function<void(std::size_t item, const View<float>& input, index_t begin, index_t end)> load;
  /// Takes the rows [begin, end) of an item's logits {1, C, output}. Items come in their order: an item is complete
  /// before any row of the next one.
  std::function<void(std::size_t item, const View<const float>& logits, index_t begin, index_t end)> add;
};

/// A net for one patch extent, with its plans and its memory.
///
/// Two inputs and two outputs exist. While the tasks of the net read the first and write the second, tasks fill the
/// other input with the next group of patches and take the logits of the previous group. Not thread-safe.
class PatchNetwork {
 public:
  PatchNetwork(const NetSpec& spec, const Extent3& patch, Parameters& parameters, const NetworkOptions& options,
               PatchTasks tasks, std::pmr::memory_resource* memory);
  PatchNetwork(const PatchNetwork&) = delete;
  PatchNetwork& operator=(const PatchNetwork&) = delete;

  /// Prepares the weights. To be called before run() whenever parameters have changed.
  void prepare(Scheduler& scheduler) { prepare_.run(scheduler); }
  /// Computes the items [0, count). Calls done(items) after each group. Returns false if a stop request came first.
  bool run(std::size_t count, Scheduler& scheduler, const std::function<void(std::size_t)>& done,
           const std::stop_token& stop);
  /// Computes the net once on what the input holds, without loading or adding: to see how long it takes.
  void run_alone(Scheduler& scheduler);

  const Network& network() const { return network_; }
  std::size_t batch() const { return static_cast<std::size_t>(network_.logits().shape().n); }
  /// Returns the bytes of all tensors, spectra and weights, and of the scratch of tasks on `threads` threads.
  std::size_t bytes(int threads) const;

 private:
  static constexpr std::size_t nothing = static_cast<std::size_t>(-1);
  /// Appends tasks that load a group into the input that is not being computed, or that take its logits.
  void append_load(TaskGraph& graph);
  void append_add(TaskGraph& graph);
  float* input(std::size_t group) { return (group % 2 == 0 ? network_.input() : second_input_).data(); }
  float* logits(std::size_t group) { return (group % 2 == 0 ? network_.logits() : second_logits_).data(); }

  PatchTasks tasks_;
  Network network_;
  Tensor<float> second_input_, second_logits_;
  std::size_t count_ = 0;                           // items of this run
  std::size_t loaded_ = nothing, added_ = nothing;  // groups that the side tasks work on
  TaskGraph prepare_, load_, all_, add_;
};

}  // namespace convolume::nets
