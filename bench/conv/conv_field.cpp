#include "bench/conv/conv_field.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "conv/implementations.hpp"
#include "conv/spectra/tiled_choice.hpp"
#include "convolume/error.hpp"
#include "convolume/machine.hpp"
#include "plan/sides.hpp"

namespace convolume::bench {
namespace {

using conv::Choice;

/// Selects a machine row, and the one before at the end.
class OtherRow {
 public:
  explicit OtherRow(const std::string& name) { select_machine(name); }
  ~OtherRow() {
    const char* before = std::getenv("CONVOLUME_MACHINE");
    select_machine(before == nullptr ? "" : before);
  }
  OtherRow(const OtherRow&) = delete;
  OtherRow& operator=(const OtherRow&) = delete;
};

class Field {
 public:
  Field(const ConvProblem& problem, const ConvOptions& options) : problem_(problem), options_(options) {}

  /// Returns the index of the choice.
  std::size_t add(const Choice& choice) {
    const auto at = std::find(field_.choices.begin(), field_.choices.end(), choice);
    const auto index = static_cast<std::size_t>(at - field_.choices.begin());
    if (at == field_.choices.end()) field_.choices.push_back(choice);
    return index;
  }
  std::size_t add_pick() { return add(conv::parse_choice(ConvPlan::make(problem_, options_).choice())); }
  void add_rows() {
    for (const std::string& row : machine_rows()) {
      const OtherRow other(row);
      field_.picks.push_back({row, add_pick()});
    }
  }

  void add_engines() {
    for (const conv::Implementation& implementation : conv::implementations()) {
      if (implementation.engine == Engine::reference || implementation.engine == Engine::onednn) continue;
      ConvOptions options = options_;
      options.engine = implementation.engine;
      const auto estimate = conv::assess(implementation, problem_, options).estimate;
      if (estimate) add({implementation.engine, estimate->parts});
    }
  }

  /// Adds tiles of the fixed grid that fit the problem. Along an axis where the kernel has one voxel, a tile has one.
  void add_grid() {
    const plan::Sides sides(problem_);
    const ConvProblem& p = sides.convolution();
    for (const index_t edge : {8, 10, 12, 16, 20, 24, 32}) {
      for (const index_t group : {4, 16}) {
        const plan::TileChoice voxels{tile_of(p, edge, false), group}, sums{tile_of(p, edge, true), 1};
        for (const bool shared : {false, true}) {
          const plan::TileChoices tiles{voxels, voxels, shared ? voxels : sums};
          add_if_supported({Engine::fft_tiled, std::make_shared<conv::TiledParts>(tiles, shared)});
        }
      }
    }
  }

  ChoiceField take() { return std::move(field_); }

 private:
  static Extent3 tile_of(const ConvProblem& p, index_t edge, bool swapped) {
    Extent3 tile{};
    for (int axis = 0; axis < 3; ++axis) {
      tile[axis] = p.kernel[axis] == 1 ? 1 : std::max(edge, fft::good_size(p.kernel[axis]));
    }
    if (swapped && plan::swaps_zy(p)) std::swap(tile.z, tile.y);
    return tile;
  }

  void add_if_supported(const Choice& choice) {
    ConvOptions options = options_;
    options.choice = to_string(choice);
    try {
      add(conv::parse_choice(ConvPlan::make(problem_, options).choice()));
    } catch (const Unsupported&) {
    } catch (const InvalidArgument&) {  // a tile that does not fit
    }
  }

  const ConvProblem& problem_;
  const ConvOptions& options_;
  ChoiceField field_;
};

}  // namespace

ChoiceField choice_field(const ConvProblem& problem, const ConvOptions& options) {
  Field field(problem, options);
  field.add_pick();
  if (!options.choice.empty()) return field.take();
  field.add_rows();
  field.add_engines();
  field.add_grid();
  return field.take();
}

bool is_held_out(const ConvProblem& problem) {
  const std::string text = to_string(problem);
  return XXH3_64bits(text.data(), text.size()) % 4 == 0;
}

}  // namespace convolume::bench
