// Where the patches of an inference lie, in which columns they are computed, and what that costs.
#pragma once

#include <memory>
#include <memory_resource>

#include "convolume/inference.hpp"
#include "nets/infer/inference_manifest.hpp"
#include "nets/infer/inference_volume.hpp"
#include "nets/infer/inference_windows.hpp"
#include "nets/infer/patch_choice.hpp"
#include "nets/infer/predictor.hpp"

namespace convolume::nets {

/// Plans an inference. What the constructor gets must outlive it.
class InferencePlanner {
 public:
  InferencePlanner(const InferOptions& options, const NetSpec& net, Parameters& parameters, InferenceVolume& volume,
                   index_t channels, std::size_t limit, Scheduler& scheduler, std::pmr::memory_resource* memory);

  /// Decides the patches: those of the options, those that cost least, or those of the inference that is continued.
  /// `manifest` is that of the continued inference or null, and `part` is its folder, for messages.
  void choose_patches(const InferenceManifest* manifest, const std::filesystem::path& part);
  /// Makes the plans of the net and the columns. A continued inference uses the plans in its manifest.
  void make_plans(const InferenceManifest* manifest, const std::filesystem::path& part);

  const PatchGrid& grid() const { return grid_; }
  const InferenceWindows& windows() const { return windows_; }
  Predictor& predictor() { return *predictor_; }
  /// Uses the predictor of another plan with the same options and the same patch. To be called before make_plans().
  void use(std::unique_ptr<Predictor> predictor) { predictor_ = std::move(predictor); }
  /// Gives the predictor away, with its plans and its memory.
  std::unique_ptr<Predictor> take_predictor() { return std::move(predictor_); }
  /// Returns the costs that the cost models predict, and measures one pass of the net. Bytes on disk are 0.
  InferencePlan costs();

 private:
  PredictorOptions predictor_options() const;
  InferenceWindows windows_for(const PatchGrid& grid, std::size_t net_bytes) const;
  PatchDemand patch_demand();
  std::size_t net_bytes(const PatchGrid& grid);
  PatchEstimate estimate_of(const PatchCost& cost) const;

  const InferOptions& o_;
  const NetSpec& net_;
  Parameters& parameters_;
  InferenceVolume& volume_;
  index_t channels_;
  std::size_t limit_;
  Scheduler& scheduler_;
  std::pmr::memory_resource* memory_;
  PatchOptions patches_{};
  PatchGrid grid_{};
  std::unique_ptr<Predictor> predictor_;
  InferenceWindows windows_;
};

}  // namespace convolume::nets
