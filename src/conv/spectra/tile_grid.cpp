#include "conv/spectra/tile_grid.hpp"

namespace convolume::conv {

void append_z_ranges(TaskGraph& graph, const std::vector<std::vector<TaskId>>& of_z_range, std::vector<TaskId>& done) {
  for (const auto& writers : of_z_range)
    done.push_back(graph.add(
        {.name = "join tiles"}, [] {}, writers));
}

}  // namespace convolume::conv
