// The options of bench_conv, and the names that the command line and the reports use.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/common/engine_names.hpp"
#include "bench/conv/conv_problems.hpp"
#include "convolume/conv.hpp"

namespace convolume::bench {

/// Forward computes y from x, backward_data dx from dy, backward_weights dw from x and dy, and training all three.
enum class Direction { forward, backward_data, backward_weights, training };
constexpr std::size_t direction_count = 4;

/// Competitors beside the engines that are measured.
enum class Peer { onednn, fft_volume, torch, im2col_openblas, im2col_atlas, c_loops };

struct ConvBenchOptions {
  std::vector<NamedProblem> problems;
  std::vector<Direction> directions{Direction::forward, Direction::backward_data, Direction::backward_weights,
                                    Direction::training};
  std::vector<Engine> engines{Engine::automatic};
  std::vector<DataType> types{DataType::f32};
  std::vector<Layout> layouts{Layout::plain, Layout::blocked};
  std::vector<Peer> peers{Peer::onednn, Peer::fft_volume};
  std::optional<Peer> passes_of{};  ///< whose passes are executed; none: ours
  bool tune = false;                ///< choose by measurement
  bool low_error = false;           ///< see ConvOptions
  bool cached_weights = false;      ///< forward passes use weights that are already prepared
  bool one_thread_too = false;      ///< side by side: measure one thread beside `threads`
  int threads = 1, rounds = 9;
  double min_seconds = 0.5, max_seconds = 30;
  double memory_gib = 8;                 ///< limit for cached spectra of a plan; 0 means no limit
  std::string choice{};                  ///< text of the choice of our plans; empty: the cost model chooses
  std::vector<std::string> choices{""};  ///< side by side: our plans of a problem, one after the other
  std::filesystem::path json;
  std::filesystem::path recorded;  ///< report of an earlier run of --choices

  bool has(Peer peer) const;
  ConvOptions conv(Engine engine) const;
};

const std::map<std::string, Direction>& direction_names();
const std::map<std::string, Peer>& peer_names();
const std::map<std::string, DataType>& type_names();
const std::map<std::string, std::vector<Layout>>& layout_names();

const std::string& name_of(Direction direction);
const std::string& name_of(Peer peer);

/// Returns all engines except `automatic`, in the order of the library.
std::vector<Engine> all_engines();
/// Returns the names of a map as "a, b, c", for help texts.
template <class Value>
std::string list_of(const std::map<std::string, Value>& names) {
  std::string text;
  for (const auto& [name, value] : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace convolume::bench
