#include "convolume/ready.hpp"

#include <algorithm>
#include <limits>

#include "convolume/error.hpp"

namespace convolume {

Ready::Ready(std::vector<TaskId> tasks, std::int64_t channel_blocks, std::int64_t z_ranges, std::int64_t channels,
             std::int64_t planes) {
  const auto cells = channel_blocks * z_ranges;
  if (channel_blocks < 1 || z_ranges < 1 || channels < 1 || planes < 1 ||
      static_cast<std::int64_t>(tasks.size()) % cells != 0) {
    throw InvalidArgument("Ready: the tasks do not fill a grid of samples x channel blocks x Z ranges");
  }
  grids_.push_back({std::move(tasks), channel_blocks, z_ranges, channels, planes});
}

Ready Ready::per_channel(std::vector<TaskId> tasks, std::int64_t channels) {
  return {std::move(tasks), channels, 1, 1, std::numeric_limits<std::int64_t>::max()};
}

Ready Ready::all_of(std::vector<TaskId> tasks) {
  Ready ready;
  if (!tasks.empty()) ready.grids_.push_back({std::move(tasks), 0, 1, 1, 1});
  return ready;
}

Ready operator&(Ready a, const Ready& b) {
  a.grids_.insert(a.grids_.end(), b.grids_.begin(), b.grids_.end());
  return a;
}

Ready Ready::shifted(std::int64_t first) const {
  Ready result = *this;
  for (Grid& grid : result.grids_) grid.first_channel += first;
  return result;
}

void Ready::collect(std::int64_t n, std::int64_t c0, std::int64_t c1, std::int64_t z0, std::int64_t z1,
                    std::vector<TaskId>& out) const {
  for (const Grid& grid : grids_) {
    if (grid.channel_blocks == 0) {
      out.insert(out.end(), grid.tasks.begin(), grid.tasks.end());
      continue;
    }
    const auto first = std::max<std::int64_t>(0, c0 - grid.first_channel), end = c1 - grid.first_channel;
    if (end <= 0) continue;
    const auto last_block = std::min((end - 1) / grid.channels, grid.channel_blocks - 1);
    const auto last_z_range = std::min((z1 - 1) / grid.planes, grid.z_ranges - 1);
    for (auto block = first / grid.channels; block <= last_block; ++block) {
      for (auto z_range = z0 / grid.planes; z_range <= last_z_range; ++z_range) {
        out.push_back(
            grid.tasks.at(static_cast<std::size_t>((n * grid.channel_blocks + block) * grid.z_ranges + z_range)));
      }
    }
  }
}

void Ready::collect(std::int64_t n, std::int64_t c0, std::int64_t c1, std::vector<TaskId>& out) const {
  collect(n, c0, c1, 0, std::numeric_limits<std::int64_t>::max(), out);
}

std::vector<TaskId> Ready::tasks() const {
  std::vector<TaskId> all;
  for (const Grid& grid : grids_) all.insert(all.end(), grid.tasks.begin(), grid.tasks.end());
  return all;
}

}  // namespace convolume
