// Chooses patch and overlap of an inference by what they cost: the net's seconds, and reading the volume.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convolume/machine.hpp"
#include "nets/infer/inference_windows.hpp"
#include "nets/spec/net_spec.hpp"

namespace convolume::nets {

/// What a patch is chosen for.
struct PatchDemand {
  const NetSpec& spec;
  Blend blend = Blend::ramp;
  Extent3 region{};
  index_t batch = 1, forms = 1;
  int threads = 1;
  Engine engine = Engine::automatic;
  bool low_error = false;
  TransferPrice price{};  ///< of reading from the volume's file
  /// Returns the windows for a grid. Throws InvalidArgument if none fit into the memory. If `net_too` is false, the
  /// memory of the net is left out, which is known only when the net has been planned.
  std::function<InferenceWindows(const PatchGrid& grid, bool net_too)> windows;
  /// Returns the box of the volume that the patches of a column read.
  std::function<io::VoxelBox(const PatchGrid& grid, const io::VoxelBox& column)> read_box;
  index_t channels = 1;             ///< of the volume
  std::size_t bytes_per_voxel = 4;  ///< of the volume
};

/// A patch extent with its cost.
struct PatchCost {
  PatchGrid grid;
  InferenceWindows windows;
  double compute_seconds = 0;   ///< of the net, by the cost model
  double transfer_seconds = 0;  ///< to read the windows, by the price list
  double halo = 0;              ///< share of the net's output voxels that are computed more than once, or not needed
  /// Reading runs ahead of the net, so the longer of the two counts.
  double seconds() const { return std::max(compute_seconds, transfer_seconds); }
};

/// Returns the cost of a grid whose windows are known.
PatchCost cost_of(const PatchDemand& demand, const PatchGrid& grid, InferenceWindows windows);

/// What it would cost to compute one layer of the whole region after the other, with every feature map in a file.
struct LayerwiseCost {
  double compute_seconds = 0;   ///< without any halo
  double transfer_seconds = 0;  ///< convolutions read their input from a file and write their output to one
};
/// Returns the cost, or nothing if the net cannot read an extent that covers the region.
std::optional<LayerwiseCost> layerwise_cost(const PatchDemand& demand);

/// The patch that costs least, or the reason why the usual one is kept.
struct PatchChoice {
  std::optional<PatchCost> cheapest;
  std::string reason{};  ///< empty if the cheapest patch was searched for
};

/// Searches patches of half to four times the training patch along each axis. `usual` is absent if the usual patch does
/// not fit into the memory. Keeps it for nets that normalise over the voxels of a patch, because their result depends
/// on its extent. `cheapest` is absent if no patch fits. Deterministic for a demand.
PatchChoice choose_patch(const PatchDemand& demand, const std::optional<PatchCost>& usual);

}  // namespace convolume::nets
