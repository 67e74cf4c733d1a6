// Declares buffers that the tasks of one run pass on to each other.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "conv/caches/buffer_store.hpp"
#include "convolume/conv.hpp"

namespace convolume::conv {

/// Buffers that the tasks of a run pass on to each other. If the caller has a workspace with memory for them, they lie
/// in the workspace. Otherwise they are allocated when they are first written, and a task frees them.
class RunBuffers {
 public:
  /// Takes memory for the buffers that `store` describes by number and size.
  RunBuffers(TaskGraph& graph, Workspace* workspace, std::shared_ptr<BufferStore> store);
  /// Returns the tasks that every user of these buffers waits for.
  const std::vector<TaskId>& ready() const { return place_.ready; }
  /// Ends the use of the buffers. Every task that uses them is in `last` or precedes a task in `last`. `name` is the
  /// name of the task that frees them.
  void end(TaskGraph& graph, const char* name, std::span<const TaskId> last) const;

 private:
  Workspace* workspace_;
  std::shared_ptr<BufferStore> store_;
  Workspace::Buffer place_{};
};

}  // namespace convolume::conv
