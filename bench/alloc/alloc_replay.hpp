// Work for allocators: recorded traces and patterns, replayed in a separate process.
#pragma once

#include <filesystem>
#include <string>

namespace convolume::bench {

struct ReplayOptions {
  std::string allocator;       ///< "slab", or a general allocator that replaces malloc in this process
  std::string library;         ///< library that must provide aligned_alloc(); "" allows any
  std::string work;            ///< "larson", "handover", or the file of a trace
  int threads = 1;             ///< threads of a pattern; a trace has its own number
  std::size_t operations = 0;  ///< of each thread, in a pattern
};

/// Reads commands from standard input until its end, and answers each with one line on standard output. "round" replays
/// the work once, and is answered with the seconds of the timed part and the page faults of the whole round. "peak" is
/// answered with the growth of the peak of resident bytes since the first round, and with the most bytes that were
/// allocated at once. The latter is counted in as many further rounds.
int replay(const ReplayOptions& options);

}  // namespace convolume::bench
