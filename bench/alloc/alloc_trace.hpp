// A record of a program's allocations and their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nets/base/memory_mode.hpp"
#include "nets/spec/net_spec.hpp"

namespace convolume::bench {

/// An allocation (bytes > 0) or deallocation (bytes = 0) of a block. Blocks are numbered in the order of their
/// allocation.
struct AllocEvent {
  std::uint64_t bytes;
  std::uint32_t block;
  std::uint16_t thread;
  std::uint16_t part;  ///< part 0 precedes the timed parts; the last part follows them
};

struct AllocTrace {
  std::string name;
  int threads = 1;
  std::uint16_t parts = 0;
  std::uint32_t blocks = 0;
  std::vector<AllocEvent> events{};
};

/// Records a training of `spec` on `threads` threads in a memory mode. The first part holds the construction and two
/// iterations. Each following part is one iteration. The last part is the destruction.
AllocTrace record_training(const nets::NetSpec& spec, nets::MemoryMode mode, int threads, int iterations);

/// Writes or reads a trace: sizes, order and threads of blocks. The file is read only by this process and its children.
void write_trace(const AllocTrace& trace, const std::filesystem::path& file);
AllocTrace read_trace(const std::filesystem::path& file);

}  // namespace convolume::bench
