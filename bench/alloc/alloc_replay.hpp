// Work for allocators: recorded traces and patterns, replayed in a process of their own.
#pragma once

#include <filesystem>
#include <string>

namespace convolume::bench {

struct ReplayOptions {
  std::string allocator;       ///< "slab", or a general one that stands in front of malloc in this process
  std::string library;         ///< of which the process's aligned_alloc has to be, "" is any
  std::string work;            ///< "larson", "handover", or a trace's file
  int threads = 1;             ///< of a pattern; a trace has its own
  std::size_t operations = 0;  ///< of a pattern, each thread
};

/// Answers a line on standard output for each one on standard input: "round" with "seconds faults", seconds of the
/// timed part of one replay and page faults of all of it; "peak" with the growth of the peak of resident bytes since
/// before the first round, and the most bytes that were asked for at once in as many rounds again. Until the input
/// ends.
int replay(const ReplayOptions& options);

}  // namespace convolume::bench
