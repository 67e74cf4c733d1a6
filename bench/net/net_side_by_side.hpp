// Training iterations and inferences with either FFT backend, with and without cached spectra, and in PyTorch, in turn.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/net/measured_net.hpp"
#include "convolume/conv.hpp"

namespace convolume::bench {

struct NetContestOptions {
  std::vector<std::string> nets, overrides;  ///< descriptions; without them W x D nets are made
  std::vector<index_t> widths{30, 100};
  index_t depth = 8, kernel = 5;
  std::optional<index_t> extent;  ///< of the input of W x D nets; what memory allows, at most 48, where absent
  std::vector<Engine> engines{Engine::fft_volume};  ///< one competitor of ours for each
  std::vector<fft::Backend> backends{fft::Backend::native, fft::Backend::fftw};
  std::vector<bool> caches{true, false};
  std::vector<nets::MemoryMode> memory{nets::MemoryMode::arena};
  std::vector<std::optional<bool>> hardened{std::nullopt};  ///< as in SlabOptions
  std::vector<Work> works{Work::training};
  bool torch = false;
  fft::Rigor rigor = fft::Rigor::measure;  ///< of FFTW's plans
  SchedulerOptions scheduling{};           ///< of ours
  int threads = 1, rounds = 5;
  double min_seconds = 2;
  double memory_gib = 8;              ///< of all contestants together
  std::filesystem::path json, trace;  ///< files to write; none where empty
};

const std::map<std::string, fft::Backend>& backend_names();
const std::map<std::string, fft::Rigor>& rigor_names();

/// Returns the exit status. Throws InvalidArgument where memory does not suffice.
int net_side_by_side(const NetContestOptions& options);

}  // namespace convolume::bench
