// What a way to convolve has to provide. Engines are immutable and shared by all executions of a plan.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <variant>

#include "convolume/conv.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::conv {

/// Bindings of a graph. The plan may replace the contents between runs of the graph, never during one.
struct PrepareArguments {
  ConstTensorView w;
  PreparedWeights::Impl* prepared = nullptr;
};

struct ForwardArguments {
  ConstTensorView x, bias;
  TensorView y;
  const PreparedWeights::Impl* w = nullptr;
  Spectra::Impl* x_hat = nullptr;
  bool x_hat_filled = false;
  std::pmr::memory_resource* memory = nullptr;
  Workspace* workspace = nullptr;  ///< null, or looked at while tasks are appended
};

struct BackwardArguments {
  ConstTensorView x, y, dy;
  const PreparedWeights::Impl* w = nullptr;
  const Spectra::Impl* x_hat = nullptr;
  Spectra::Impl* dy_hat = nullptr;
  TensorView dx, dw, dbias;
  bool add_dx = false, add_dw = false;
  std::pmr::memory_resource* memory = nullptr;
  Workspace* workspace = nullptr;  ///< null, or looked at while tasks are appended
};

class ConvEngine {
 public:
  virtual ~ConvEngine() = default;

  virtual Ready append_prepare(TaskGraph& graph, const Ready& w_ready,
                               std::shared_ptr<const PrepareArguments> arguments) const = 0;
  virtual Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                               std::shared_ptr<const ForwardArguments> arguments) const = 0;
  virtual ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                            std::shared_ptr<const BackwardArguments> arguments) const = 0;

  virtual void init_weights(PreparedWeights::Impl& prepared) const = 0;
  virtual void init_input_spectra(Spectra::Impl& spectra) const = 0;
  virtual void init_gradient_spectra(Spectra::Impl& spectra) const = 0;

  virtual std::string numerics() const = 0;
  virtual std::vector<CacheCost> caches() const { return {}; }
  virtual TransformCounts transforms() const noexcept { return {}; }
};

/// An engine and the seconds that the directions should take that options want, or the reason why the engine does not
/// serve.
struct Offer {
  std::unique_ptr<ConvEngine> engine;
  double seconds = 0;
  std::string choice{};  ///< see ConvOptions::choice; empty where there is nothing to choose but the engine
};
/// What `automatic` looks at, best general choice first; the reference ends the list.
inline constexpr std::array automatic_engines{Engine::fft_tiled, Engine::fft_volume, Engine::direct, Engine::reference};

using Answer = std::variant<Offer, std::string>;

Answer offer_fft_tiled(const ConvProblem& problem, const ConvOptions& options);
/// For depthwise problems that offer_fft_tiled() serves.
Offer offer_fft_depthwise(const ConvProblem& problem, const plan::TiledWays& ways);
/// For depthwise problems.
Offer offer_direct_depthwise(const ConvProblem& problem, const ConvOptions& options);
Answer offer_fft_volume(const ConvProblem& problem, const ConvOptions& options);
Answer offer_direct(const ConvProblem& problem, const ConvOptions& options);
/// Asked for by name only.
Answer offer_onednn(const ConvProblem& problem, const ConvOptions& options);
Answer offer_reference(const ConvProblem& problem, const ConvOptions& options);

}  // namespace convolume::conv
