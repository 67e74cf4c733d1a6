// Times training iterations and inferences in turn: with both FFT backends, with and without cached spectra, and in
// other libraries.
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
  std::vector<std::string> nets, overrides;  ///< descriptions; if there are none, W x D nets are made
  std::vector<index_t> widths{30, 100};
  index_t depth = 8, kernel = 5;
  std::optional<index_t> extent;  ///< of the input of W x D nets; if absent, the largest that memory allows, at most 48
  std::vector<Engine> engines{Engine::fft_volume};  ///< one competitor of ours for each
  bool low_error = false;                           ///< see ConvOptions
  std::vector<fft::Backend> backends{fft::Backend::native, fft::Backend::fftw};
  std::vector<bool> caches{true, false};
  std::vector<nets::MemoryMode> memory{nets::MemoryMode::arena};
  std::vector<std::optional<bool>> hardened{std::nullopt};  ///< see SlabOptions
  std::vector<std::string> limits{"usual"};                 ///< of the memory of training: usual, all, or MiB
  std::vector<Work> works{Work::training};
  std::vector<std::string> peers{};        ///< other libraries: torch, onnxruntime, openvino
  std::vector<index_t> batches{};          ///< batch of all competitors, one contest for each; empty: the net's own
  bool any_blas = false;                   ///< PyTorch may use a BLAS that holds it back
  fft::Rigor rigor = fft::Rigor::measure;  ///< for FFTW's plans
  SchedulerOptions scheduling{};           ///< for our schedulers
  int threads = 1, rounds = 5;
  double min_seconds = 2;
  double memory_gib = 8;              ///< for all competitors together
  std::filesystem::path json, trace;  ///< files to write; empty means none
};

const std::map<std::string, fft::Backend>& backend_names();
const std::map<std::string, fft::Rigor>& rigor_names();

/// Returns the exit status. Throws InvalidArgument if the memory does not suffice.
int net_side_by_side(const NetContestOptions& options);

}  // namespace convolume::bench
