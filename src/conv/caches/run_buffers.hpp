// Buffers that the tasks of one run pass on to each other.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "conv/caches/buffer_store.hpp"
#include "convolume/conv.hpp"

namespace convolume::conv {

/// Buffers that the tasks of a run pass on to each other: in the caller's workspace, where there is one; else allocated
/// as they are first written, and given back by a task.
class RunBuffers {
 public:
  /// `store` says how many and how large.
  RunBuffers(TaskGraph& graph, Workspace* workspace, std::shared_ptr<BufferStore> store);
  /// What all tasks that use them have to wait for.
  const std::vector<TaskId>& ready() const { return place_.ready; }
  /// Behind `last`, which all other tasks that use them come before. `name` is that of the task that gives them back.
  void end(TaskGraph& graph, const char* name, std::span<const TaskId> last) const;

 private:
  Workspace* workspace_;
  std::shared_ptr<BufferStore> store_;
  Workspace::Buffer place_{};
};

}  // namespace convolume::conv
