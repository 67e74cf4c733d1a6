// Which tasks complete each part of a tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "convolume/scheduler.hpp"

namespace convolume {

/// The tasks that complete the parts of a tensor: one task per (sample, channel block, Z range). So a consumer waits
/// only for the parts that it reads. A default-constructed Ready means that everything is complete from the start.
class CONVOLUME_API Ready {
 public:
  Ready() = default;
  /// Takes a grid of tasks in the order [sample][channel block][Z range]. A channel block has `channels` channels and a
  /// Z range has `planes` planes; the last ones may be smaller. Throws InvalidArgument if the tasks do not fill the
  /// grid.
  Ready(std::vector<TaskId> tasks, std::int64_t channel_blocks, std::int64_t z_ranges, std::int64_t channels,
        std::int64_t planes);
  /// Returns a Ready with one task per feature map, in the order [sample][channel].
  static Ready per_channel(std::vector<TaskId> tasks, std::int64_t channels);
  /// Returns a Ready in which all of `tasks` complete every part.
  static Ready all_of(std::vector<TaskId> tasks);

  /// Returns a Ready in which a part is complete if it is complete in both `a` and `b`.
  friend CONVOLUME_API Ready operator&(Ready a, const Ready& b);

  /// Adds `first` to every channel index. Channels that become negative are dropped. This splits the channels of a
  /// tensor into parts, and & joins them again.
  Ready shifted(std::int64_t first) const;

  /// Appends to `out` the tasks that complete the channels [c0, c1) of sample n on the planes [z0, z1).
  void collect(std::int64_t n, std::int64_t c0, std::int64_t c1, std::int64_t z0, std::int64_t z1,
               std::vector<TaskId>& out) const;
  /// Does the same for all planes.
  void collect(std::int64_t n, std::int64_t c0, std::int64_t c1, std::vector<TaskId>& out) const;
  /// Returns all tasks.
  std::vector<TaskId> tasks() const;

 private:
  struct Grid {
    std::vector<TaskId> tasks;
    std::int64_t channel_blocks, z_ranges, channels, planes;  // if channel_blocks is 0, every task completes every part
    std::int64_t first_channel = 0;
  };
  std::vector<Grid> grids_;
};

}  // namespace convolume
