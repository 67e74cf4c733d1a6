// The engine's part of a streamed convolution: what computes one tile, and the memory that it works in.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <memory_resource>
#include <vector>

#include "convolume/conv.hpp"
#include "convolume/streamed.hpp"

namespace convolume::conv {

/// Where the tensors of the tile that is computed now lie. Graphs read these pointers when they run.
struct StreamSlots {
  void *x = nullptr, *w = nullptr, *bias = nullptr, *y = nullptr;
};

/// Gives engines buffers for what tasks pass to each other, at most `most` of a kind at the same time: a further buffer
/// waits until an earlier one is free. So the memory does not depend on the order in which tasks run.
class BoundedWorkspace final : public Workspace {
 public:
  explicit BoundedWorkspace(std::size_t most) : most_(most) {}

  Buffer take(TaskGraph& graph, std::size_t bytes) override;
  void free(TaskGraph& graph, const Buffer& buffer, std::span<const TaskId> last) override;
  /// Returns the bytes of all buffers together.
  std::size_t bytes() const;
  /// Gives all buffers their memory, of bytes() bytes, aligned to 64.
  void place(std::byte* memory);

 private:
  struct Held {
    void* address = nullptr;
    std::size_t bytes = 0;
    std::vector<TaskId> last{};  ///< tasks that end the use before this one
  };
  std::size_t most_;
  std::deque<Held> held_;   // addresses must not move
  std::deque<Held*> free_;  // in the order in which they became free
};

/// The plan and the task graph for tiles of one shape.
class StreamProgram {
 public:
  /// `whole` is the plan for the whole problem, whose engine and choice are used. The tensors are those of `slots`,
  /// which must outlive this object. Tasks take scratch from `memory`.
  StreamProgram(const ConvPlan& whole, const ConvOptions& options, const ConvProblem& tile, StreamSlots& slots,
                int threads, std::pmr::memory_resource* memory);

  const ConvPlan& plan() const noexcept { return plan_; }
  /// Appends the forward pass, which reads these prepared weights. Returns whether they fit: they must be of the same
  /// geometry.
  bool append(const PreparedWeights& weights);
  /// Returns the bytes of buffers between tasks, and of the scratch of running tasks on all threads.
  std::size_t workspace_bytes() const { return workspace_.bytes(); }
  std::size_t scratch_bytes() const;
  void place(std::byte* memory) { workspace_.place(memory); }
  RunResult run(Scheduler& scheduler, std::stop_token stop) { return graph_.run(scheduler, std::move(stop)); }

 private:
  StreamSlots& slots_;
  int threads_;
  std::pmr::memory_resource* memory_;
  ConvPlan plan_;
  BoundedWorkspace workspace_;
  TaskGraph graph_;
};

/// Returns the plan of a tile: it computes its forward pass with the bits of `whole`.
ConvPlan plan_of_tile(const ConvPlan& whole, const ConvOptions& options, const ConvProblem& tile);

/// Returns a view of a dense plain tensor whose memory is where `*slot` points when it is used.
TensorView view_in(void* const* slot, const Shape5& shape, DataType type);

/// Returns the most bytes that a slab resource takes for a block of `bytes` bytes.
std::size_t block_bytes(std::size_t bytes) noexcept;
/// Returns the bytes of scratch of the task that takes most.
std::size_t largest_scratch(const TaskGraph& graph);

}  // namespace convolume::conv
