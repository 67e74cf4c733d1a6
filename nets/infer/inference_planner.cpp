#include "nets/infer/inference_planner.hpp"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <exception>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "nets/base/memory_limit.hpp"
#include "nets/files/tensor_files.hpp"

namespace convolume::nets {
namespace {

/// Returns the grid of the cheapest patch. If no patch fits, the error is that of the usual one.
PatchGrid cheapest_grid(const PatchDemand& demand, const PatchGrid& usual) {
  std::optional<PatchCost> cost;
  std::exception_ptr reason;
  try {
    cost = cost_of(demand, usual, demand.windows(usual, true));
  } catch (const InvalidArgument&) {
    reason = std::current_exception();
  }
  const PatchChoice choice = choose_patch(demand, cost);
  if (!choice.cheapest) std::rethrow_exception(reason);
  return choice.cheapest->grid;
}

/// Reads the text of an extent, as to_string() writes it.
Extent3 parse_extent(const std::string& text, const std::filesystem::path& part) {
  Extent3 extent;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%" SCNd64 " x %" SCNd64 " x %" SCNd64 "%c", &extent.z, &extent.y, &extent.x, &rest) ==
      3) {
    return extent;
  }
  throw FormatError(
      fmt::format("{}: manifest: '{}' is no extent; remove the folder and begin again", part.string(), text));
}

}  // namespace

InferencePlanner::InferencePlanner(const InferOptions& options, const NetSpec& net, Parameters& parameters,
                                   InferenceVolume& volume, index_t channels, std::size_t limit, Scheduler& scheduler,
                                   std::pmr::memory_resource* memory)
    : o_(options),
      net_(net),
      parameters_(parameters),
      volume_(volume),
      channels_(channels),
      limit_(limit),
      scheduler_(scheduler),
      memory_(memory),
      patches_({.patch = options.patch, .overlap = options.overlap, .blend = options.blend}) {}

void InferencePlanner::choose_patches(const InferenceManifest* manifest, const std::filesystem::path& part) {
  const Extent3 region = volume_.region().extent;
  if (o_.cheapest_patch) {
    if (manifest != nullptr) {
      patches_.patch = parse_extent(manifest->fact("--patch"), part);
      patches_.overlap = parse_extent(manifest->fact("--overlap"), part);
    } else {
      const PatchGrid grid = cheapest_grid(patch_demand(), make_patch_grid(net_, region, patches_));
      patches_.patch = grid.patch;
      patches_.overlap = grid.overlap;
    }
    volume_.add_notes({{"patch", to_string(*patches_.patch)}, {"overlap", to_string(*patches_.overlap)}});
  }
  grid_ = make_patch_grid(net_, region, patches_);
}

void InferencePlanner::make_plans(const InferenceManifest* manifest, const std::filesystem::path& part) {
  PredictorOptions options = predictor_options();
  if (manifest != nullptr) options.recorded = recorded_plans(NumericsRecord::from_text(manifest->numerics));
  if (!predictor_) predictor_ = std::make_unique<Predictor>(net_, parameters_, options, scheduler_, memory_);
  try {
    predictor_->network(grid_);
  } catch (const Error& error) {
    if (manifest == nullptr) throw;
    throw InvalidArgument(fmt::format("{}: its plans cannot be made here: {}", part.string(), error.what()));
  }
  windows_ = windows_for(grid_, predictor_->network(grid_).bytes(scheduler_.threads()));
}

InferencePlan InferencePlanner::costs() {
  PatchNetwork& net = predictor_->network(grid_);
  net.prepare(scheduler_);
  net.run_alone(scheduler_);
  const auto start = std::chrono::steady_clock::now();
  net.run_alone(scheduler_);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto computed = windows_.patches * static_cast<index_t>(predictor_->forms());
  const PatchDemand demand = patch_demand();
  const PatchCost chosen = cost_of(demand, grid_, windows_);
  PatchDemand to_raw_files = demand;
  to_raw_files.price = StreamPrices::file;
  const LayerwiseCost layerwise = layerwise_cost(to_raw_files).value_or(LayerwiseCost{});
  const PatchChoice choice = o_.cheapest_patch ? PatchChoice{.cheapest = chosen} : choose_patch(demand, chosen);
  return {.patch = grid_.patch,
          .overlap = grid_.overlap,
          .patches = grid_.patches(),
          .computed = computed,
          .windows = static_cast<std::int64_t>(windows_.columns.size()),
          .memory_bytes = windows_.bytes,
          .memory_limit = limit_,
          .seconds = seconds * static_cast<double>(computed) / static_cast<double>(net.batch()),
          .chosen = estimate_of(chosen),
          .cheapest = estimate_of(*choice.cheapest),
          .layerwise_compute_seconds = layerwise.compute_seconds,
          .layerwise_transfer_seconds = layerwise.transfer_seconds,
          .patch_note = choice.reason};
}

