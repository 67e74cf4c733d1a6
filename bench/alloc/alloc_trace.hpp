// What a program asked of its allocator, and in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "convolume/nets.hpp"
#include "nets/net_spec.hpp"

namespace convolume::bench {

/// A block is taken (bytes > 0) or given back (0). Blocks are numbered in the order in which they were taken.
struct AllocEvent {
  std::uint64_t bytes;
  std::uint32_t block;
  std::uint16_t thread;
  std::uint16_t part;  ///< 0 is what comes before what is timed; the last one what comes after it
};

struct AllocTrace {
  std::string name;
  int threads = 1;
  std::uint16_t parts = 0;
  std::uint32_t blocks = 0;
  std::vector<AllocEvent> events{};
};

/// A training of `spec` on `threads` workers, whose tensors live where `mode` says: building it is the first part, with
/// two iterations; each part then is one iteration; taking it apart is the last.
AllocTrace record_training(const nets::NetSpec& spec, nets::MemoryMode mode, int threads, int iterations);

/// Sizes, order and threads of blocks; the file is one that this process alone reads and its children.
void write_trace(const AllocTrace& trace, const std::filesystem::path& file);
AllocTrace read_trace(const std::filesystem::path& file);

}  // namespace convolume::bench
