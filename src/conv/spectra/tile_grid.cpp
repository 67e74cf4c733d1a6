#include "conv/spectra/tile_grid.hpp"

namespace convolume::conv {

void append_slabs(TaskGraph& graph, const std::vector<std::vector<TaskId>>& of_slab, std::vector<TaskId>& done) {
  for (const auto& writers : of_slab)
    done.push_back(graph.add(
        {.name = "slab of tiles"}, [] {}, writers));
}

}  // namespace convolume::conv