PredictorOptions InferencePlanner::predictor_options() const {
  return {.patches = patches_,
          .mirror = o_.flip,
          .batch = o_.batch,
          .engine = o_.engine,
          .low_error = o_.low_error,
          // Weights that are not kept as spectra are transformed again, with the same bits.
          .memory_budget = std::min(usual_memory_budget, limit_ / 2)};
}

/// Returns the columns for a grid, beside a net of so many bytes.
InferenceWindows InferencePlanner::windows_for(const PatchGrid& grid, std::size_t net_bytes) const {
  constexpr std::size_t resampled_at_once = std::size_t{48} << 20;
  std::size_t fixed = program_bytes + net_bytes + static_cast<std::size_t>(parameters_.count()) * sizeof(float);
  if (volume_.back()) fixed += resampled_at_once * static_cast<std::size_t>(scheduler_.threads());
  if (volume_.decoded_bytes() == 0 && !volume_.source().info().planes_of_chunks) {
    const io::VolumeInfo& info = volume_.source().info();  // a chunk as it is stored, and decoded
    fixed += 2 * static_cast<std::size_t>(scheduler_.threads() * info.chunk_channels * info.chunk.volume()) *
             info.bytes_per_voxel();
  }
  if (volume_.decoded_bytes() <= limit_ / 8) fixed += static_cast<std::size_t>(volume_.decoded_bytes());
  return choose_windows({.grid = grid,
                         .region = volume_.region(),
                         .volume = volume_.input().info(),
                         .channels = channels_,
                         .stored = volume_.kept(),
                         .threads = scheduler_.threads(),
                         .fixed = fixed},
                        limit_);
}

PatchDemand InferencePlanner::patch_demand() {
  const io::VolumeInfo& info = volume_.input().info();
  return {.spec = net_,
          .blend = o_.blend,
          .region = volume_.region().extent,
          .batch = o_.batch,
          .forms = forms_of(o_.flip),
          .threads = scheduler_.threads(),
          .engine = o_.engine,
          .low_error = o_.low_error,
          .price = price_of_reading(info),
          .windows = [this](const PatchGrid& grid,
                            bool net_too) { return windows_for(grid, net_too ? net_bytes(grid) : 0); },
          .read_box =
              [this](const PatchGrid& grid, const io::VoxelBox& column) {
                return Blender::input_box(grid, volume_.region(), volume_.input().info().extent, column);
              },
          .channels = info.channels,
          .bytes_per_voxel = info.bytes_per_voxel()};
}

/// Plans a net to learn its memory.
std::size_t InferencePlanner::net_bytes(const PatchGrid& grid) {
  if (o_.stop.stop_requested()) throw StopRequested();
  PredictorOptions options = predictor_options();
  options.patches = {.patch = grid.patch, .overlap = grid.overlap, .blend = o_.blend};
  return Predictor(net_, parameters_, options, scheduler_, memory_).network(grid).bytes(scheduler_.threads());
}

PatchEstimate InferencePlanner::estimate_of(const PatchCost& cost) const {
  return {.patch = cost.grid.patch,
          .overlap = cost.grid.overlap,
          .windows = static_cast<std::int64_t>(cost.windows.columns.size()),
          .computed = cost.windows.patches * static_cast<index_t>(predictor_->forms()),
          .halo = cost.halo,
          .compute_seconds = cost.compute_seconds,
          .read_seconds = cost.transfer_seconds};
}

}  // namespace convolume::nets
