#include "nets/infer/patch_choice.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "convolume/error.hpp"
#include "core/checked.hpp"
#include "nets/spec/net_shapes.hpp"

namespace convolume::nets {
namespace {

/// Extents that are tried, as multiples of the training patch. Z is scaled by itself, because volumes of electron
/// microscopy have other voxels along Z.
constexpr std::array scales{0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0};
/// Nets that are planned to learn their memory, which takes about a second for a large one.
constexpr int most_planned = 6;
/// Every node reads its input and writes its output once; convolutions have their own estimate.
constexpr double passes_of_node = 2;

/// Returns the seconds of a forward pass on one core, by the cost models.
double forward_seconds(const PatchDemand& d, const Extent3& patch) {
  const NetShapes shapes = infer_shapes(d.spec, patch);
  double seconds = 0;
  for (std::size_t i = 0; i < d.spec.nodes.size(); ++i) {
    const NodeSpec& node = d.spec.nodes[i];
    const NodeShape& out = shapes.nodes[i];
    if (auto problem = conv_problem(d.spec, node, d.batch, shapes.of(node.inputs[0]))) {
      problem->x_layout = usual_layout(problem->in_channels);
      problem->y_layout = usual_layout(problem->out_channels);
      const Engine engine = engine_for(d.engine, *problem);
      const ConvOptions options{.engine = engine, .want_dx = false, .want_dw = false, .low_error = d.low_error};
      seconds += ConvPlan::make(*problem, options).seconds();
    } else {
      const auto elements = static_cast<double>(d.batch * out.channels) * static_cast<double>(out.extent.volume());
      seconds += passes_of_node * sizeof(float) * elements / (1e9 * machine_model().dram_gb_per_s);
    }
  }
  return seconds;
}

/// Returns the nearest extents on the pooling grid that differ from the training patch by whole periods of it.
std::vector<index_t> extents(index_t trained, index_t period, index_t most) {
  std::vector<index_t> all;
  for (const double scale : scales) {
    const double more = (scale - 1) * static_cast<double>(trained) / static_cast<double>(period);
    const index_t extent = trained + static_cast<index_t>(std::lround(more)) * period;
    if (extent >= period && extent <= std::max(trained, most)) all.push_back(extent);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

/// Returns the costs of all patches, without the memory of their nets, the cheapest first.
std::vector<PatchCost> rank_patches(const PatchDemand& d) {
  const Extent3 trained = d.spec.patch, period = infer_shapes(d.spec, trained).alignment();
  const Extent3 around = infer_shapes(d.spec, trained).field_of_view();
  std::array<std::vector<index_t>, 3> along;
  for (int axis = 0; axis < 3; ++axis) {
    along[static_cast<std::size_t>(axis)] =
        extents(trained[axis], period[axis], round_up(d.region[axis], period[axis]) + around[axis]);
  }
  std::vector<PatchCost> all;
  const auto add = [&](const Extent3& patch) {
    try {
      const PatchGrid grid = make_patch_grid(d.spec, d.region, {.patch = patch, .overlap = {}, .blend = d.blend});
      const bool known =
          std::any_of(all.begin(), all.end(), [&](const PatchCost& c) { return c.grid.patch == grid.patch; });
      if (!known) all.push_back(cost_of(d, grid, d.windows(grid, false)));
    } catch (const Error&) {
      return;  // the net or an engine cannot read this extent, or its windows alone do not fit into the memory
    }
  };
  for (const index_t z : along[0]) {
    // Y and X are scaled together: their voxels are alike.
    for (std::size_t i = 0; i < std::max(along[1].size(), along[2].size()); ++i) {
      add({z, along[1][std::min(i, along[1].size() - 1)], along[2][std::min(i, along[2].size() - 1)]});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const PatchCost& a, const PatchCost& b) { return a.seconds() < b.seconds(); });
  return all;
}

}  // namespace

PatchCost cost_of(const PatchDemand& d, const PatchGrid& grid, InferenceWindows windows) {
  const double passes = static_cast<double>(windows.patches * d.forms) / static_cast<double>(d.batch);
  PatchCost cost{.grid = grid, .windows = std::move(windows)};
  cost.compute_seconds = passes * forward_seconds(d, grid.patch) / d.threads;
  for (const io::VoxelBox& column : cost.windows.columns) {
    const io::VoxelBox box = d.read_box(grid, column);
    const auto rows = static_cast<double>(d.channels * box.extent.z * box.extent.y);
    const double elements = rows * static_cast<double>(box.extent.x) * static_cast<double>(d.bytes_per_voxel) / 4;
    const auto layers = static_cast<double>(grid.axis(0).count());
    cost.transfer_seconds += d.price.of(layers, rows, elements);
  }
  const double computed = static_cast<double>(cost.windows.patches) * static_cast<double>(grid.axis(0).output) *
                          static_cast<double>(grid.axis(1).output * grid.axis(2).output);
  cost.halo = 1 - static_cast<double>(d.region.volume()) / computed;
  return cost;
}

std::optional<LayerwiseCost> layerwise_cost(const PatchDemand& d) {
  const NetShapes trained = infer_shapes(d.spec, d.spec.patch);
  Extent3 whole = d.spec.patch;
  for (int axis = 0; axis < 3; ++axis) {
    const index_t period = trained.alignment()[axis];
    const index_t more = std::max<index_t>(0, d.region[axis] - trained.output().extent[axis]);
    whole[axis] += round_up(more, period);
  }
  try {
    const PatchGrid grid = make_patch_grid(d.spec, d.region, {.patch = whole, .overlap = {}, .blend = d.blend});
    const NetShapes shapes = infer_shapes(d.spec, grid.patch);
    LayerwiseCost cost{.compute_seconds = forward_seconds(d, grid.patch) * static_cast<double>(d.forms) / d.threads};
    const auto elements = [&](const NodeShape& node) {
      return static_cast<double>(node.channels) * static_cast<double>(node.extent.volume());
    };
    for (std::size_t i = 0; i < d.spec.nodes.size(); ++i) {
      const NodeShape& x = shapes.of(d.spec.nodes[i].inputs[0]);
      if (!conv_problem(d.spec, d.spec.nodes[i], d.batch, x)) continue;
      const double moved = elements(x) + elements(shapes.nodes[i]);
      cost.transfer_seconds += moved * static_cast<double>(d.forms) * d.price.element;
    }
    return cost;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

PatchChoice choose_patch(const PatchDemand& d, const std::optional<PatchCost>& usual) {
  const NetShapes shapes = infer_shapes(d.spec, d.spec.patch);
  if (shapes.output().global) {
    return {.cheapest = usual,
            .reason = "the net normalises over the voxels of a patch, so another extent changes the result"};
  }
  std::optional<PatchCost> best = usual;
  int planned = 0;
  for (const PatchCost& candidate : rank_patches(d)) {
    // Without the memory of the net a candidate looks at least as good as it is.
    if (planned == most_planned || (best && candidate.seconds() >= best->seconds())) break;
    if (usual && candidate.grid.patch == usual->grid.patch) continue;
    ++planned;
    try {
      PatchCost exact = cost_of(d, candidate.grid, d.windows(candidate.grid, true));
      if (!best || exact.seconds() < best->seconds()) best = std::move(exact);
    } catch (const Error&) {
      continue;  // most likely the net does not fit into the memory
    }
  }
  return {.cheapest = std::move(best)};
}

}  // namespace convolume::nets
