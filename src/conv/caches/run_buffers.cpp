#include "conv/caches/run_buffers.hpp"

namespace convolume::conv {

RunBuffers::RunBuffers(TaskGraph& graph, Workspace* workspace, std::shared_ptr<BufferStore> store)
    : workspace_(workspace), store_(std::move(store)) {
  if (workspace_ == nullptr || store_->capacity() == 0) return;
  place_ = workspace_->take(graph, store_->capacity());
  if (place_.slot != nullptr) store_->place_in(place_.slot);
}

void RunBuffers::end(TaskGraph& graph, const char* name, std::span<const TaskId> last) const {
  if (place_.slot != nullptr) return workspace_->free(graph, place_, last);
  if (store_->capacity() == 0) return;
  graph.add(
      {.name = name, .task_class = TaskClass::release}, [store = store_] { store->release(); }, last);
}

}  // namespace convolume::conv
