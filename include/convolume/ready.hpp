// Which tasks complete which part of a tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "convolume/scheduler.hpp"

namespace convolume {

/// When the parts of a tensor are complete: one task per (sample, channel block, Z slab), so that a consumer waits only
/// for what it reads. A default-constructed Ready says that everything is complete from the start.
class CONVOLUME_API Ready {
 public:
  Ready() = default;
  /// A grid of tasks in order [sample][channel block][slab]; blocks of `channels` channels and slabs of `planes` planes
  /// (the last of each may be shorter).
  Ready(std::vector<TaskId> tasks, std::int64_t channel_blocks, std::int64_t slabs, std::int64_t channels,
        std::int64_t planes);
  /// One task per feature map, in order [sample][channel].
  static Ready per_channel(std::vector<TaskId> tasks, std::int64_t channels);
  /// All of `tasks` complete every part.
  static Ready all_of(std::vector<TaskId> tasks);

  /// A part is ready when it is in both.
  friend CONVOLUME_API Ready operator&(Ready a, const Ready& b);

  /// The same for channels that count from elsewhere: its channel c is what `first` + c is in the result. Below 0 it
  /// has none, so that the parts of a tensor's channels can be told apart, and joined again by &.
  Ready shifted(std::int64_t first) const;

  /// Appends to `out` the tasks that complete channels [c0, c1) of sample n on planes [z0, z1).
  void collect(std::int64_t n, std::int64_t c0, std::int64_t c1, std::int64_t z0, std::int64_t z1,
               std::vector<TaskId>& out) const;
  /// As above, on all planes.
  void collect(std::int64_t n, std::int64_t c0, std::int64_t c1, std::vector<TaskId>& out) const;
  /// Every task named.
  std::vector<TaskId> tasks() const;

 private:
  struct Grid {
    std::vector<TaskId> tasks;
    std::int64_t channel_blocks, slabs, channels, planes;  // channel_blocks == 0: every task completes every part
    std::int64_t first_channel = 0;
  };
  std::vector<Grid> grids_;
};

}  // namespace convolume
