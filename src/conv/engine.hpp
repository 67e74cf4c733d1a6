// Declares the engine interface, and how an implementation presents itself to the plan.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "conv/choice.hpp"
#include "convolume/conv.hpp"
#include "convolume/cpu.hpp"
#include "convolume/machine.hpp"
#include "convolume/ready.hpp"
#include "plan/groups.hpp"

namespace convolume::conv {

using plan::is_depthwise;
using plan::one_group;

/// Tensors and caches of a call. All tasks of a graph read the same object. Between runs of the graph, the plan may
/// write other tensors and caches into it. This also holds for the next two structs.
struct PrepareArguments {
  ConstTensorView w;
  PreparedWeights::Impl* prepared = nullptr;
};

struct ForwardArguments {
  ConstTensorView x, bias;
  TensorView y;
  const PreparedWeights::Impl* w = nullptr;
  Spectra::Impl* x_hat = nullptr;
  std::pmr::memory_resource* memory = nullptr;
  Workspace* workspace = nullptr;  ///< may be null; used only while tasks are appended
};

struct BackwardArguments {
  ConstTensorView x, y, dy;
  const PreparedWeights::Impl* w = nullptr;
  const Spectra::Impl* x_hat = nullptr;
  Spectra::Impl* dy_hat = nullptr;
  TensorView dx, dw, dbias;
  bool add_dx = false, add_dw = false;
  std::pmr::memory_resource* memory = nullptr;
  Workspace* workspace = nullptr;  ///< may be null; used only while tasks are appended
};

/// An engine for one problem. All members are const and thread-safe.
class ConvEngine {
 public:
  virtual ~ConvEngine() = default;

  /// Append tasks to `graph`, which wait for what they read. Return the tasks that complete the results. A
  /// gradient is computed only if its tensor is bound.
  virtual Ready append_prepare(TaskGraph& graph, const Ready& w_ready,
                               std::shared_ptr<const PrepareArguments> arguments) const = 0;
  virtual Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                               std::shared_ptr<const ForwardArguments> arguments) const = 0;
  virtual ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                            std::shared_ptr<const BackwardArguments> arguments) const = 0;

  /// Describe an empty cache: its geometry and its buffers. Plans can share a cache if their geometries are equal.
  virtual void init_weights(PreparedWeights::Impl& prepared) const = 0;
  virtual void init_input_spectra(Spectra::Impl& spectra) const = 0;
  virtual void init_gradient_spectra(Spectra::Impl& spectra) const = 0;

  /// Returns everything in the engine that decides rounding, as text; see ConvPlan::numerics().
  virtual std::string numerics() const = 0;
  virtual std::vector<CacheCost> caches() const { return {}; }
  virtual TransformCounts transforms() const noexcept { return {}; }
  /// See ConvPlan::x_hat_replaces_x().
  virtual bool x_hat_replaces_x() const noexcept { return false; }

 protected:
  /// Returns the SIMD target that was current when the engine was made. Its kernels belong to this target.
  const std::string& kernel_target() const noexcept { return kernel_target_; }

 private:
  std::string kernel_target_ = simd_target();
};

/// Reasons of an implementation that leaves a problem to the other implementation of the same engine.
inline constexpr const char* not_depthwise = "depthwise problems have an implementation of their own";
inline constexpr const char* depthwise_only = "serves depthwise problems only";

/// Returns whether voxels of x are left out by negative padding, and the reason of engines that cannot do that.
inline bool leaves_out_voxels(const ConvProblem& problem) noexcept {
  for (int axis = 0; axis < 3; ++axis) {
    if (problem.pad_before[axis] < 0 || problem.pad_after[axis] < 0) return true;
  }
  return false;
}
inline constexpr const char* no_cropped_volumes =
    "negative padding leaves out voxels, which only fft_tiled, toom_cook and reference do";

/// The estimated cost of an implementation for the directions that the options want.
struct Estimate {
  double seconds = 0;   ///< on one core
  double bytes = 0;     ///< beside the tensors while all directions run: caches, packed weights, sums
  SharedParts parts{};  ///< what the engine decides; null if there is nothing to decide
  std::vector<Explanation::Bound> bounds{};  ///< see Explanation::bounds
};

/// One algorithm and its code. Every function is deterministic and thread-safe.
struct Implementation {
  Engine engine;
  const char* name;
  /// Whether a problem with groups is computed group by group, because the code supports only one group. Depthwise
  /// problems are passed on unchanged.
  bool group_by_group;
  // `parts` are those of a choice of this engine that was given, or null. No function reads ConvOptions::choice.
  /// Returns why the problem cannot be computed, or an empty string.
  std::string (*unsupported_reason)(const ConvProblem& problem, const ConvOptions& options, const ChoiceParts* parts);
  /// Estimates a supported problem, without building anything.
  Estimate (*estimate)(const ConvProblem& problem, const ConvOptions& options, const MachineModel& machine,
                       const ChoiceParts* parts);
  /// Creates the engine for a supported problem. `parts` are those of estimate().
  std::unique_ptr<ConvEngine> (*create)(const ConvProblem& problem, const ConvOptions& options,
                                        const ChoiceParts* parts);
  /// Returns parts that are worth measuring, the best first; about `most` of them. Null if the engine has no parts.
  std::vector<SharedParts> (*propose)(const ConvProblem& problem, const ConvOptions& options,
                                      std::size_t most) = nullptr;
  /// Reads the words that ChoiceParts::text() returns. Throws InvalidArgument that says what is wrong. Null if the
  /// engine has no parts.
  SharedParts (*parse)(std::span<const std::string> words) = nullptr;
  const char* form = "";          ///< how messages show a choice with parts
  bool larger_error = false;      ///< see convolume::has_larger_error()
  bool some_layers_only = false;  ///< no usual net consists of layers that it serves; see convolume::takes_layer()
  /// Returns why `automatic` does not choose the engine on this machine, or an empty string. Null: it may always.
  std::string (*by_name_reason)() = nullptr;
};

/// Creates EngineOf<float> or EngineOf<double>, according to the problem's type.
template <template <class> class EngineOf, class... Arguments>
std::unique_ptr<ConvEngine> create_for_type(const ConvProblem& problem, const Arguments&... arguments) {
  if (problem.type == DataType::f32) return std::make_unique<EngineOf<float>>(problem, arguments...);
  return std::make_unique<EngineOf<double>>(problem, arguments...);
}

}  // namespace convolume::conv
