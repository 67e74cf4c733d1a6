// Provides the drawn patches of each iteration with their voxels.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <thread>

#include "nets/data/patch_loader.hpp"

namespace convolume::nets {

/// Keeps chunks of files that were read, up to a limit of bytes. Chunks that were not used for the longest time go
/// first. For one thread.
class ChunkCache {
 public:
  ChunkCache(std::size_t bytes, std::pmr::memory_resource* memory) : limit_(bytes), memory_(memory) {}
  /// Reads a box of all channels, as it is stored. The source outlives the cache.
  StoredVolume read(const io::VolumeSource& source, const io::VoxelBox& box);
  std::size_t bytes() const { return bytes_; }

 private:
  using Key = std::pair<const io::VolumeSource*, index_t>;
  struct Entry {
    StoredVolume voxels;
    std::list<Key>::iterator used;
  };
  const StoredVolume& chunk(const io::VolumeSource& source, index_t number, const io::VoxelBox& box);

  std::size_t limit_, bytes_ = 0;
  std::pmr::memory_resource* memory_;
  std::map<Key, Entry> entries_;
  std::list<Key> order_;  // the chunk that was used last comes first
};

struct SourceOptions {
  index_t batch = 1;
  std::uint64_t seed = 1;
  /// Bytes for chunks of volumes whose voxels stay in files.
  std::size_t cache_bytes = std::size_t{256} << 20;
};

/// Draws patches and finds their voxels. If voxels lie in files, a thread of its own reads them ahead of the training,
/// so no task waits for a disk.
class PatchSource {
 public:
  struct Sample {
    PatchDraw draw;
    PatchMap map;
    PatchVoxels voxels;
    StoredVolume image, label, mask;  // if they were read for this patch
  };

  /// The data set must outlive the source.
  PatchSource(const Dataset& data, const Extent3& patch, const SourceOptions& options,
              std::pmr::memory_resource* memory);
  ~PatchSource();
  PatchSource(const PatchSource&) = delete;
  PatchSource& operator=(const PatchSource&) = delete;

  /// Returns the samples of an iteration, which stay valid until the next call. Waits if they are still being read.
  /// Iterations in order are fast; after any other one, reading starts again. Throws what reading throws.
  std::span<const Sample> take(std::uint64_t iteration);
  /// Returns the seconds that take() has waited for files so far.
  double waited() const { return waited_; }

 private:
  /// Returns whether the reader thread has read an iteration, or will.
  bool reads_towards(std::uint64_t iteration);
  static constexpr std::uint64_t ahead = 4;  // iterations
  struct Slot {
    std::uint64_t iteration = 0;
    bool full = false;
    std::vector<Sample> samples;
  };
  void fill(Slot& slot, std::uint64_t iteration);
  void read(Sample& sample, const VolumeFiles& files);
  void run();
  void stop();

  const Dataset& data_;
  Extent3 patch_;
  SourceOptions options_;
  std::pmr::memory_resource* memory_;
  bool streams_ = false;
  ChunkCache cache_;
  std::vector<Slot> slots_;  // iteration i has slot i % size
  double waited_ = 0;
  std::thread reader_;
  std::mutex mutex_;
  // Guarded by the mutex:
  std::condition_variable changed_;
  std::uint64_t wanted_ = 0, next_ = 0;  // the iteration that take() has returned or waits for; the next one to read
  bool stopping_ = false;
  std::exception_ptr failure_;
};

}  // namespace convolume::nets
