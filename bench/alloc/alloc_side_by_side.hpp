// Times our allocator and general allocators in turn.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace convolume::bench {

struct AllocContestOptions {
  std::vector<std::string> nets, overrides, peers;
  std::vector<int> threads{1, 2, 4};
  int rounds = 9, iterations = 3;
  std::size_t operations = 200'000;
  std::filesystem::path json;
};

/// Returns the general allocators that were found at configuration.
std::vector<std::string> known_peers();

/// Returns the exit status: 0, or the status of an interruption.
int alloc_side_by_side(const AllocContestOptions& options);

}  // namespace convolume::bench
